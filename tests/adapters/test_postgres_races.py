"""Two processes of one region on its database, at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import (
    NOON,
    OTHER,
    QUOTA,
    adjust,
    allocation,
    differences,
    reservation_name,
    reserve,
)

from regionquota.adapters.postgres import loading
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import (
    Adjusted,
    Command,
    Commit,
    Denied,
    Expire,
    Extend,
    Granted,
    Outcome,
    Pledge,
    Release,
    RequestConflict,
    Settled,
)
from regionquota.core.counter import Counter
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State
from regionquota.errors import StoreUnavailable

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

Pair = tuple[PostgresRegionStore, PostgresRegionStore]


@pytest.fixture
async def pair(open_store: fixtures.OpenStore) -> Pair:
    return await open_store(size=8), await open_store(size=8)


async def give(pair: Pair, slice_: int, key: QuotaKey = QUOTA) -> None:
    await pair[0].apply(key, allocation(10**9, eu=slice_), 10, NOON)


async def counter(pair: Pair, key: QuotaKey = QUOTA) -> Counter:
    held = await pair[0].holding(key)
    assert held is not None
    return held.counter


async def exact(pair: Pair) -> None:
    assert [] == differences(await pair[0].check_balances())


async def put(store: PostgresRegionStore, *batch: Command, now: float = NOON) -> list[Outcome]:
    return list(await store.transact(batch, now))


async def at_once(*work: Any) -> list[list[Outcome]]:
    return await asyncio.gather(*work)


async def test_fifty_first_reserves_make_one_counter(pair: Pair, database: str) -> None:
    async def first_use(n: int) -> list[Outcome]:
        store = pair[n % 2]
        await store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
        return await put(store, reserve(1, name=reservation_name(n)))

    outcomes = await at_once(*(first_use(n) for n in range(50)))
    assert {Granted} == {type(one) for (one,) in outcomes}
    assert Counter(slice=100, available=50, reserved=50) == await counter(pair)
    assert 1 == await fixtures.query(database, "SELECT count(*) FROM quota_counters")
    assert 1 == await fixtures.query(database, "SELECT count(*) FROM slice_ledger")
    await exact(pair)


async def test_of_two_hundred_at_the_last_unit_one_passes(pair: Pair) -> None:
    await give(pair, 100)
    await put(pair[0], adjust(99, request="x"))
    outcomes = await at_once(*(put(pair[n % 2], reserve(1, name=reservation_name(n))) for n in range(200)))
    assert [1, 199] == [sum(isinstance(one, kind) for (one,) in outcomes) for kind in (Granted, Denied)]
    assert 0 == (await counter(pair)).available


async def test_a_request_put_to_two_processes_at_once_is_one_hold(pair: Pair) -> None:
    await give(pair, 1000)
    for n in range(20):
        names = reservation_name(2 * n), reservation_name(2 * n + 1)
        (one,), (two,) = await at_once(
            *(put(pair[m], reserve(10, name=names[m], request=f"request-{n}")) for m in range(2))
        )
        assert isinstance(one, Granted)
        assert isinstance(two, Granted)
        assert one.reservation == two.reservation
        assert {one.replayed, two.replayed} == {False, True}
    assert 200 == (await counter(pair)).reserved
    await exact(pair)


async def test_a_request_id_put_to_two_quotas_at_once_is_one_hold_and_one_conflict(pair: Pair) -> None:
    await give(pair, 1000)
    await give(pair, 1000, OTHER)
    for n in range(20):
        outcomes = await at_once(
            put(pair[0], reserve(10, name=reservation_name(2 * n), request=f"request-{n}")),
            put(pair[1], reserve(10, name=reservation_name(2 * n + 1), request=f"request-{n}", key=OTHER)),
        )
        assert {Granted, RequestConflict} == {type(one) for (one,) in outcomes}
    assert 200 == (await counter(pair)).reserved + (await counter(pair, OTHER)).reserved
    await exact(pair)


async def test_an_adjustment_put_to_two_quotas_at_once_is_made_once(pair: Pair) -> None:
    await give(pair, 1000)
    await give(pair, 1000, OTHER)
    for n in range(10):
        outcomes = await at_once(
            put(pair[0], adjust(10, request=f"request-{n}")),
            put(pair[1], adjust(10, request=f"request-{n}", key=OTHER)),
        )
        assert {Adjusted, RequestConflict} == {type(one) for (one,) in outcomes}
    assert 100 == (await counter(pair)).used + (await counter(pair, OTHER)).used


async def test_expire_races_commit_and_every_unit_is_charged_once(pair: Pair) -> None:
    await give(pair, 100)
    names = [reservation_name(n) for n in range(100)]
    await put(pair[0], *(reserve(1, name=name, ttl=1) for name in names))
    later = NOON + 5
    outcomes = await at_once(
        *(put(pair[n % 2], Expire(name), now=later) for n, name in enumerate(names)),
        *(put(pair[(n + 1) % 2], Commit(name), now=later) for n, name in enumerate(names)),
    )
    assert {Settled} == {type(one) for (one,) in outcomes[100:]}
    assert Counter(slice=100, used=100) == await counter(pair)
    await exact(pair)


async def test_expire_races_release_and_every_unit_is_returned_once(pair: Pair) -> None:
    await give(pair, 100)
    names = [reservation_name(n) for n in range(100)]
    await put(pair[0], *(reserve(1, name=name, ttl=1) for name in names))
    later = NOON + 5
    outcomes = await at_once(
        *(put(pair[n % 2], Expire(name), now=later) for n, name in enumerate(names)),
        *(put(pair[(n + 1) % 2], Release(name), now=later) for n, name in enumerate(names)),
    )
    winners = [(isinstance(outcomes[n][0], Settled), isinstance(outcomes[n + 100][0], Settled)) for n in range(100)]
    assert {(True, False), (False, True)} >= set(winners)
    assert Counter(slice=100, available=100) == await counter(pair)
    await exact(pair)


async def test_an_extension_races_the_sweeper_and_one_of_them_wins(pair: Pair) -> None:
    await give(pair, 20)
    for n in range(20):
        name = reservation_name(n)
        await put(pair[0], reserve(1, name=name, ttl=1))
        (ended,), (extended,) = await at_once(
            put(pair[0], Expire(name), now=NOON + 5), put(pair[1], Extend(name, 60), now=NOON + 5)
        )
        assert isinstance(ended, Settled) != isinstance(extended, Settled)
        left = await pair[0].reservation(name)
        assert left is not None
        assert (State.EXPIRED if isinstance(ended, Settled) else State.PENDING) is left.state
    await exact(pair)


async def test_adjustments_of_the_same_quotas_in_opposite_orders_do_not_deadlock(pair: Pair, database: str) -> None:
    await give(pair, 1000)
    await give(pair, 1000, OTHER)

    async def adjust_both(n: int, first: QuotaKey, second: QuotaKey) -> None:
        await put(pair[n % 2], adjust(1, request=f"{n}-1", key=first), adjust(1, request=f"{n}-2", key=second))

    await at_once(*(adjust_both(n, *((QUOTA, OTHER) if n % 2 else (OTHER, QUOTA))) for n in range(100)))
    assert (100, 100) == ((await counter(pair)).used, (await counter(pair, OTHER)).used)
    assert 0 == await deadlocks(database)


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.003); RETURN NEW; END';
CREATE TRIGGER slow BEFORE INSERT ON reservations FOR EACH ROW EXECUTE FUNCTION slow();
CREATE TRIGGER slow BEFORE INSERT ON adjustments FOR EACH ROW EXECUTE FUNCTION slow();
"""


