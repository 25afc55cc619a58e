"""What binds a process to a history of etcd, and the ports of those who work on histories, call by call.

Only runs that lose etcd have it: there each server and coordinator has a bond, and looks after it as in production.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import BoundAllocations, MemoryHistoryStore
from regionquota.core.allocation import Allocation
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.history import Bond, History
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.recovery import Statement
from regionquota.errors import HistoryEnded
from regionquota.explorer.ports import READ, WRITE, Call, EtcdPort
from regionquota.ports import AllocationStore, Fence, RegionRecord, Stored

FIRST: Final = History("first")
"""The history that every run begins in."""
_READ_HISTORY = Call("read etcd's history", READ)
_SWAP_HISTORY = Call("write etcd's history", WRITE)
_RECORD = Call("read the region's record", READ)
_STATE = Call("state what is held", WRITE)
_STATEMENTS = Call("read the statements", READ)
_FORGET = Call("forget the statements", WRITE)


class HistoryPort:
    """`HistoryStore` of one process; it answers also where etcd went backwards. `etcd` says whether it is cut off."""

    def __init__(self, etcd: EtcdPort, coordination: MemoryCoordination) -> None:
        self._etcd = etcd
        self._store = MemoryHistoryStore(coordination)

    async def read(self) -> tuple[int, History | None]:
        return await self._etcd.send(_READ_HISTORY, self._store.read)

    async def swap(self, history: History, revision: int) -> bool:
        return await self._etcd.send(_SWAP_HISTORY, self._store.swap, history, revision)

    async def record(self, region: Region) -> RegionRecord | None:
        return await self._etcd.send(_RECORD, self._store.record, region)

    async def state(self, statement: Statement) -> None:
        await self._etcd.send(_STATE, self._store.state, statement)

    async def statements(self) -> Sequence[Statement]:
        return await self._etcd.send(_STATEMENTS, self._store.statements)

    async def forget_statements(self) -> None:
        await self._etcd.send(_FORGET, self._store.forget_statements)


class CommandAllocations:
    """`AllocationStore` for one command of an operator: what it reads first settles which history it writes in."""

    def __init__(self, coordination: MemoryCoordination) -> None:
        self._etcd = coordination
        self._met: History | None = None

    def _meet(self) -> None:
        found = self._etcd.history[1]
        self._met = self._met or (None if found is None else History(found.name))

    def _require(self) -> None:
        if self._etcd.history[1] != self._met:
            raise HistoryEnded(f"the history is {self._etcd.history[1]}, not {self._met}")

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        self._meet()
        return await self._etcd.read(key)

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        self._meet()
        return await self._etcd.list(buckets)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        self._require()
        return await self._etcd.swap(key, revision, allocation, fence)

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        self._require()
        return await self._etcd.swap_all(changes)

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        self._require()
        return await self._etcd.remove(key, revision)

    async def damaged(self) -> Sequence[str]:
        return await self._etcd.damaged()

    def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        return self._etcd.watch(after, buckets)


def bound(coordination: MemoryCoordination, bond: Bond) -> AllocationStore:
    return BoundAllocations(coordination, bond)


def in_recovery(coordination: MemoryCoordination, history: History) -> AllocationStore:
    """For the recovery itself."""
    return BoundAllocations(coordination, Bond(), history)
