"""One region's database, held to what must be true of it after every write."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import Granted, Outcome, Reserve
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry, EntryKind
from regionquota.core.periods import Epoch
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reservation import HOLDING, Reservation, State
from regionquota.core.slice import Holding
from regionquota.explorer.book import Effect, once
from regionquota.explorer.digests import digest_of_hold, digest_of_region
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Invariant, Violation

At: TypeAlias = tuple[QuotaKey, Epoch]

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
    """One region's database, as it was when it was last looked at. What has not changed since is the same object.

    `slices` are those that can be spent: none in an incarnation that is not trusted. `spent` is what was admitted, by
    period, and not taken back; see `_forgiven`.
    """

    def __init__(self, store: MemoryRegionStore) -> None:
        self.store = store
        self.latest = 0.0
        """The furthest that any clock said to this database."""
        self.changed = False
        """Whether any balance may be another than at first."""
        self.happened: list[Fault | Deed] = []
        """Since anybody asked: whoever counts clears it."""
        self.entries = len(store.entries)
        """Of the usage ledger, those that were written before the run."""
        self._largest = {key: held.slice for key, held in store.held.items()}
        self._leaked_since = {key: held.leaked_at / 1e6 for key, held in store.held.items()}
        self._forgiven: dict[At, int] = {}
        """What lost commits had given back, and what was used while nothing was admitted.

        It counts again, in full, in the period that is current once the database is trusted: there it is owed.
        """
        self._take_stock()

    def _take_stock(self) -> None:
        store = self.store
        self._entries = len(store.entries)
        self.trusted = store.life == store.trusted
        self.held: Mapping[QuotaKey, Holding] = dict(store.held)
        self.slices = self._slices()
        self.counters: Mapping[At, Counter] = store.counters
        self.spent: Mapping[At, int] = self._spent()
        self._digest: int | None = None
        self._reservations = dict(store.reservations)
        self._holds = sum(digest_of_hold(held) for held in self._reservations.values())
        self._requests = {held.request_id: held.id for held in self._reservations.values()}
        self._reserved = _reserved(self._reservations.values())
        self._effects: set[Effect] = {
            ("commit", held.id, line.key)
            for held in self._reservations.values()
            if held.state is State.COMMITTED
            for line in held.lines
        }
        self._leaked: dict[QuotaKey, int] = {}
        for entry in store.entries[self.entries :]:
            if entry.kind is EntryKind.REFILL:
                self._leaked[entry.key] = self._leaked.get(entry.key, 0) - entry.delta

    def failed_over(self) -> None:
        """The database is in a new incarnation, and as it was before: what it knows now, it knows anew."""
        before = self.counters
        self.changed = True
        self.entries = min(self.entries, len(self.store.entries))
        self._take_stock()
        for key, held in self.held.items():
            self._largest[key] = max(self._largest.get(key, 0), held.slice)
            self._note_leak_since(key, held)
        for at, counter in self.counters.items():
            if at in before:
                self._forgive(at, before[at], counter)
        self.spent = self._spent()

    def _forgive(self, at: At, before: Counter, now: Counter) -> None:
        self._forgiven[at] = self._forgiven.get(at, 0) + max(0, _admitted(now) - _admitted(before))

    def fork(self, store: MemoryRegionStore) -> "RegionChecks":
        """The same knowledge, of a store that is the same so far."""
        other = RegionChecks.__new__(RegionChecks)
        known = other.__dict__
        known.update(self.__dict__)
        known["store"] = store
        for name in (
            "_largest",
            "_leaked_since",
            "_leaked",
            "_reservations",
            "_requests",
            "_reserved",
            "_effects",
            "_forgiven",
            "happened",
        ):
            known[name] = known[name].copy()
        return other

    def digest(self) -> int:
        """Of what is durable."""
        if self._digest is None:
            self._digest = digest_of_region(self.held, self._holds, trusted=self.trusted)
        return self._digest

    def look(self, now: float) -> bool:
        """After a write by somebody whose clock said `now`. False: it changed nothing that counts."""
        self.latest = max(self.latest, now)
        entries = self.store.entries
        if len(entries) > self._entries:
            self.changed = True
            added = entries[self._entries :]
            self._entries = len(entries)
            once(added, self._effects)
            self._note_leaks(added)
        before = self.held, self.trusted, self._holds
        self._look_at_holdings(trusted=self.store.life == self.store.trusted)
        touched = self._look_at_reservations(now)
        self._look_at_counters(touched)
        if before[0] is self.held and before[1:] == (self.trusted, self._holds):
            return False
        self._digest = None
        return True

    def _look_at_holdings(self, *, trusted: bool) -> None:
        changed = trusted is not self.trusted
        self.trusted = trusted
        for key, one in self.store.held.items():
            before = self.held.get(key)
            if before is one:
                continue
            changed = True
            self._largest[key] = max(self._largest.get(key, 0), one.slice)
            if before is None:
                self._note_leak_since(key, one)
                continue
            if one.epoch > before.epoch:
                self.happened.append(Fault.ROLLOVER)
            if one.epoch < before.epoch:
                said = f"{self.store.region} went back from epoch {before.epoch} to {one.epoch} in {key}"
                raise Violation(Invariant.TIME, said)
        if changed:
            self.held = dict(self.store.held)
            self.slices = self._slices()

    def _look_at_reservations(self, now: float) -> set[At]:
        """Which counters they hold something of, or held."""
        touched: set[At] = set()
        for name, held in self.store.reservations.items():
            before = self._reservations.get(name)
            if before is held:
                continue
            if before is None:
                if not self.trusted:
                    said = f"{name} was admitted by a database that was not compared with etcd"
                    raise Violation(Invariant.TRUST, f"{self.store.region}: {said}")
                if self._requests.setdefault(held.request_id, name) != name:
                    other = self._requests[held.request_id]
                    raise Violation(Invariant.ONCE, f"{held.request_id} is held for as {other} and as {name}")
            else:
                _look_at_change(before, held, now)
                if held.state is not before.state:
                    self._note_state(before.state, held.state)
                touched |= self._hold(before, -1)
                self._holds -= digest_of_hold(before)
            touched |= self._hold(held, 1)
            self._holds += digest_of_hold(held)
            self._reservations[name] = held
        return touched

    def _note_state(self, before: State, now: State) -> None:
        if now is State.UNKNOWN:
            self.happened.append(Fault.UNKNOWN_EXECUTOR)
        elif before is State.UNKNOWN:
            self.happened.append(Deed.LATE_RECEIPT)

    def _hold(self, held: Reservation, sign: int) -> set[At]:
        if held.state not in HOLDING:
            return set()
        for line in held.lines:
            at = line.key, line.epoch
            self._reserved[at] = self._reserved.get(at, 0) + sign * line.amount
        return {(line.key, line.epoch) for line in held.lines}

    def _look_at_counters(self, touched: set[At]) -> None:
        before, self.counters = self.counters, self.store.counters
        changed = {at: counter for at, counter in self.counters.items() if before.get(at) is not counter}
        if touched or changed:
            self.changed = True
        for at in touched | changed.keys():
            counter, reserved = self.counters[at], self._reserved.get(at, 0)
            if counter.reserved != reserved:
                said = f"{at}: {counter.reserved} are reserved, the holds say {reserved}"
                raise Violation(Invariant.BALANCES, f"{self.store.region}: {said}")
            owed = counter.slice + counter.overdraft_issued + counter.overage
            if owed != counter.available + counter.in_use + counter.retired + counter.overdraft_repaid:
                raise Violation(Invariant.BALANCES, f"{self.store.region}: {at}: {counter} does not add up")
        if not self.trusted:
            for at, counter in changed.items():
                if at in before:
                    self._forgive(at, before[at], counter)
        if changed or self._forgiven:
            self.spent = self._spent()

    def _slices(self) -> Mapping[QuotaKey, int]:
        return {key: held.counter.slice for key, held in self.held.items()} if self.trusted else {}

    def _spent(self) -> Mapping[At, int]:
        spent = {at: _admitted(counter) for at, counter in self.counters.items()}
        for (key, epoch), units in self._forgiven.items():
            if (key, epoch) in spent and not (self.trusted and self.held[key].epoch == epoch):
                spent[key, epoch] -= units
        return spent

    def _note_leak_since(self, key: QuotaKey, held: Holding) -> None:
        since = held.leaked_at / 1e6
        self._leaked_since[key] = min(self._leaked_since.get(key, since), since)

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


def _admitted(counter: Counter) -> int:
    """What is in use, but for what is recorded as owed."""
    return counter.used + counter.reserved - counter.overdraft_issued + counter.overdraft_repaid


def _reserved(holds: Iterable[Reservation]) -> dict[At, int]:
    reserved: dict[At, int] = {}
    for held in holds:
        if held.state in HOLDING:
            for line in held.lines:
                at = line.key, line.epoch
                reserved[at] = reserved.get(at, 0) + line.amount
    return reserved


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
