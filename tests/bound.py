"""A region's process in memory, bound to a history of etcd."""

from typing import Any, cast

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import BoundAllocations, MemoryHistoryStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation
from regionquota.core.history import Bond
from regionquota.core.quota import QuotaKey
from regionquota.core.slice import Holding
from regionquota.ports import Clock, RegionStore
from regionquota.region.follower import Follower
from regionquota.region.history_watch import HistoryWatch
from regionquota.region.trust import Trust


class BoundStore:
    """One process's view of the database: what a bond decides is decided as in Postgres, all else is the store's."""

    def __init__(self, store: MemoryRegionStore, bond: Bond) -> None:
        self._store = store
        self._bond = bond

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(
        self, key: QuotaKey, allocation: Allocation, revision: int, now: float, *, within: str | None = None
    ) -> Holding | None:
        self._store.require_standing(self._bond, key, allocation, revision)
        return await self._store.apply(key, allocation, revision, now, within=within, is_evicted=self._bond.is_evicted)

    async def trust(self, name: str) -> bool:
        return self._bond.standing == self._store.stands and await self._store.trust(name)


def bound_store(store: MemoryRegionStore, bond: Bond) -> RegionStore:
    return cast(RegionStore, BoundStore(store, bond))


class Process:
    """One life of one server of a region. `ended`: it has to start anew."""

    def __init__(self, etcd: MemoryCoordination, store: MemoryRegionStore, clock: Clock) -> None:
        me = store.region
        self.bond = Bond()
        self.ended = False
        self.store = bound_store(store, self.bond)
        self.allocations = BoundAllocations(etcd, self.bond)
        histories = MemoryHistoryStore(etcd)
        self.watch = HistoryWatch(me, "one", histories, store, self.store, self.bond, clock, self.end)
        self.follower = Follower(
            me, self.allocations, self.store, clock, relist_interval_s=60.0, on_backwards=self.bond.seen.contradict
        )
        self.trust = Trust(me, self.allocations, self.store, clock)

    def end(self) -> None:
        self.ended = True
