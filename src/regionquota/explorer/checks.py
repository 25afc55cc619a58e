"""What must hold after every step. Only what a step may have changed is looked at again."""

from collections.abc import Mapping, Sequence
from typing import Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, VersionedLimit
from regionquota.core.commands import Granted, Outcome, Reserve
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry, EntryKind
from regionquota.core.periods import Epoch
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.reservation import HOLDING, Reservation, State
from regionquota.core.slice import Holding
from regionquota.explorer.book import Effect, once
from regionquota.explorer.drive import finish
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.ports import StoredRegion

_MAY_BECOME: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.STARTED, State.COMMITTED, State.RELEASED, State.EXPIRED}),
    State.STARTED: frozenset({State.COMMITTED, State.RELEASED, State.UNKNOWN}),
    State.UNKNOWN: frozenset({State.COMMITTED, State.RELEASED}),
    State.EXPIRED: frozenset({State.COMMITTED}),
    State.COMMITTED: frozenset(),
    State.RELEASED: frozenset(),
}
"""Said again on purpose: whoever patches the product's table does not patch this one."""


class RegionChecks:
    """One region's database, as it was when it was last looked at."""

    def __init__(self, store: MemoryRegionStore, now: float) -> None:
        self.store: Final = store
        self.latest = now
        """The furthest that any clock said to this database."""
        self.held: Mapping[QuotaKey, Holding] = dict(store.held)
        self.counters: Mapping[tuple[QuotaKey, Epoch], Counter] = store.counters
        self.spent: Mapping[tuple[QuotaKey, Epoch], int] = {}
        self.slices: Mapping[QuotaKey, int] = {}
        self.written = False
        self.turns = 0
        """Accounting periods that were begun."""
        self.entries: Final = len(store.entries)
        self._entries = self.entries
        self._reservations = dict(store.reservations)
        self._requests = {held.request_id: held.id for held in self._reservations.values()}
        self._effects: set[Effect] = {
            ("commit", held.id, line.key)
            for held in self._reservations.values()
            if held.state is State.COMMITTED
            for line in held.lines
        }
        self._largest = {key: held.slice for key, held in self.held.items()}
        self._leaked_since = {key: held.leaked_at / 1e6 for key, held in self.held.items()}
        self._leaked: dict[QuotaKey, int] = {}
        self._spend()

    def look(self, now: float) -> None:
        """After a write by somebody whose clock said `now`."""
        self.latest = max(self.latest, now)
        self.written = True
        entries = self.store.entries
        if len(entries) > self._entries:
            added = entries[self._entries :]
            self._entries = len(entries)
            once(added, self._effects)
            self._note_leaks(added)
        self._look_at_holdings()
        self._look_at_reservations(now)
        self._look_at_counters()
        self._spend()

    def _look_at_holdings(self) -> None:
        held = dict(self.store.held)
        for key, one in held.items():
            before = self.held.get(key)
            if before is one:
                continue
            self._largest[key] = max(self._largest.get(key, 0), one.slice)
            if before is None:
                self._leaked_since.setdefault(key, one.leaked_at / 1e6)
                continue
            self.turns += one.epoch > before.epoch
            if one.epoch < before.epoch:
                said = f"{self.store.region} went back from epoch {before.epoch} to {one.epoch} in {key}"
                raise Violation(Invariant.TIME, said)
        self.held = held

    def _look_at_reservations(self, now: float) -> None:
        for name, held in self.store.reservations.items():
            before = self._reservations.get(name)
            if before is held:
                continue
            if before is None:
                if self._requests.setdefault(held.request_id, name) != name:
                    other = self._requests[held.request_id]
                    raise Violation(Invariant.ONCE, f"{held.request_id} is held for as {other} and as {name}")
            else:
                _look_at_change(before, held, now)
            self._reservations[name] = held

    def _look_at_counters(self) -> None:
        reserved: dict[tuple[QuotaKey, Epoch], int] = {}
        for held in self._reservations.values():
            if held.state in HOLDING:
                for line in held.lines:
                    at = line.key, line.epoch
                    reserved[at] = reserved.get(at, 0) + line.amount
        self.counters = self.store.counters
        for at, counter in self.counters.items():
            if counter.reserved != reserved.get(at, 0):
                said = f"{at}: {counter.reserved} are reserved, the holds say {reserved.get(at, 0)}"
                raise Violation(Invariant.BALANCES, f"{self.store.region}: {said}")
            owed = counter.slice + counter.overdraft_issued + counter.overage
            if owed != counter.available + counter.in_use + counter.retired + counter.overdraft_repaid:
                raise Violation(Invariant.BALANCES, f"{self.store.region}: {at}: {counter} does not add up")

    def _note_leaks(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.kind is not EntryKind.REFILL:
                continue
            key = entry.key
            self._leaked[key] = self._leaked.get(key, 0) - entry.delta
            self._check_leak(key)

    def _check_leak(self, key: QuotaKey) -> None:
        held = self.store.held[key]
        refill = held.policy.refill
        assert refill is not None
        assert held.kind is Kind.RATE
        largest = max(self._largest.get(key, 0), held.slice)
        seconds = self.latest - self._leaked_since.get(key, self.latest)
        most = seconds * largest * refill.amount / (refill.per * refill.interval_s)
        if self._leaked[key] > most + 1e-3:
            said = f"{self._leaked[key]} leaked out of {key} in {seconds:.1f} s, the refill allows {most:.3f}"
            raise Violation(Invariant.TIME, f"{self.store.region}: {said}")

    def look_for_debt(self, command: Reserve, outcome: Outcome) -> None:
        """A reserve changes no debt: what is owed right after it was admitted was owed before."""
        if isinstance(outcome, Granted) and not outcome.replayed:
            for key in command.keys:
                if debt := self.store.held[key].counter.debt:
                    said = f"{command.reservation_id} was admitted while {key} owes {debt}"
                    raise Violation(Invariant.DEBT, f"{self.store.region}: {said}")

    def _spend(self) -> None:
        """What was admitted: in use, but for what is recorded as owed."""
        self.spent = {
            at: counter.used + counter.reserved - counter.overdraft_issued + counter.overdraft_repaid
            for at, counter in self.counters.items()
        }
        self.slices = {key: held.counter.slice for key, held in self.held.items()}


def _look_at_change(before: Reservation, held: Reservation, now: float) -> None:
    if before.state is not held.state:
        if held.state not in _MAY_BECOME[before.state]:
            raise Violation(Invariant.STATES, f"{held.id} went from {before.state} to {held.state}")
        if held.state in (State.EXPIRED, State.UNKNOWN) and before.expires_at > now:
            said = f"{held.id} became {held.state} {before.expires_at - now:.1f} s before its time"
            raise Violation(Invariant.STATES, said)
    elif before.actual != held.actual:
        raise Violation(Invariant.STATES, f"{held.id} was settled at {before.actual} and again at {held.actual}")
    if before.operation_id not in (None, held.operation_id):
        said = f"{held.id} was started by {before.operation_id} and by {held.operation_id}"
        raise Violation(Invariant.STATES, said)


class Checks:
    """Everything that is looked at, with the largest limit that was in force since the run began."""

    def __init__(
        self, etcd: MemoryCoordination, stores: Mapping[Region, MemoryRegionStore], largest: Mapping[QuotaKey, int]
    ) -> None:
        self.regions = {region: RegionChecks(store, 0.0) for region, store in stores.items()}
        self.largest = dict(largest)
        self.documents: dict[QuotaKey, tuple[int, Allocation]] = {}
        self.records: Mapping[Region, StoredRegion] = {}
        self.joined: list[Region] = []
        self.revision = 0
        self._etcd = etcd
        self.look_at_etcd()
        self.joined.clear()

    def look_at_etcd(self) -> bool:
        """Whether any document is another than it was."""
        if self._etcd.revision == self.revision:
            return False
        self.revision = self._etcd.revision
        changed = False
        _, documents = finish(self._etcd.list())
        for stored in documents:
            known = self.documents.get(stored.key)
            if known is not None and known[0] == stored.revision:
                continue
            assert stored.allocation is not None
            self._look_at_document(stored.key, None if known is None else known[1], stored.allocation)
            self.documents[stored.key] = stored.revision, stored.allocation
            changed = True
        self.records = finish(self._etcd.regions())
        if changed:
            self._look_at_slices(self.regions)
        return changed

    def _look_at_document(self, key: QuotaKey, before: Allocation | None, now: Allocation) -> None:
        if now.pool + now.retired_units + sum(now.slices.values()) != now.limit:
            raise Violation(Invariant.ADDS_UP, f"{key}: {now}")
        self.largest[key] = max(self.largest.get(key, 0), now.limit)
        if before is not None:
            if _version(now.plan) < _version(before.plan) or _version(now.override) < _version(before.override):
                said = f"{before.plan}, {before.override} -> {now.plan}, {now.override}"
                raise Violation(Invariant.TIME, f"an older limit came into force for {key}: {said}")
            self.joined += [region for region in now.slices if region not in before.slices]

    def look_at_store(self, region: Region, now: float) -> None:
        known = self.regions[region]
        slices, spent = known.slices, known.spent
        known.look(now)
        if known.slices != slices:
            self._look_at_slices((region,))
        if known.spent != spent or known.slices != slices:
            self._look_at_promise()

    def _look_at_slices(self, regions: "Sequence[Region] | Mapping[Region, RegionChecks]") -> None:
        for region in regions:
            for key, held in self.regions[region].slices.items():
                known = self.documents.get(key)
                owned = 0 if known is None else known[1].slices.get(region, 0)
                if held > owned:
                    raise Violation(Invariant.OWNED, f"{region} holds {held} of {key} and owns {owned}")

    def _look_at_promise(self) -> None:
        spent: dict[tuple[QuotaKey, Epoch], int] = {}
        held: dict[QuotaKey, int] = {}
        for one in self.regions.values():
            for at, units in one.spent.items():
                spent[at] = spent.get(at, 0) + units
            for key, slice_ in one.slices.items():
                held[key] = held.get(key, 0) + slice_
        for (key, epoch), units in spent.items():
            if units > self.largest[key]:
                said = f"{units} of {key} were admitted in epoch {epoch}, the limit was at most {self.largest[key]}"
                raise Violation(Invariant.PROMISE, said)
        for key, units in held.items():
            if units > self.largest[key]:
                raise Violation(
                    Invariant.PROMISE, f"{units} of {key} are held, the limit was at most {self.largest[key]}"
                )


def _version(word: VersionedLimit | None) -> int:
    return 0 if word is None else word.version
