"""`HistoryStore` in memory, and allocations for a process that is bound to a history."""

from collections.abc import AsyncGenerator, Sequence

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import Allocation
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.history import EVICTED, Bond, History, Sight, why_ended
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.recovery import Statement
from regionquota.errors import EtcdUnavailable, HistoryEnded, WentBackwards
from regionquota.ports import Fence, RegionRecord, Stored


class MemoryHistoryStore:
    def __init__(self, coordination: MemoryCoordination) -> None:
        self._etcd = coordination

    async def read(self) -> tuple[int, History | None]:
        return self._etcd.history

    async def swap(self, history: History, revision: int) -> bool:
        if self._etcd.history[0] != revision:
            return False
        self._etcd.begin_history(history)
        return True

    async def record(self, region: Region) -> RegionRecord | None:
        stored = (await self._etcd.regions()).get(region)
        return None if stored is None else stored.record

    async def state(self, statement: Statement) -> None:
        self._etcd.statements[statement.region] = statement

    async def statements(self) -> Sequence[Statement]:
        return list(self._etcd.statements.values())

    async def forget_statements(self) -> None:
        self._etcd.statements.clear()


class BoundAllocations:
    """`AllocationStore` in the history of `bond`, or in the one that is being recovered."""

    def __init__(self, coordination: MemoryCoordination, bond: Bond, recovering: History | None = None) -> None:
        self._etcd = coordination
        self._bond = bond
        self._recovering = recovering

    def _check_write(self) -> None:
        self._check()
        if self._bond.is_evicted:
            raise EtcdUnavailable(EVICTED)

    def _check(self) -> None:
        """In the same step as what it stands before."""
        seen = self._bond.seen
        seen.note(seen.sight, Sight(seen.sight.cluster, self._etcd.revision))
        if seen.broken is not None:
            raise WentBackwards(f"etcd went backwards ({seen.broken})")
        wanted = self._recovering
        if wanted is None:
            if self._bond.standing is None:
                raise EtcdUnavailable("this process has not learnt yet which history of etcd it works in")
            wanted = History(self._bond.standing.history)
        if self._etcd.history[1] != wanted:
            raise HistoryEnded(why_ended(self._etcd.history[1]))

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        self._check()
        return await self._etcd.read(key)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        self._check_write()
        return await self._etcd.swap(key, revision, allocation, fence)

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        self._check_write()
        return await self._etcd.swap_all(changes)

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        self._check_write()
        return await self._etcd.remove(key, revision)

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        self._check()
        return await self._etcd.list(buckets)

    async def damaged(self) -> Sequence[str]:
        return await self._etcd.damaged()

    def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        return self._etcd.watch(after, buckets)
