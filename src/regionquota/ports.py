"""What the outside must offer. Adapters implement these; the region's and the coordinator's work awaits only these.

Each port has one contract suite (tests/contract) that runs against memory and against the real thing.
"""

from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from regionquota.core.allocation import Allocation
from regionquota.core.commands import Command, Outcome
from regionquota.core.counter import Counter
from regionquota.core.demand import Demand
from regionquota.core.eviction import Eviction
from regionquota.core.groups import ALL_BUCKETS, Leadership
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A document as etcd holds it. `allocation` None: deleted at that revision."""

    key: QuotaKey
    revision: int
    allocation: Allocation | None


@dataclass(frozen=True, slots=True)
class Fence:
    """A coordinator's proof of leadership: its writes fail once `key` is not the one created at this revision."""

    key: str
    create_revision: int


class CompactedError(Exception):
    """The revision asked for is no longer in etcd's history: list again, then watch from there."""


class AllocationStore(Protocol):
    """The allocation documents. Every call may raise `EtcdUnavailable`; a `swap` may then have happened."""

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        """Linearizable. The revision is the document's mod_revision, 0 where there is none."""
        ...

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        """Write if the document is still at `revision` (0: does not exist) and `fence` holds.

        Returns the new revision, or None: something was changed by somebody else, nothing by this call.
        """
        ...

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        """As `swap`, of several documents at once: all or none."""
        ...

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        """Delete the document if it is still at `revision`. May raise `EtcdUnavailable` and yet have happened."""
        ...

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        """Linearizable. All documents in `buckets`, and the revision of etcd at which they were read.

        Passes over a document that cannot be read, as `watch` does: see `damaged`.
        """
        ...

    async def damaged(self) -> Sequence[str]:
        """What `list` passes over: each with its key and why it is no allocation that adds up (invariant A)."""
        ...

    def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        """Changes in `buckets` after revision `after`, in order, one item per etcd revision at least.

        To be closed (`aclosing`). Ends only by `CompactedError` or `EtcdUnavailable`; never reconnects by itself, so
        nothing is missed but what cannot be read.
        """
        ...


