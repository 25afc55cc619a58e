"""Sweepers, settlements, lines and slices of two processes that meet on the same rows."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Charge, Command, Commit, Forbidden, Granted, Outcome, Release, Reserve, Settled
from regionquota.core.counter import Counter
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

Pair = tuple[PostgresRegionStore, PostgresRegionStore]
LATER = NOON + 1000


@pytest.fixture
async def pair(open_store: fixtures.OpenStore) -> Pair:
    return await open_store(size=8), await open_store(size=8)


async def give(pair: Pair, slice_: int, key: QuotaKey = QUOTA) -> None:
    await pair[0].apply(key, allocation(10**9, eu=slice_), 10, NOON)


async def exact(pair: Pair) -> Counter:
    assert [] == differences(await pair[0].check_balances())
    held = await pair[0].holding(QUOTA)
    assert held is not None
    return held.counter


async def holds(pair: Pair, number: int) -> list[str]:
    """Of one unit each; all have ended by LATER, the last ones first."""
    await give(pair, number)
    names = [reservation_name(n + 1) for n in range(number)]
    for start in range(0, number, 500):
        part = list(enumerate(names))[start : start + 500]
        await pair[0].transact([reserve(1, name=name, ttl=900 - n * 800 // number) for n, name in part], NOON)
    return names


async def race_sweepers(pair: Pair, commands: list[Command], size: int) -> list[Outcome]:
    """Put the commands in random order, `size` at once, while a sweeper of each process ends what it can."""
    Random(7).shuffle(commands)
    batches = iter([commands[start : start + size] for start in range(0, len(commands), size)])
    outcomes: list[Outcome] = []

    async def settle(store: PostgresRegionStore) -> None:
        for batch in batches:
            outcomes.extend(await store.transact(batch, LATER))

    async def sweep(store: PostgresRegionStore) -> None:
        while (await store.expire(LATER, size)).holds:
            await asyncio.sleep(0.02)

    await asyncio.gather(*(settle(store) for store in pair for _ in range(2)), *(sweep(store) for store in pair))
    return outcomes


async def test_ten_thousand_commits_race_the_sweepers_and_each_is_charged_once(pair: Pair, database: str) -> None:
    names = await holds(pair, 10_000)
    outcomes = await race_sweepers(pair, [Commit(name) for name in names], 50)
    assert [Settled] * 10_000 == [type(one) for one in outcomes]
    assert Counter(slice=10_000, used=10_000) == await exact(pair)
    lines = "SELECT count(*) FROM usage_ledger WHERE kind = $1"
    on_time, late = [await fixtures.query(database, lines, kind) for kind in ("commit", "late_commit")]
    assert 10_000 == on_time + late
    assert 0 < late < 10_000, "nobody raced"
    assert 10_000 == await fixtures.query(database, "SELECT count(DISTINCT reservation_id) FROM usage_ledger")


async def test_releases_race_the_sweepers_and_each_unit_comes_back_once(pair: Pair, database: str) -> None:
    names = await holds(pair, 2000)
    outcomes = await race_sweepers(pair, [Release(name) for name in names], 20)
    assert Counter(slice=2000, available=2000) == await exact(pair)
    released = sum(isinstance(one, Settled) for one in outcomes)
    assert 2000 == released + sum(isinstance(one, Forbidden) for one in outcomes)
    ended = "SELECT count(*) FROM reservations WHERE state = $1"
    assert [released, 2000 - released] == [
        await fixtures.query(database, ended, state.value) for state in (State.RELEASED, State.EXPIRED)
    ]


@asynccontextmanager
async def locked(database: str, row: str, *args: object) -> AsyncIterator[None]:
    """Somebody else has locked the row, until the end of the block."""
    conn = await asyncpg.connect(database)
    try:
        await conn.execute("BEGIN")
        assert await conn.fetch(f"SELECT FROM {row} FOR UPDATE", *args)
        yield
    finally:
        await conn.close()


async def waiting(database: str, *work: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Started, and each of them waits for a lock."""
    tasks = [asyncio.create_task(one) for one in work]
    await until_waiting(database, len(tasks))
    return tasks


async def until_waiting(database: str, number: int) -> None:
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        while await fixtures.query(database, blocked) < number:
            await asyncio.sleep(0.01)


