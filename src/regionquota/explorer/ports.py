"""The ports as processes of the explorer see them: each call waits for its turn, and may go wrong on the way.

A call yields what it is; what is sent back is the fault that befalls it, or None. Nothing else makes a process wait.
"""

import types
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Generator,
    Mapping,
    MutableSequence,
    Sequence,
)
from collections.abc import (
    Set as AbstractSet,
)
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, Leadership
from regionquota.core.history import Seen
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import EtcdUnavailable, Unavailable, WentBackwards
from regionquota.explorer.faults import Deed, Fault
from regionquota.ports import (
    AllocationStore,
    Fence,
    Presence,
    RegionRecord,
    Session,
    Stored,
    StoredRegion,
    Suspension,
)

T = TypeVar("T")


class Call(NamedTuple):
    """What a process waits for, and which faults can befall it."""

    name: str
    faults: tuple[Fault, ...]


READ: Final = (Fault.CRASH, Fault.LOST_REQUEST)
_OLD: Final = (Fault.CRASH, Fault.LOST_REQUEST, Fault.STALE_READ, Fault.STALE_READ)
WRITE: Final = (Fault.CRASH, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.DELAY)

Work: TypeAlias = Coroutine[Call | None, Fault | None, object]
Message: TypeAlias = Callable[[], Coroutine[Any, Any, object]]