@pytest.fixture
async def slow_database(database: str) -> AsyncIterator[str]:
    """Each new row takes some milliseconds, so that two batches certainly meet while they write."""
    conn = await asyncpg.connect(database)
    await conn.execute(SLOW)
    yield database
    await conn.execute("DROP FUNCTION slow() CASCADE")
    await conn.close()


@pytest.mark.parametrize("what", ["reserves", "adjustments"])
async def test_the_same_request_ids_in_opposite_orders_on_different_quotas_do_not_deadlock(
    pair: Pair, slow_database: str, what: str
) -> None:
    """Nothing but the ids is common to the two batches: whoever writes an id first makes the other wait for it."""
    await give(pair, 10_000)
    await give(pair, 10_000, OTHER)
    ids = [f"request-{n}" for n in range(12)]

    def command(n: int, request: str, key: QuotaKey) -> Command:
        if what == "adjustments":
            return adjust(1, request=request, key=key)
        return reserve(1, name=reservation_name(n), request=request, key=key)

    mine = [command(n, one, QUOTA) for n, one in enumerate(ids)]
    theirs = [command(n + 500, one, OTHER) for n, one in enumerate(reversed(ids))]
    outcomes = await at_once(put(pair[0], *mine), put(pair[1], *theirs))
    assert [0, 12] == sorted(sum(isinstance(one, RequestConflict) for one in batch) for batch in outcomes)
    assert 0 == await deadlocks(slow_database)
    await exact(pair)