async def deadlocks(database: str) -> int:
    found: int = await fixtures.query(
        database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return found


def lines(number: int, keys: list[QuotaKey]) -> Reserve:
    also = [Charge(key, 1) for key in keys[1:]]
    return reserve(1, name=reservation_name(number), key=keys[0], also=also)


@pytest.fixture
def sets_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of a set is another one in each process; the two here are only one, so each look has another."""
    keys, looks = rows.keys, count()
    monkeypatch.setattr(rows, "keys", lambda wanted: keys(sorted(wanted, reverse=bool(next(looks) % 2))))


@pytest.mark.usefixtures("sets_in_every_order")
@pytest.mark.parametrize("remembered", [True, False], ids=["as remembered", "overtaken"])
async def test_lines_named_in_opposite_order_wait_for_each_other_in_no_circle(
    pair: Pair, database: str, remembered: bool
) -> None:
    """The row in the middle is held until both have come to it: who locked as it was asked would have the other's."""
    keys = [QuotaKey("acme", resource) for resource in "abc"]
    for key in keys:
        await give(pair, 100, key)
    for round_ in range(5):
        for place, store in enumerate(pair):
            await store.transact([lines(round_ * 10 + place, keys)], NOON)
        if not remembered:
            await fixtures.query(database, "UPDATE quota_counters SET version = version + 1")
        async with locked(database, "quota_counters WHERE resource = 'b'"):
            tasks = await waiting(
                database,
                pair[0].transact([lines(round_ * 10 + 5, keys)], NOON),
                pair[1].transact([lines(round_ * 10 + 6, keys[::-1])], NOON),
            )
        outcomes = [one for answer in await asyncio.gather(*tasks) for one in answer]
        assert [Granted, Granted] == [type(one) for one in outcomes]
    assert 0 == await deadlocks(database)
    assert [20] * 3 == [held.counter.reserved for held in await pair[0].holdings()]
    assert [] == differences(await pair[0].check_balances())


async def test_a_sweeper_passes_over_what_a_request_is_working_on(pair: Pair, database: str) -> None:
    """A commit of three has locked the first and waits for the second; the sweeper would come from the other end."""
    names = await holds(pair, 3)
    async with locked(database, "reservations WHERE id = $1", names[1]):
        (commit,) = await waiting(database, pair[0].transact([Commit(name) for name in names], LATER))
        async with asyncio.timeout(10):
            swept = await pair[1].expire(LATER, 10)
    assert (1, [Settled] * 3) == (swept.holds, [type(one) for one in await commit])
    assert Counter(slice=3, used=3) == await exact(pair)
    assert 0 == await deadlocks(database)


async def test_a_sweeper_and_a_request_that_meet_on_two_counters_wait_in_no_circle(pair: Pair, database: str) -> None:
    """The request comes to the first counter before the sweeper does: whoever has the second must have the first."""
    owing, free = QuotaKey("acme", "a"), QuotaKey("acme", "b")
    for key in (owing, free):
        await give(pair, 10, key)
        await pair[0].transact([reserve(1, name=reservation_name(ord(key.resource)), key=key, ttl=10)], NOON)
    await pair[0].transact([adjust(12, request="debt", key=owing)], NOON)
    async with locked(database, "quota_counters WHERE resource = 'a'"):
        adjusts = [adjust(-1, request=key.resource, key=key) for key in (owing, free)]
        await pair[0].transact([adjust(1, request="used", key=free)], NOON)
        (corrected,) = await waiting(database, pair[0].transact(adjusts, LATER))
        sweeping = asyncio.create_task(pair[1].expire(LATER, 10))
        await until_waiting(database, 2)
    await asyncio.gather(corrected, sweeping)
    assert 0 == await deadlocks(database)
    assert [0, 0] == [held.counter.reserved for held in await pair[0].holdings()]
    assert [] == differences(await pair[0].check_balances())


async def test_a_debt_that_opens_while_a_sweeper_waits_is_repaid_by_what_it_gives_back(
    pair: Pair, database: str
) -> None:
    await give(pair, 10)
    await pair[0].transact([reserve(1, name=reservation_name(1), ttl=10)], NOON)
    async with locked(database, "quota_counters"):
        (adjusted,) = await waiting(database, pair[0].transact([adjust(15, request="x")], LATER))
        sweeping = asyncio.create_task(pair[1].expire(LATER, 10))
        await until_waiting(database, 2)
    await asyncio.gather(adjusted, sweeping)
    assert Counter(slice=10, used=15, overdraft_issued=6, overdraft_repaid=1) == await exact(pair)


async def test_a_slice_that_shrinks_while_it_is_spent_is_never_below_what_is_spent(pair: Pair) -> None:
    await give(pair, 100)
    chance = Random(5)
    spending = True

    async def spend(number: int) -> None:
        for n in range(60):
            name = reservation_name(number * 1000 + n)
            (held,) = await pair[1].transact([reserve(chance.randint(1, 9), name=name)], NOON)
            if isinstance(held, Granted):
                settle = Commit(name) if chance.random() < 0.5 else Release(name)
                await pair[1].transact([settle, adjust(-1, request=name)], NOON)

    async def shrink() -> None:
        revision = 10
        while spending:
            revision += 1
            heard = await pair[0].apply(QUOTA, allocation(10**9, eu=chance.choice([0, 30, 100])), revision, NOON)
            assert heard is not None
            assert heard.slice >= heard.counter.in_use
            assert [] == differences(await pair[0].check_balances())

    shrinking = asyncio.create_task(shrink())
    await asyncio.gather(*(spend(number) for number in range(4)))
    spending = False
    await shrinking
    counter = await exact(pair)
    assert counter.slice >= counter.in_use


async def test_what_is_released_upon_an_older_limit_brings_back_nothing_that_the_newer_one_took(pair: Pair) -> None:
    """The first process remembers a slice of 10. The other one has given up all of it but the 3 that are held."""
    names = await holds(pair, 3)
    await pair[0].apply(QUOTA, allocation(1000, eu=10), 11, NOON)
    await pair[0].transact([Commit(names[0])], NOON)
    await pair[1].apply(QUOTA, allocation(1000, eu=0), 12, NOON)
    await pair[0].transact([Release(names[1])], NOON)
    assert Counter(slice=3, available=1, reserved=1, used=1) == await exact(pair)
    await pair[1].apply(QUOTA, allocation(1000, eu=0), 13, NOON)
    assert Counter(slice=2, reserved=1, used=1) == await exact(pair)