class RegionStatus(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    EVICTED = "evicted"


class FrozenBy(StrEnum):
    LIVENESS = "liveness"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Frozen:
    """`since` in seconds since 1970. What liveness froze thaws by itself, what an operator froze an operator thaws."""

    by: FrozenBy
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """What operators and coordinators have said of a region. `weight` 0 .. 10^7: its part of what nobody needs.

    `eviction` is the last there was, also after the region was readmitted.
    """

    name: Region
    weight: int = 100
    status: RegionStatus = RegionStatus.ACTIVE
    frozen: Frozen | None = None
    eviction: Eviction | None = None

    @property
    def is_evicted(self) -> bool:
        return self.status is RegionStatus.EVICTED

    @property
    def evictions(self) -> int:
        """How many there have been."""
        return 0 if self.eviction is None else self.eviction.number


@dataclass(frozen=True, slots=True)
class StoredRegion:
    revision: int
    record: RegionRecord


@dataclass(frozen=True, slots=True)
class Presence:
    """One region server's sign of life, under its lease. `synchronised` is the etcd revision of its last full list."""

    region: Region
    instance: str
    url: str
    synchronised: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """An operator's word that a tenant reserves nothing for now. `since` in seconds since 1970."""

    tenant: str
    since: float
    why: str


class Session(Protocol):
    """A lease. It ends when it is not kept: etcd then deletes what hangs on it."""

    async def keep(self) -> bool:
        """Prolong. False: it is gone for good; open another. Raises `EtcdUnavailable`: not known."""
        ...

    async def close(self) -> None:
        """Give it up at once; best effort, never raises `EtcdUnavailable`."""
        ...


class Directory(Protocol):
    """Regions, signs of life, demand and leadership, in etcd. Every call may raise `EtcdUnavailable`."""

    async def open_session(self, ttl_s: int) -> Session: ...

    async def regions(self) -> Mapping[Region, StoredRegion]: ...

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        """As `AllocationStore.swap`; with `unless_present` None also where that region shows a sign of life."""
        ...

    async def announce(self, session: Session, presence: Presence) -> None:
        """`EtcdUnavailable` also for a session that is gone; so for `report`, `stand` and `lead`."""
        ...

    async def present(self) -> Sequence[Presence]: ...

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        """Replace this instance's last report."""
        ...

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]: ...

    async def stand(self, session: Session, name: str) -> None:
        """Be among the coordinators that groups are shared out to, as long as the session lasts."""
        ...

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        """Become the leader if there is none. None: somebody else is. Repeating it while leading returns the fence."""
        ...

    async def resign(self, fence: Fence) -> None:
        """Give a group up, so that another may lead it at once. Nothing happens if the fence does not hold."""
        ...

    async def leadership(self) -> Leadership:
        """Linearizable."""
        ...

    async def suspend(self, tenant: str, since: float, why: str) -> None:
        """From now on the tenant reserves nothing anywhere. A later word replaces an earlier one."""
        ...

    async def resume(self, tenant: str) -> bool:
        """Take a suspension back. False: there is none."""
        ...

    async def suspensions(self) -> Mapping[str, Suspension]:
        """Linearizable. By tenant; what cannot be read suspends its tenant all the same."""
        ...


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """One row of the slice ledger. `id` ascends in the order of commit; `moves` were outgoing when it was written."""

    id: int
    at: float
    key: QuotaKey
    revision: int
    before: int
    after: int
    moves: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class BalanceCheck:
    """What a counter says and what its ledgers add up to; both exact, read in one snapshot."""

    key: QuotaKey
    epoch: Epoch
    counter: Counter
    replayed: Mapping[str, int]
    guaranteed: int = 0

    def differences(self) -> Sequence[tuple[str, int, int]]:
        """Balances that are not what they should be: name, what it is, what it should be."""
        found = {
            name: self.guaranteed if name == "guaranteed" else getattr(self.counter, name) for name in self.replayed
        }
        return [(name, says, self.replayed[name]) for name, says in found.items() if says != self.replayed[name]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work of unknown outcome: how much, and since when (seconds since 1970) the oldest is; None: there is none."""

    count: int
    oldest: float | None


@dataclass(frozen=True, slots=True)
class Expired:
    """What one pass over overdue holds has done. `units` were given back; the oldest was `lag_s` seconds late."""

    holds: int
    units: Mapping[QuotaKey, int]
    lag_s: float


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a region's database server. `is_trusted`: its slices were compared with etcd since it began."""

    name: str
    is_trusted: bool


@dataclass(frozen=True, slots=True)
class Resharded:
    """A counter that was laid out anew over `shards` rows, `before` over so many."""

    key: QuotaKey
    before: int
    shards: int


@dataclass(frozen=True, slots=True)
class Resharding:
    """`spread` are all the counters in several shards that this process works on, whole."""

    done: Sequence[Resharded] = ()
    spread: Sequence[Holding] = ()


class RegionStore(Protocol):
    """A region's database. Every call may raise `StoreUnavailable`.

    Any number of processes may use one at a time. What a call writes is durable when it returns.
    """

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        """Decide a batch in one transaction. May raise `OutcomeUnknown`: repeat it, for every command re-reads
        its own id first and answers what became of it.
        """
        ...

    async def apply(
        self, key: QuotaKey, allocation: Allocation, revision: int, now: float, *, within: str | None = None
    ) -> Holding | None:
        """`core.slice.apply` in one transaction, with a row in the slice ledger if the slice changed.

        `core.slice.apply_strictly` in an incarnation that is not trusted. `within` names one that is being compared
        with etcd: raises `StoreUnavailable` where the server is in another by now.
        """
        ...

    async def incarnation(self) -> Incarnation:
        """Of the server as it is found now. In one that is not trusted `transact` raises `NotTrusted` for reserves."""
        ...

    async def trust(self, name: str) -> bool:
        """Let the slices in this incarnation be spent. False: it, or the standing of this process, is over by now."""
        ...

    async def holding(self, key: QuotaKey) -> Holding | None: ...

    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]: ...

    async def holdings_after(self, key: QuotaKey | None, most: int) -> Sequence[Holding]:
        """The next `most` in the order of their keys; None: from the beginning. For whoever looks through all."""
        ...

    async def holdings_of(self, keys: Sequence[QuotaKey]) -> Sequence[Holding]:
        """Those of `keys` that are held here, in no order."""
        ...

    async def reservation(self, reservation_id: str) -> Reservation | None: ...

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None: ...

    async def expire(self, now: float, most: int) -> Expired:
        """End up to `most` holds whose time ran out, oldest first; started work becomes UNKNOWN.

        Passes over what others are working on: several may do this at once, and each hold ends once.
        """
        ...

    async def overdue(self, now: float) -> float | None:
        """When the hold that is longest overdue should have ended; None if none is overdue."""
        ...

    async def unknown(
        self, most: int, *, tenant: str | None = None, after: Reservation | None = None
    ) -> Sequence[Reservation]:
        """Started work of unknown outcome, oldest deadline first; what comes behind `after`, if that is given."""
        ...

    async def unknown_backlog(self) -> Backlog: ...

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        """Rows of the slice ledger with an id above `after`, ascending."""
        ...

    async def rebalance_shards(self, now: float) -> Resharding:
        """Spread the counters that several processes write to at once, even out what is spread, undo it in calm.

        To be called every second or so by each process. Nothing but speed depends on it.
        """
        ...

    async def check_balances(self) -> Sequence[BalanceCheck]:
        """Every counter against what the usage ledger, the open holds and the slice ledger add up to."""
        ...


class SuspensionStore(Protocol):
    """What a region's database remembers of suspensions. Every call may raise `StoreUnavailable`."""

    async def recall(self) -> Mapping[str, Suspension]: ...

    async def remember(self, suspensions: Mapping[str, Suspension]) -> None:
        """These and no others. Writes nothing where that is what it remembers already."""
        ...
