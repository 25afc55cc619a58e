"""The sweeper, in memory and on a real Postgres."""

import asyncio
from collections import Counter as Tally
from typing import Any

from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve
from tests.region.explorer import Clock

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Commit, Extend
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State
from regionquota.ports import RegionStore
from regionquota.region.sweeper import sweep, sweep_all

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


def ignore(_key: QuotaKey, _units: int) -> None:
    pass


async def test_nothing_is_swept_before_its_time(store: RegionStore) -> None:
    await holds(store, 3)
    assert (0, 0.0) == await sweep(store, Clock(NOON + 9), 100, ignore)
    assert 994 == await available(store)


async def test_what_expired_is_returned_and_told(store: RegionStore) -> None:
    await holds(store, 3)
    freed: Tally[QuotaKey] = Tally()

    def tell(key: QuotaKey, units: int) -> None:
        freed[key] += units

    await sweep(store, Clock(NOON + 11), 100, tell)
    assert {QUOTA: 4} == freed
    assert 998 == await available(store)


async def test_the_lag_is_that_of_the_oldest(store: RegionStore) -> None:
    await holds(store, 3)
    ended, lag = await sweep(store, Clock(NOON + 30), 100, ignore)
    assert (3, 20.0) == (ended, lag)


async def test_one_sweep_takes_no_more_than_its_batch(store: RegionStore) -> None:
    await holds(store, 7)
    assert 3 == (await sweep(store, Clock(NOON + 30), 3, ignore))[0]
    assert 992 == await available(store)


async def test_sweeping_all_takes_as_many_batches_as_it_needs(store: RegionStore) -> None:
    await holds(store, 7)
    assert (7, 20.0) == await sweep_all(store, Clock(NOON + 30), 3, ignore)
    assert 1000 == await available(store)


async def test_holds_that_nobody_came_back_for_are_free_after_their_time(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    for n in range(0, 1000, 100):
        await store.transact([reserve(1, name=reservation_name(n + m), ttl=60) for m in range(100)], NOON)
    assert 0 == await available(store)
    await sweep_all(store, Clock(NOON + 60), 300, ignore)
    assert 1000 == await available(store)
    assert [] == differences(await store.check_balances())


class Overtaken:
    """A store on which somebody else is faster, between the sweeper's look and its word."""

    def __init__(self, store: RegionStore, *faster: Any) -> None:
        self._store = store
        self._faster = faster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def transact(self, batch: Any, now: float) -> Any:
        await self._store.transact(self._faster, now)
        return await self._store.transact(batch, now)


async def test_an_extension_in_between_wins(store: RegionStore) -> None:
    one, two, _ = await holds(store, 3)
    overtaken: Any = Overtaken(store, Extend(one, 60))
    assert 1 == (await sweep(overtaken, Clock(NOON + 11), 100, ignore))[0]
    states = [found.state for found in [await store.reservation(one), await store.reservation(two)] if found]
    assert [State.PENDING, State.EXPIRED] == states


async def test_a_commit_in_between_wins_and_nothing_is_told_of_it(store: RegionStore) -> None:
    one, *_ = await holds(store, 1)
    told: list[QuotaKey] = []
    overtaken: Any = Overtaken(store, Commit(one))
    assert 0 == (await sweep(overtaken, Clock(NOON + 60), 100, lambda key, _: told.append(key)))[0]
    assert [] == told
    assert 998 == await available(store)


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
