"""The sweeper, in memory and on a real Postgres."""

import asyncio
from collections import Counter as Tally

import pytest
from tests.clocks import Clock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Commit, Extend, Release, Start
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State
from regionquota.ports import RegionStore
from regionquota.region import sweeper
from regionquota.region.sweeper import SweepOnDemand, sweep_all

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store


async def holds(store: RegionStore, count: int, ttl: int = 10) -> list[str]:
    await store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    names = [reservation_name(n + 1) for n in range(count)]
    await store.transact([reserve(2, name=name, ttl=ttl + n) for n, name in enumerate(names)], NOON)
    return names


async def available(store: RegionStore) -> int:
    held = await store.holding(QUOTA)
    assert held is not None
    return held.counter.available


async def state(store: RegionStore, name: str) -> State:
    found = await store.reservation(name)
    assert found is not None
    return found.state


def ignore(_key: QuotaKey, _units: int) -> None:
    pass


async def test_nothing_is_swept_before_its_time(store: RegionStore) -> None:
    await holds(store, 3)
    assert (0, 0.0) == await sweep_all(store, Clock(NOON + 9), 100, ignore)
    assert 994 == await available(store)


async def test_what_expired_is_returned_and_told(store: RegionStore) -> None:
    await holds(store, 3)
    freed: Tally[QuotaKey] = Tally()

    def tell(key: QuotaKey, units: int) -> None:
        freed[key] += units

    await sweep_all(store, Clock(NOON + 11), 100, tell)
    assert {QUOTA: 4} == freed
    assert 998 == await available(store)


async def test_the_lag_is_that_of_the_oldest(store: RegionStore) -> None:
    await holds(store, 3)
    assert (3, 20.0) == await sweep_all(store, Clock(NOON + 30), 100, ignore)


async def test_a_sweep_takes_as_many_batches_as_it_needs(store: RegionStore) -> None:
    await holds(store, 7)
    assert (7, 20.0) == await sweep_all(store, Clock(NOON + 30), 3, ignore)
    assert 1000 == await available(store)


async def test_a_sweep_with_a_bound_ends_after_the_batch_that_reaches_it(store: RegionStore) -> None:
    await holds(store, 9)
    assert 6 == (await sweep_all(store, Clock(NOON + 30), 3, ignore, most=5))[0]
    assert 994 == await available(store)


async def test_holds_that_nobody_came_back_for_are_free_after_their_time(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    for n in range(0, 1000, 100):
        await store.transact([reserve(1, name=reservation_name(n + m), ttl=60) for m in range(100)], NOON)
    assert 0 == await available(store)
    await sweep_all(store, Clock(NOON + 60), 300, ignore)
    assert 1000 == await available(store)
    assert [] == differences(await store.check_balances())


async def test_started_work_keeps_its_capacity_and_nothing_is_told_of_it(store: RegionStore) -> None:
    one, two = await holds(store, 2)
    await store.transact([Start(one, "operation")], NOON)
    freed: Tally[QuotaKey] = Tally()
    assert 2 == (await sweep_all(store, Clock(NOON + 30), 100, lambda key, units: freed.update({key: units})))[0]
    assert {QUOTA: 2} == freed
    assert (State.UNKNOWN, State.EXPIRED, 998) == (
        await state(store, one),
        await state(store, two),
        await available(store),
    )


async def test_what_was_extended_or_ended_meanwhile_is_left_alone(store: RegionStore) -> None:
    one, two, three, four = await holds(store, 4)
    await store.transact([Extend(one, 60), Commit(two), Release(three)], NOON + 9)
    assert 1 == (await sweep_all(store, Clock(NOON + 30), 100, ignore))[0]
    states = [await state(store, name) for name in (one, two, three, four)]
    assert [State.PENDING, State.COMMITTED, State.RELEASED, State.EXPIRED] == states


async def test_several_sweepers_at_once_end_each_hold_once(open_store: fixtures.OpenStore) -> None:
    stores: list[PostgresRegionStore] = [await open_store() for _ in range(3)]
    await holds(stores[0], 120, ttl=1)
    freed: Tally[QuotaKey] = Tally()

    def tell(key: QuotaKey, units: int) -> None:
        freed[key] += units

    clock = Clock(NOON + 1000)
    await asyncio.gather(*(sweep_all(stores[n % 3], clock, 25, tell) for n in range(9)))
    while (await sweep_all(stores[0], clock, 25, tell))[0]:
        pass
    assert {QUOTA: 240} == freed
    assert 1000 == await available(stores[0])
    assert [] == differences(await stores[0].check_balances())


def on_demand(store: RegionStore, clock: Clock, batch: int = 100) -> SweepOnDemand:
    return SweepOnDemand(store, clock, batch, ignore)


async def test_who_needs_it_has_overdue_holds_ended_without_a_sweeper(store: RegionStore) -> None:
    await holds(store, 3)
    assert await on_demand(store, Clock(NOON + 30)).sweep()
    assert 1000 == await available(store)


async def test_where_nothing_is_overdue_nothing_is_given_back(store: RegionStore) -> None:
    await holds(store, 3)
    assert not await on_demand(store, Clock(NOON + 9)).sweep()
    assert 994 == await available(store)


async def test_those_who_need_it_at_once_share_one_sweep(store: RegionStore) -> None:
    await holds(store, 3)
    overdue = on_demand(store, Clock(NOON + 30))
    assert [True] * 20 == await asyncio.gather(*(overdue.sweep() for _ in range(20)))


async def test_nobody_looks_again_at_once(store: RegionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await holds(store, 3)
    clock = Clock(NOON + 9)
    overdue = on_demand(store, clock)
    monkeypatch.setattr(sweeper, "LOOK_AGAIN_AFTER_S", 3600.0)
    await overdue.sweep()
    clock.time = NOON + 30
    assert not await overdue.sweep()
    assert 994 == await available(store)


async def test_who_goes_away_does_not_stop_the_sweep_for_the_others(store: RegionStore) -> None:
    await holds(store, 3)
    overdue = on_demand(store, Clock(NOON + 30))
    impatient, patient = asyncio.create_task(overdue.sweep()), asyncio.create_task(overdue.sweep())
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient
    assert 1000 == await available(store)
