"""The balances that a batch works on: what was loaded, what time has done to it, and what is to be written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from regionquota.core import counter as counters
from regionquota.core.commands import Adjustment, Reading, UnknownQuota
from regionquota.core.counter import Counter
from regionquota.core.entries import Cause, Entry, EntryKind, entries_of
from regionquota.core.periods import Epoch
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding, at

RequestKey: TypeAlias = tuple[str, str]
"""Tenant and request id."""
MeterKey: TypeAlias = tuple[QuotaKey, str, str]
"""Quota, source and its incarnation."""
Closed: TypeAlias = dict[tuple[QuotaKey, Epoch], Counter]


@dataclass(slots=True)
class Loaded:
    """What a batch needs to know, locked by the store. `closed` holds the counters of epochs that have ended."""

    holdings: dict[QuotaKey, Holding] = field(default_factory=dict)
    closed: Closed = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    requests: dict[RequestKey, str] = field(default_factory=dict)
    """Request id of a known reserve -> its reservation, which is in `reservations`."""
    adjustments: dict[RequestKey, Adjustment] = field(default_factory=dict)
    readings: dict[MeterKey, Reading] = field(default_factory=dict)


@dataclass(slots=True)
class Writes:
    """What a batch changed, as final values."""

    holdings: dict[QuotaKey, Holding] = field(default_factory=dict)
    closed: Closed = field(default_factory=dict)
    created: dict[str, Reservation] = field(default_factory=dict)
    changed: dict[str, Reservation] = field(default_factory=dict)
    adjustments: list[Adjustment] = field(default_factory=list)
    readings: dict[MeterKey, Reading] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


def turn(before: Holding | None, changed: Holding, now: float) -> tuple[Closed, list[Entry]]:
    """What must be written beside `changed`, which time or a new slice made of `before`: the counter that was closed,
    and the ledger's lines.
    """
    was = Counter() if before is None else before.counter
    if before is None or before.epoch == changed.epoch:
        return {}, [*entries_of(changed.key, changed.epoch, was, changed.counter, Cause(EntryKind.REFILL, now))]
    cause = Cause(EntryKind.CARRY, now)
    closed, _ = counters.carry_debt(was, Counter(slice=before.slice, available=before.slice))
    lines = [
        *entries_of(before.key, before.epoch, was, closed, cause),
        *entries_of(changed.key, changed.epoch, Counter(), changed.counter, cause),
    ]
    return {(before.key, before.epoch): closed}, lines


class Balances:
    """Every change goes through `change`, so that the ledger, liens and carried debt follow by themselves."""

    def __init__(self, loaded: Loaded, writes: Writes, now: float) -> None:
        self._holdings = loaded.holdings
        self._closed = loaded.closed
        self._writes = writes
        self._now = now

    def view(self, key: QuotaKey) -> Holding | None:
        """As it is now; nothing is written for having been looked at."""
        return self.known(key) if key in self._holdings else None

    def known(self, key: QuotaKey) -> Holding:
        """As `view`, of a quota that is held here."""
        return at(self._holdings[key], self._now)

    def unknown(self, keys: Sequence[QuotaKey]) -> UnknownQuota | None:
        """The first of `keys` that is not held here."""
        return next((UnknownQuota(key) for key in keys if key not in self._holdings), None)

    def turned(self, key: QuotaKey) -> Holding:
        """As it is now, and to be written so: whoever changes a balance first lets the time pass until then."""
        before = self._holdings[key]
        holding = at(before, self._now)
        if holding is not before:
            closed, lines = turn(before, holding, self._now)
            self._closed.update(closed)
            self._writes.closed.update(closed)
            self._writes.entries += lines
            self._put(holding)
        return self._holdings[key]

    def counter(self, key: QuotaKey, epoch: Epoch) -> Counter:
        """To be changed: see `turned`. `epoch` is the current one or one that was loaded."""
        holding = self.turned(key)
        return holding.counter if epoch == holding.epoch else self._closed[key, epoch]

    def change(self, key: QuotaKey, epoch: Epoch, counter: Counter, cause: Cause) -> Holding:
        """Put `counter` in place of what `counter(key, epoch)` gave. Returns the current holding."""
        holding = self.turned(key)
        if epoch == holding.epoch:
            self._explain(key, epoch, holding.counter, counter, cause)
            return self._put(replace(holding, counter=counter))
        closed, current = counters.carry_debt(counter, holding.counter)
        self._explain(key, epoch, self._closed[key, epoch], counter, cause)
        carry = cause._replace(kind=EntryKind.CARRY)
        self._explain(key, epoch, counter, closed, carry)
        self._closed[key, epoch] = closed
        self._writes.closed[key, epoch] = closed
        if current is holding.counter:
            return holding
        self._explain(key, holding.epoch, holding.counter, current, carry)
        return self._put(replace(holding, counter=current))

    def pledge(self, key: QuotaKey) -> Holding:
        """Bring the lien of `key` in its parent up to date."""
        holding = self.turned(key)
        return self._put(holding) if holding.unused_guarantee != holding.lien else holding

    def _explain(self, key: QuotaKey, epoch: Epoch, before: Counter, changed: Counter, cause: Cause) -> None:
        self._writes.entries += entries_of(key, epoch, before, changed, cause)

    def _put(self, holding: Holding) -> Holding:
        holding = self._with_lien(holding)
        self._holdings[holding.key] = holding
        self._writes.holdings[holding.key] = holding
        return holding

    def _with_lien(self, holding: Holding) -> Holding:
        """Keep in the parent what of a guarantee is not in use. Without the parent at hand the lien stays as it was."""
        if not holding.lien and not holding.policy.guarantee:
            return holding
        parent = self._holdings.get(holding.parent) if holding.parent is not None else None
        if parent is None:
            return holding
        others = parent.guaranteed - holding.lien
        unused = min(holding.unused_guarantee, MAX_AMOUNT - others)
        if unused == holding.lien:
            return holding
        self._put(replace(parent, guaranteed=others + unused))
        return replace(holding, lien=unused)