class Surroundings(Protocol):
    """What the ports need to know of the world that they are in."""

    def count(self, fault: Fault) -> None: ...

    def did(self, deed: Deed) -> None: ...

    def is_cut_off(self, region: Region) -> bool: ...

    def post(self, name: str, message: Message, store_of: Region | None = None) -> None:
        """To be delivered later, or never. `store_of`: to that region's database."""
        ...

    def before(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        """What the document was a while ago."""
        ...

    def list_before(self) -> tuple[int, Sequence[Stored]]: ...

    def wrote(self, region: Region, now: float) -> None:
        """The region's database was written to, by somebody whose clock said `now`."""
        ...

    def broke(self, error: Exception) -> None:
        """A rule that the product itself asserts."""
        ...

    def led(self, fence: Fence) -> None: ...

    def listed(self, region: Region, revision: int) -> None:
        """A process of the region has read all documents as they were at that revision."""
        ...

    def thawed(self, region: Region, frozen_at: int) -> None:
        """A coordinator has found that the region, frozen at that revision, has caught up."""
        ...

    def writes_as_leader(self, fence: Fence) -> None: ...

    def wrote_as_leader(self, what: QuotaKey | Region, fence: Fence | None, named: AbstractSet[Region]) -> None:
        """`named` are regions that the document moves from or to, or gives more, though they were read as frozen."""
        ...


@types.coroutine
def turn(call: Call) -> Generator[Call, Fault | None, Fault | None]:
    return (yield call)


class _GatedSession:
    def __init__(self, port: "EtcdPort", session: Session) -> None:
        self.session = session
        self._port = port

    async def keep(self) -> bool:
        return await self._port.send(_KEEP, self.session.keep)

    async def close(self) -> None:
        await self.session.close()


_KEEP = Call("keep the lease", WRITE)
_READ_ONE = Call("read the document", _OLD)
_READ_NOW = Call("read the document", READ)
_LIST = Call("list the documents", _OLD)
_LIST_NOW = Call("list the documents", READ)
_SWAP = Call("swap the document", WRITE)
_REMOVE = Call("remove the document", WRITE)
_OPEN = Call("open a session", (Fault.CRASH, Fault.LOST_REQUEST, Fault.LOST_REPLY))
_REGIONS = Call("read the regions", READ)
_SWAP_REGION = Call("swap a region's record", WRITE)
_ANNOUNCE = Call("announce", WRITE)
_PRESENT = Call("read the signs of life", READ)
_REPORT = Call("report demand", WRITE)
_DEMAND = Call("read the demand", READ)
_LEAD = Call("lead", (Fault.CRASH, Fault.LOST_REQUEST, Fault.LOST_REPLY))


class EtcdPort:
    """`AllocationStore` and `Directory` of one process. `region` None: it stands beside etcd and is never cut off.

    `documents` stands between it and the allocations, if given. `seen`: once etcd went backwards behind that, nothing
    is asked of it. `fenced` False drops the leadership's fence from every write. `lagging` False: it reads as the port
    promises, what is; most of the protocol has no need of that.
    """

    def __init__(
        self,
        world: Surroundings,
        etcd: MemoryCoordination,
        region: Region | None = None,
        *,
        documents: AllocationStore | None = None,
        seen: Seen | None = None,
        fenced: bool = True,
        lagging: bool = True,
    ) -> None:
        self._world = world
        self._etcd = etcd
        self._documents: AllocationStore = etcd if documents is None else documents
        self._seen = seen
        self._region = region
        self._fenced = fenced
        self._lists, self._reads = (_LIST, _READ_ONE) if lagging else (_LIST_NOW, _READ_NOW)
        self._frozen: frozenset[Region] = frozenset()
        self.sessions: MutableSequence[Session] = []
        """Those that it has opened."""

    async def send(self, call: Call, method: Callable[..., Awaitable[T]], *args: Any) -> T:
        fault = await turn(call)
        if self._region is not None and self._world.is_cut_off(self._region):
            raise EtcdUnavailable("cut off")
        if fault is None:
            return await method(*args)
        self._world.count(fault)
        if fault is Fault.LOST_REPLY:
            await method(*args)
        elif fault is Fault.DELAY:
            self._world.post(call.name, lambda: ignored(method(*args)))
        raise EtcdUnavailable(fault)

    def _require_forward(self) -> None:
        if self._seen is not None and self._seen.broken is not None:
            raise WentBackwards(self._seen.broken)

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        fault = await self._read(self._reads)
        return self._world.before(key) if fault is Fault.STALE_READ else await self._documents.read(key)

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        assert buckets == ALL_BUCKETS  # nobody here leads less
        fault = await self._read(self._lists)
        listed = self._world.list_before() if fault is Fault.STALE_READ else await self._documents.list()
        if self._region is not None:
            self._world.listed(self._region, listed[0])
        return listed

    async def _read(self, call: Call) -> Fault | None:
        fault = await turn(call)
        if self._region is not None and self._world.is_cut_off(self._region):
            raise EtcdUnavailable("cut off")
        if fault is not None:
            self._world.count(fault)
        if fault is Fault.LOST_REQUEST:
            raise EtcdUnavailable(fault)
        return fault

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        if fence is None:
            return await self.send(_SWAP, self._documents.swap, key, revision, allocation)
        self._world.writes_as_leader(fence)
        if not self._fenced:
            self._world.count(Fault.UNFENCED)
        named = {region for move in allocation.moves for region in (move.source, move.target) if region in self._frozen}
        return await self.send(_SWAP, self._lead_swap, key, revision, allocation, fence, named, self._frozen)

    async def _lead_swap(
        self,
        key: QuotaKey,
        revision: int,
        allocation: Allocation,
        fence: Fence,
        named: AbstractSet[Region],
        frozen: AbstractSet[Region],
    ) -> int | None:
        _, before = await self._etcd.read(key)
        written = await self._documents.swap(key, revision, allocation, fence if self._fenced else None)
        if written is not None:
            grown = {one for one in frozen if before is not None and allocation.slice_of(one) > before.slice_of(one)}
            self._world.wrote_as_leader(key, fence if self._fenced else None, named | grown)
        return written

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        return await self.send(_SWAP, self._documents.swap_all, changes)

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        return await self.send(_REMOVE, self._documents.remove, key, revision)

    async def damaged(self) -> Sequence[str]:
        return await self._etcd.damaged()

    def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        """Nobody here waits for one: what a watch brings, and how late, is chosen."""
        return self._etcd.watch(after, buckets)

    async def open_session(self, ttl_s: int) -> Session:
        session = await self.send(_OPEN, self._etcd.open_session, ttl_s)
        self.sessions.append(session)
        return _GatedSession(self, session)

    async def regions(self) -> Mapping[Region, StoredRegion]:
        await self._read(_REGIONS)
        self._require_forward()
        regions = await self._etcd.regions()
        self._frozen = frozenset(name for name, stored in regions.items() if stored.record.frozen is not None)
        return regions

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        self._require_forward()
        if fence is not None:
            self._world.writes_as_leader(fence)
        written = await self.send(_SWAP_REGION, self._swap_region, record, revision, fence, unless_present)
        if written is not None:
            self._frozen = self._frozen - {record.name} if record.frozen is None else self._frozen | {record.name}
        return written

    async def _swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None, unless_present: bool
    ) -> int | None:
        written = await self._etcd.swap_region(record, revision, fence, unless_present=unless_present)
        if written is not None and fence is not None:
            self._world.wrote_as_leader(record.name, fence, frozenset())
            if record.frozen is None:
                self._world.thawed(record.name, revision)
        return written

    async def announce(self, session: Session, presence: Presence) -> None:
        await self.send(_ANNOUNCE, self._etcd.announce, _plain(session), presence)

    async def present(self) -> Sequence[Presence]:
        await self._read(_PRESENT)
        return await self._etcd.present()

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        await self.send(_REPORT, self._etcd.report, _plain(session), region, instance, demand)

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]:
        await self._read(_DEMAND)
        return await self._etcd.demand(buckets)

    async def stand(self, session: Session, name: str) -> None:
        await self._etcd.stand(_plain(session), name)

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        assert group == 0
        return await self.send(_LEAD, self._lead, _plain(session), name)

    async def _lead(self, session: Session, name: str) -> Fence | None:
        fence = await self._etcd.lead(session, name)
        if fence is not None:
            self._world.led(fence)
        return fence

    async def resign(self, fence: Fence) -> None:
        await self._etcd.resign(fence)

    async def leadership(self) -> Leadership:
        return await self._etcd.leadership()

    async def suspend(self, tenant: str, since: float, why: str) -> None:
        await self._etcd.suspend(tenant, since, why)

    async def resume(self, tenant: str) -> bool:
        return await self._etcd.resume(tenant)

    async def suspensions(self) -> Mapping[str, Suspension]:
        return await self._etcd.suspensions()


def _plain(session: Session) -> Session:
    return session.session if isinstance(session, _GatedSession) else session


async def ignored(message: Awaitable[object]) -> None:
    """Nobody waits any more for what it answers."""
    try:
        await message
    except Unavailable:
        return
