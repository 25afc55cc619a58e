"""What a process remembers of its database spares it a look, and is never acted upon once it is no longer so."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, at, differences, reservation_name, reserve

from regionquota.adapters.postgres import memo
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import (
    Command,
    Commit,
    Denied,
    DenyReason,
    Extend,
    Forbidden,
    Granted,
    Outcome,
    Release,
    RequestConflict,
    Settled,
    Start,
)
from regionquota.core.counter import Counter
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reservation import State

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

ONE, TWO, THREE, FOUR = (reservation_name(number) for number in (1, 2, 3, 4))
OWNED = 100

Here = tuple[PostgresRegionStore, PostgresRegionStore]


@pytest.fixture
async def processes(open_store: fixtures.OpenStore) -> Here:
    """Two on one database; the first remembers the quota and a hold of 10, ONE."""
    here, there = await open_store(size=1), await open_store(size=1)
    await here.apply(QUOTA, allocation(1000, eu=OWNED), 10, NOON)
    await put(here, reserve(10, name=ONE, request="x", ttl=60))
    return here, there


async def put(store: PostgresRegionStore, *batch: Command, now: float = NOON) -> Outcome:
    """The last command's outcome."""
    return list(await store.transact(batch, now))[-1]


async def counter(store: PostgresRegionStore) -> Counter:
    held = await store.holding(QUOTA)
    assert held is not None
    assert [] == differences(await store.check_balances())
    return held.counter


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is said to the server meanwhile, by whichever process."""
    said: list[str] = []
    with monkeypatch.context() as listening:
        for name in ("fetch", "fetchval", "fetchrow", "execute"):
            original: Callable[..., Awaitable[Any]] = getattr(asyncpg.Connection, name)

            async def noted(
                self: Any, query: str, *args: Any, _original: Callable[..., Awaitable[Any]] = original, **how: Any
            ) -> Any:
                said.append(query)
                return await _original(self, query, *args, **how)

            listening.setattr(asyncpg.Connection, name, noted)
        yield said


@pytest.mark.parametrize(
    "command",
    [reserve(5, name=TWO), reserve(91, name=TWO), Commit(ONE, 7), Release(ONE), Extend(ONE, 90), Start(ONE, "op")],
    ids=["reserve", "denial", "commit", "release", "extend", "start"],
)
async def test_what_is_remembered_is_decided_and_stored_with_one_statement(
    processes: Here, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    here, _ = processes
    with statements(monkeypatch) as said:
        await put(here, command)
    assert 1 == len(said)


async def test_what_was_written_is_remembered(processes: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here, _ = processes
    with statements(monkeypatch) as said:
        await put(here, reserve(5, name=TWO))
        await put(here, Commit(TWO), reserve(6, name=THREE))
        await put(here, Release(THREE))
    assert 3 == len(said)
    assert Counter(slice=100, available=85, reserved=10, used=5) == await counter(here)


async def test_a_process_that_remembers_nothing_looks(processes: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    _, there = processes
    with statements(monkeypatch) as said:
        await put(there, reserve(5, name=TWO))
    assert 1 < len(said)


async def test_what_another_process_reserved_is_not_reserved_again(processes: Here) -> None:
    here, there = processes
    await put(there, reserve(85, name=TWO))
    refused = await put(here, reserve(6, name=THREE))
    assert isinstance(refused, Denied)
    assert 5 == refused.free
    assert 95 == (await counter(here)).reserved


async def test_what_another_process_freed_is_not_denied(processes: Here) -> None:
    here, there = processes
    await put(here, reserve(90, name=TWO))
    await put(there, Release(TWO))
    assert isinstance(await put(here, reserve(50, name=THREE)), Granted)
    assert 60 == (await counter(here)).reserved


async def test_what_another_process_owes_is_not_overlooked(processes: Here) -> None:
    here, there = processes
    await put(there, adjust(95, request="y"))
    refused = await put(here, reserve(1, name=TWO))
    assert isinstance(refused, Denied)
    assert DenyReason.IN_DEBT is refused.reason


async def test_what_another_process_committed_is_not_committed_again(processes: Here) -> None:
    here, there = processes
    await put(there, Commit(ONE, 7))
    again = await put(here, Commit(ONE, 7))
    assert isinstance(again, Settled)
    assert again.replayed
    assert isinstance(await put(here, Commit(ONE, 8)), Forbidden)
    assert 7 == (await counter(here)).used


@pytest.mark.parametrize("noticed", [False, True], ids=["at once", "after its counter was seen again"])
async def test_what_another_process_released_is_not_committed(processes: Here, noticed: bool) -> None:
    """In the second case the hold and the counter are remembered as of different moments and do not go together."""
    here, there = processes
    await put(there, Release(ONE))
    if noticed:
        await put(here, adjust(1, request="y"))
    assert isinstance(await put(here, Commit(ONE, 10)), Forbidden)
    assert (0, int(noticed)) == ((await counter(here)).reserved, (await counter(here)).used)


async def test_what_another_process_committed_is_not_released(processes: Here) -> None:
    here, there = processes
    await put(there, Commit(ONE))
    assert isinstance(await put(here, Release(ONE)), Forbidden)
    assert 10 == (await counter(here)).used


async def test_what_another_process_started_is_not_started_by_another_operation(processes: Here) -> None:
    here, there = processes
    await put(there, Start(ONE, "theirs"))
    assert isinstance(await put(here, Start(ONE, "ours")), Forbidden)


async def test_a_request_that_another_process_granted_is_answered_with_its_hold(processes: Here) -> None:
    here, there = processes
    await put(there, reserve(20, name=TWO, request="y"))
    again = await put(here, reserve(20, name=THREE, request="y"))
    assert isinstance(again, Granted)
    assert (TWO, True) == (again.reservation.id, again.replayed)
    assert 30 == (await counter(here)).reserved


async def test_a_request_that_is_known_is_answered_as_before_although_it_does_not_fit_any_more(processes: Here) -> None:
    here, _ = processes
    await put(here, reserve(90, name=TWO))
    again = await put(here, reserve(10, name=THREE, request="x", ttl=60))
    assert isinstance(again, Granted)
    assert (ONE, True) == (again.reservation.id, again.replayed)
    assert RequestConflict("x") == await put(here, reserve(11, name=THREE, request="x", ttl=60))


async def test_a_known_request_is_answered_beside_new_ones_in_one_batch(processes: Here) -> None:
    here, _ = processes
    outcomes = await here.transact(
        [reserve(60, name=TWO), reserve(60, name=THREE), reserve(10, name=FOUR, request="x", ttl=60)], NOON
    )
    assert [Granted, Denied, Granted] == [type(one) for one in outcomes]
    assert 70 == (await counter(here)).reserved


async def test_a_slice_that_shrank_elsewhere_is_not_spent(processes: Here) -> None:
    here, there = processes
    await there.apply(QUOTA, allocation(1000, eu=30), 11, NOON)
    assert isinstance(await put(here, reserve(21, name=TWO)), Denied)
    assert isinstance(await put(here, reserve(20, name=TWO)), Granted)
    assert Counter(slice=30, reserved=30) == await counter(here)


async def test_a_policy_that_was_heard_of_elsewhere_is_in_force(processes: Here) -> None:
    here, there = processes
    await there.apply(QUOTA, allocation(1000, eu=OWNED, policy=QuotaPolicy(admission_open=False)), 11, NOON)
    refused = await put(here, reserve(1, name=TWO))
    assert isinstance(refused, Denied)
    assert DenyReason.ADMISSION_CLOSED is refused.reason


async def test_a_slice_that_this_process_changed_is_known_to_it(processes: Here) -> None:
    here, _ = processes
    await here.apply(QUOTA, allocation(1000, eu=30), 11, NOON)
    assert isinstance(await put(here, reserve(21, name=TWO)), Denied)


@pytest.mark.parametrize("who", [0, 1], ids=["here", "elsewhere"])
async def test_what_was_expired_is_charged_as_a_late_commit(processes: Here, who: int) -> None:
    here, _ = processes
    await processes[who].expire(NOON + 60, 100)
    await put(here, reserve(95, name=TWO), now=NOON + 60)
    done = await put(here, Commit(ONE), now=NOON + 60)
    assert isinstance(done, Settled)
    assert Counter(slice=100, reserved=95, used=10, overdraft_issued=5) == await counter(here)


async def test_what_was_extended_elsewhere_ends_when_that_says(processes: Here) -> None:
    here, there = processes
    await put(there, Extend(ONE, 600))
    await put(here, Start(ONE, "op"))
    found = await here.reservation(ONE)
    assert found is not None
    assert (State.STARTED, NOON + 600) == (found.state, found.expires_at)


async def test_a_period_that_another_process_began_goes_on(open_store: fixtures.OpenStore) -> None:
    here, there = await open_store(), await open_store()
    late, later = at(2026, 5, 31, 23, 59, 50), at(2026, 6, 1)
    await here.apply(QUOTA, allocation(1000, kind=Kind.CONSUMABLE, eu=OWNED), 10, late)
    await put(here, reserve(10, name=ONE), now=late)
    await put(there, reserve(70, name=TWO), now=later)
    assert isinstance(await put(here, reserve(31, name=THREE), now=later), Denied)
    assert isinstance(await put(here, Commit(ONE), now=later), Settled)
    old, new = [check.counter for check in await here.check_balances()]
    assert (10, Counter(slice=100, available=30, reserved=70)) == (old.used, new)
    assert [] == differences(await here.check_balances())


async def test_one_period_is_turned_upon_what_is_remembered(
    open_store: fixtures.OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await open_store()
    late, later = at(2026, 5, 31, 23, 59, 50), at(2026, 6, 1)
    await here.apply(QUOTA, allocation(1000, kind=Kind.CONSUMABLE, eu=OWNED), 10, late)
    await put(here, reserve(10, name=ONE), now=late)
    with statements(monkeypatch) as said:
        await put(here, Commit(ONE), reserve(70, name=TWO), now=later)
    assert 1 == len(said)
    assert [10, 0] == [check.counter.used for check in await here.check_balances()]
    assert [] == differences(await here.check_balances())


async def test_what_was_seen_longest_ago_is_forgotten_and_looked_up_again(
    open_store: fixtures.OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "MAX_COUNTERS", 2)
    monkeypatch.setattr(memo, "MAX_RESERVATIONS", 2)
    here = await open_store()
    keys = [QuotaKey("acme", f"resource-{n}") for n in range(4)]
    for n, key in enumerate(keys):
        await here.apply(key, allocation(1000, eu=OWNED), 10, NOON)
        await put(here, reserve(10, name=reservation_name(n), key=key))
    assert (2, 2) == (len(here._memo._counters), len(here._memo._reservations))
    for n in range(4):
        assert isinstance(await put(here, Commit(reservation_name(n))), Settled)
    assert [10] * 4 == [check.counter.used for check in await here.check_balances()]


async def test_what_has_ended_is_not_remembered(processes: Here) -> None:
    here, _ = processes
    await put(here, Commit(ONE))
    assert {} == here._memo._reservations
