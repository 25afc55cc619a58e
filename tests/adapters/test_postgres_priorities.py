"""What is kept for higher priorities, where several processes admit at once, each on a row of its own."""

import asyncio
from collections import Counter as Counts

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Command, Denied, DenyReason, Granted, Outcome, Release
from regionquota.core.counter import Counter
from regionquota.core.policy import Priority, QuotaPolicy

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

GRADED = QuotaPolicy(low_fill_percent=80)
HIGH, LOW = Priority.HIGH, Priority.LOW


@pytest.fixture(params=[1, 4], ids=["one row", "four rows"])
async def processes(open_store: fixtures.OpenStore, request: pytest.FixtureRequest) -> list[PostgresRegionStore]:
    """Four on one database, each with a slot of its own; requests of low priority may fill 80 of the 100 units."""
    stores = [await open_store(size=1, slot=slot) for slot in range(4)]
    await stores[0].apply(QUOTA, allocation(1000, policy=GRADED, eu=100), 10, NOON)
    await stores[0].spread(QUOTA, request.param, NOON)
    return stores


async def put(store: PostgresRegionStore, *batch: Command) -> Outcome:
    """The last command's outcome."""
    return list(await store.transact(batch, NOON))[-1]


async def whole(store: PostgresRegionStore) -> Counter:
    held = await store.holding(QUOTA)
    assert held is not None
    assert [] == differences(await store.check_balances())
    return held.counter


async def test_processes_that_race_for_the_last_units_fill_it_to_the_percent_and_no_further(
    processes: list[PostgresRegionStore],
) -> None:
    asked = [put(processes[n % 4], reserve(1, name=reservation_name(n), priority=LOW)) for n in range(120)]
    assert {Granted: 80, Denied: 40} == Counts(type(one) for one in await asyncio.gather(*asked))
    assert 80 == (await whole(processes[0])).reserved
    asked = [put(processes[n % 4], reserve(1, name=reservation_name(200 + n), priority=HIGH)) for n in range(40)]
    assert {Granted: 20, Denied: 20} == Counts(type(one) for one in await asyncio.gather(*asked))
    assert Counter(slice=100, reserved=100) == await whole(processes[0])


async def test_what_one_row_gives_to_high_priority_the_others_keep(processes: list[PostgresRegionStore]) -> None:
    assert isinstance(await put(processes[0], reserve(25, name=reservation_name(0), priority=HIGH)), Granted)
    granted = [
        isinstance(await put(processes[n % 4], reserve(1, name=reservation_name(n), priority=LOW)), Granted)
        for n in range(1, 80)
    ]
    assert 55 == sum(granted)
    assert 80 == (await whole(processes[1])).reserved


async def test_what_is_given_back_to_one_row_is_not_low_prioritys_while_another_is_full(
    processes: list[PostgresRegionStore],
) -> None:
    holds = [reservation_name(n) for n in range(4)]
    for name, store in zip(holds, processes, strict=True):
        assert isinstance(await put(store, reserve(25, name=name, priority=HIGH)), Granted)
    await put(processes[1], Release(holds[1]))
    refused = await put(processes[1], reserve(6, name=reservation_name(10), priority=LOW))
    assert isinstance(refused, Denied)
    assert (DenyReason.KEPT_FOR_HIGHER_PRIORITY, 5) == (refused.reason, refused.free)
    assert isinstance(await put(processes[2], reserve(5, name=reservation_name(11), priority=LOW)), Granted)


async def test_a_percent_that_falls_holds_for_whoever_remembers_another(
    processes: list[PostgresRegionStore],
) -> None:
    for n, store in enumerate(processes):
        assert isinstance(await put(store, reserve(10, name=reservation_name(n), priority=LOW)), Granted)
    stricter = QuotaPolicy(low_fill_percent=41, generation=2)
    await processes[0].apply(QUOTA, allocation(1000, policy=stricter, eu=100), 11, NOON)
    asked = [put(store, reserve(1, name=reservation_name(10 + n), priority=LOW)) for n, store in enumerate(processes)]
    assert {Granted: 1, Denied: 3} == Counts(type(one) for one in await asyncio.gather(*asked))
    assert 41 == (await whole(processes[3])).reserved


async def test_a_repeat_at_another_priority_is_answered_as_the_first(processes: list[PostgresRegionStore]) -> None:
    first = await put(processes[0], reserve(90, name=reservation_name(1), request="a", priority=HIGH))
    again = await put(processes[1], reserve(90, name=reservation_name(2), request="a", priority=LOW))
    assert isinstance(first, Granted)
    assert isinstance(again, Granted)
    assert (first.reservation.id, True) == (again.reservation.id, again.replayed)
    assert 90 == (await whole(processes[2])).reserved


async def test_racing_processes_never_let_low_priority_into_what_is_kept(
    processes: list[PostgresRegionStore],
) -> None:
    """Whatever the order: at the moment of each grant at low priority no more than 80 units were held."""

    async def busy(number: int, store: PostgresRegionStore) -> list[int]:
        seen = []
        for step in range(30):
            name = reservation_name(1000 * number + step + 1)
            priority = (LOW, HIGH, LOW)[step % 3]
            outcome = await put(store, reserve(7, name=name, priority=priority))
            if isinstance(outcome, Granted) and priority is LOW:
                held = outcome.holding
                seen.append(held.counter.reserved - held.policy.may_fill(held.slice, LOW))
            if isinstance(outcome, Granted) and step % 2:
                await put(store, Release(name))
        return seen

    seen = await asyncio.gather(*(busy(number, store) for number, store in enumerate(processes)))
    assert max(excess for one in seen for excess in one) <= 0
    assert [] == differences(await processes[0].check_balances())