async def deadlocks(database: str) -> Any:
    return await fixtures.query(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


async def persistently(store: PostgresRegionStore, batch: list[Command]) -> None:
    """So many use the same request ids here that now and then a batch collides five times in a row and is sent back."""
    while True:
        try:
            await store.transact(batch, NOON + 5)
            return
        except StoreUnavailable as error:
            if "collisions of request ids" not in str(error):
                raise


async def test_random_batches_over_many_quotas_do_not_deadlock(pair: Pair, database: str) -> None:
    keys = [QuotaKey("acme", f"resource-{n}") for n in range(5)]
    for key in keys:
        await give(pair, 10_000, key)
    names = [reservation_name(n) for n in range(1000)]
    await put(pair[0], *(reserve(1, name=names[n], key=keys[n % 5], ttl=1) for n in range(200)))

    def some(random: Random, n: int) -> Command:
        known = names[random.randrange(200)]
        request = f"request-{random.randrange(100)}"  # often one that somebody else uses at this moment
        match random.randrange(6):
            case 0 | 1:
                return reserve(1, name=names[200 + n], key=random.choice(keys), request=request)
            case 2:
                return Commit(known)
            case 3:
                return random.choice([Release(known), Extend(known, 60)])
            case 4:
                return Expire(known)
            case _:
                return adjust(1, request=request, key=random.choice(keys))

    async def worker(n: int) -> None:
        random = Random(n)
        for m in range(10):
            numbers = random.sample(range(n * 80, n * 80 + 80), 6)
            await persistently(pair[n % 2], [some(random, number) for number in numbers])
            if m % 3 == 0:
                document = allocation(10**9, eu=random.randrange(5000, 15_000))
                await pair[n % 2].apply(random.choice(keys), document, 11, NOON + 5)

    await asyncio.gather(*(worker(n) for n in range(10)))
    assert 0 == await deadlocks(database)
    await exact(pair)


async def test_a_parent_that_no_command_names_is_not_written_over(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reserve repeats an id that was used on the parent; another one's guarantee would change what the parent keeps.

    Nothing has locked the parent, and another process uses it in the meantime.
    """
    here, there = pair
    project, sibling = (QuotaKey(QUOTA.tenant, QUOTA.resource, scope) for scope in ("project:x", "project:y"))
    await give(pair, 100)
    await give(pair, 100, sibling)
    document = allocation(100, eu=100, policy=QuotaPolicy(guarantee=40))
    await there.apply(project, document, 10, NOON)
    await put(there, Pledge(project, QUOTA), reserve(5, name=reservation_name(1), request="x"))
    load_requests = loading._load_requests

    async def meanwhile(*rest: Any) -> None:
        await load_requests(*rest)
        monkeypatch.setattr(loading, "_load_requests", load_requests)
        await put(there, reserve(7, name=reservation_name(2)))

    monkeypatch.setattr(loading, "_load_requests", meanwhile)
    outcomes = await put(
        here,
        reserve(30, name=reservation_name(3), key=project),
        reserve(5, name=reservation_name(4), key=sibling, request="x"),
    )
    assert [Granted, RequestConflict] == [type(one) for one in outcomes]
    assert 12 == (await counter(pair)).reserved
    await exact(pair)


async def test_a_quota_that_appears_while_a_batch_is_decided_is_not_written_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch finds no counter to lock. Before it looks for its request ids, another process makes and uses one."""
    here, there = pair
    load_requests = loading._load_requests
    batch = [reserve(60, name=reservation_name(3), request="x"), reserve(35, name=reservation_name(4), request="y")]
    later: list[asyncio.Task[list[Outcome]]] = []

    async def overtaken(conn: Any, loaded: Any, reserves: Any, *rest: Any) -> None:
        ours = reserves == batch
        if ours and await there.holding(QUOTA) is None:
            await give((there, there), 100)
            await put(there, reserve(60, name=reservation_name(1), request="x"))
        await load_requests(conn, loaded, reserves, *rest)
        if ours and not later:
            later.append(asyncio.create_task(put(there, reserve(30, name=reservation_name(2)))))
            await asyncio.wait(later, timeout=0.2)

    monkeypatch.setattr(loading, "_load_requests", overtaken)
    mine, theirs = await put(here, *batch), await later[0]
    assert [Granted, Granted, Denied] == [type(one) for one in (*mine, *theirs)]
    await exact(pair)
