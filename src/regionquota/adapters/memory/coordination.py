"""etcd's promises in memory: a revision per write, history that can be compacted, sessions that end by the clock."""

import asyncio
import math
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from regionquota.alert_ports import StoredMark
from regionquota.core.alerts import Mark
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, Leader, Leadership
from regionquota.core.history import History
from regionquota.core.quota import QuotaKey, Region, bucket_of
from regionquota.core.recovery import Statement
from regionquota.errors import EtcdUnavailable
from regionquota.ports import (
    Clock,
    CompactedError,
    Fence,
    Presence,
    RegionRecord,
    Session,
    Stored,
    StoredRegion,
    Suspension,
)
from regionquota.urgency_ports import Cry

LEADER: Final = "leader/coordinator"

T = TypeVar("T")


class MemorySession:
    """Compared by identity, as leases are."""

    def __init__(self, coordination: "MemoryCoordination", ttl_s: int) -> None:
        self._coordination = coordination
        self.ttl_s: Final = ttl_s

    async def keep(self) -> bool:
        return self._coordination.prolong(self)

    async def close(self) -> None:
        self._coordination.end(self)


class _Leased(NamedTuple, Generic[T]):
    session: Session
    value: T


class MemoryCoordination:
    """`AllocationStore`, `Directory` and `MarkStore` over one state.

    No call but `watch` waits, so none needs an event loop.

    A session whose time ran out is gone for whoever looks next.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._revision = 1  # etcd's, too, when it is empty
        self._compacted = 0
        self._allocations: dict[QuotaKey, Stored] = {}
        self._history: list[Stored] = []
        self._regions: dict[Region, StoredRegion] = {}
        self._sessions: dict[Session, float] = {}  # and when each ends
        self._soonest = math.inf  # no session ends before
        self._presences: dict[tuple[Region, str], _Leased[Presence]] = {}
        self._demands: dict[tuple[Region, str], _Leased[Sequence[Demand]]] = {}
        self._suspensions: dict[str, Suspension] = {}
        self._marks: dict[QuotaKey, StoredMark] = {}
        self._coordinators: dict[str, _Leased[str]] = {}
        self._leaders: dict[int, _Leased[Leader]] = {}
        self._waiting: dict[asyncio.Event, None] = {}  # woken in the order in which they came
        self._listeners: list[asyncio.Queue[Cry]] = []
        self.history: tuple[int, History | None] = (0, None)
        self.statements: dict[Region, Statement] = {}

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def documents(self) -> Collection[Stored]:
        """As `list`, but whose time ran out is not noticed by looking."""
        return self._allocations.values()

    @property
    def records(self) -> Mapping[Region, StoredRegion]:
        return self._regions

    def copy(self, clock: Clock) -> "MemoryCoordination":
        """What is done to one is not done to the other. Nobody holds a session of the copy: what hangs on one goes on
        until its time runs out, as after a crash.
        """
        other = MemoryCoordination(clock)
        other._revision, other._compacted = self._revision, self._compacted
        other._allocations, other._history = dict(self._allocations), list(self._history)
        other._regions, other._suspensions = dict(self._regions), dict(self._suspensions)
        other._marks = dict(self._marks)
        other._sessions, other._soonest = dict(self._sessions), self._soonest
        other._presences, other._demands = dict(self._presences), dict(self._demands)
        other._coordinators, other._leaders = dict(self._coordinators), dict(self._leaders)
        other.history, other.statements = self.history, dict(self.statements)
        return other

    def restore(self, snapshot: "MemoryCoordination", *, bump: int = 0) -> None:
        """Become what an earlier copy is: its revisions are used once more, but for the first `bump`."""
        waiting = self._waiting
        self.__dict__.update(snapshot.copy(self._clock).__dict__)
        self._waiting = waiting
        self._revision += bump
        self._wake()

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        stored = self._allocations.get(key)
        return (0, None) if stored is None else (stored.revision, stored.allocation)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        self._end_expired()
        return await self.swap_all(((key, revision, allocation),)) if self._holds(fence) else None

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        self._end_expired()
        for key, revision, _ in changes:
            if revision != self._revision_of(key):
                return None
        written = self._next_revision()
        for key, _, allocation in changes:
            self._allocations[key] = stored = Stored(key, written, allocation)
            self._history.append(stored)
        self._wake()
        return written

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        self._end_expired()
        if not revision or revision != self._revision_of(key):
            return False
        del self._allocations[key]
        self._history.append(Stored(key, self._next_revision(), None))
        self._wake()
        return True

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        self._end_expired()
        return self._revision, tuple(_those_in(buckets, self._allocations.values()))

    async def damaged(self) -> Sequence[str]:
        return ()

    async def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        while True:
            if after + 1 < self._compacted:
                raise CompactedError(f"revision {after + 1} was compacted: the history begins at {self._compacted}")
            first = bisect_right(self._history, after, key=lambda stored: stored.revision)
            if first < len(self._history):
                after = self._history[first].revision
                past = bisect_right(self._history, after, key=lambda stored: stored.revision)
                changed = tuple(_those_in(buckets, self._history[first:past]))
                if changed:
                    yield changed
            else:
                # All there is was seen: what is compacted of it later was not missed.
                after = max(after, self._revision)
                await self._wait_for_change()

    def compact(self, revision: int) -> None:
        """Forget the history before `revision`, as etcd does by age or number of revisions."""
        if not self._compacted < revision <= self._revision:
            raise ValueError(f"revision must be from {self._compacted + 1} to {self._revision}, got {revision}")
        self._compacted = revision
        del self._history[: bisect_left(self._history, revision, key=lambda stored: stored.revision)]

    async def open_session(self, ttl_s: int) -> MemorySession:
        session = MemorySession(self, ttl_s)
        self._sessions[session] = ends = self._clock.now() + ttl_s
        self._soonest = min(self._soonest, ends)
        return session

    async def regions(self) -> Mapping[Region, StoredRegion]:
        return dict(self._regions)

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        self._end_expired()
        known = self._regions.get(record.name)
        if revision != (0 if known is None else known.revision) or not self._holds(fence):
            return None
        if unless_present and any(region == record.name for region, _ in self._presences):
            return None
        self._regions[record.name] = StoredRegion(self._next_revision(), record)
        return self._revision

    async def announce(self, session: Session, presence: Presence) -> None:
        self._require_open(session)
        self._presences[presence.region, presence.instance] = _Leased(session, presence)
        self._next_revision()

    async def present(self) -> Sequence[Presence]:
        self._end_expired()
        return [leased.value for leased in self._presences.values()]

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        self._require_open(session)
        self._demands[region, instance] = _Leased(session, tuple(demand))
        self._next_revision()

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]:
        self._end_expired()
        words = [(region, word) for (region, _), leased in self._demands.items() for word in leased.value]
        if buckets == ALL_BUCKETS:
            return words
        return [(region, word) for region, word in words if bucket_of(word.key.tenant) in buckets]

    async def cry(self, session: Session, cry: Cry) -> None:
        self._require_open(session)
        self._next_revision()
        for listener in self._listeners:
            listener.put_nowait(cry)

    async def cries(self) -> AsyncGenerator[Sequence[Cry], None]:
        queue: asyncio.Queue[Cry] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            while True:
                yield (await queue.get(),)
        finally:
            self._listeners.remove(queue)

    async def stand(self, session: Session, name: str) -> None:
        self._require_open(session)
        self._coordinators[name] = _Leased(session, name)
        self._next_revision()

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        self._end_expired()
        if group not in self._leaders:
            self._require_open(session)
            self._leaders[group] = _Leased(session, Leader(name, self._next_revision()))
        leader = self._leaders[group]
        return _fence(group, leader.value) if leader.session is session else None

    async def resign(self, fence: Fence) -> None:
        self._end_expired()
        if self._holds(fence):
            self._leaders = {at: one for at, one in self._leaders.items() if _fence(at, one.value) != fence}
            self._next_revision()

    async def leadership(self) -> Leadership:
        self._end_expired()
        return Leadership({at: one.value for at, one in self._leaders.items()}, tuple(self._coordinators))

    async def suspend(self, tenant: str, since: float, why: str) -> None:
        self._suspensions[tenant] = Suspension(tenant, since, why)
        self._next_revision()

    async def resume(self, tenant: str) -> bool:
        if self._suspensions.pop(tenant, None) is None:
            return False
        self._next_revision()
        return True

    async def suspensions(self) -> Mapping[str, Suspension]:
        return dict(self._suspensions)

    def begin_history(self, history: History) -> None:
        self.history = self._next_revision(), history

    async def marks(self) -> Mapping[QuotaKey, StoredMark]:
        return dict(self._marks)

    async def swap_mark(self, key: QuotaKey, revision: int, mark: Mark | None, fence: Fence) -> int | None:
        self._end_expired()
        known = self._marks.get(key)
        if revision != (0 if known is None else known.revision) or not self._holds(fence):
            return None
        written = self._next_revision()
        if mark is None:
            self._marks.pop(key, None)
        else:
            self._marks[key] = StoredMark(written, mark)
        return written

    def prolong(self, session: MemorySession) -> bool:
        self._end_expired()
        if session not in self._sessions:
            return False
        self._sessions[session] = self._clock.now() + session.ttl_s
        return True

    def end(self, session: Session) -> None:
        if self._sessions.pop(session, None) is None:
            return
        self._presences = {at: leased for at, leased in self._presences.items() if leased.session is not session}
        self._demands = {at: leased for at, leased in self._demands.items() if leased.session is not session}
        self._coordinators = {at: leased for at, leased in self._coordinators.items() if leased.session is not session}
        self._leaders = {at: leased for at, leased in self._leaders.items() if leased.session is not session}
        self._next_revision()

    def _end_expired(self) -> None:
        now = self._clock.now()
        if now < self._soonest:
            return
        for session in [session for session, ends in self._sessions.items() if ends <= now]:
            self.end(session)
        self._soonest = min(self._sessions.values(), default=math.inf)

    def _require_open(self, session: Session) -> None:
        self._end_expired()
        if session not in self._sessions:
            raise EtcdUnavailable("the session is gone: open another")

    def _holds(self, fence: Fence | None) -> bool:
        return fence is None or fence in [
            _fence(at, one.value) for at, one in self._leaders.items() if one.value.since == fence.create_revision
        ]

    def _revision_of(self, key: QuotaKey) -> int:
        known = self._allocations.get(key)
        return 0 if known is None else known.revision

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    async def _wait_for_change(self) -> None:
        changed = asyncio.Event()
        self._waiting[changed] = None
        try:
            await changed.wait()
        finally:
            del self._waiting[changed]


def _fence(group: int, leader: Leader) -> Fence:
    return Fence(f"{LEADER}/{group}" if group else LEADER, leader.since)


def _those_in(buckets: range, documents: Iterable[Stored]) -> Iterable[Stored]:
    if buckets == ALL_BUCKETS:
        return documents
    return (stored for stored in documents if bucket_of(stored.key.tenant) in buckets)
