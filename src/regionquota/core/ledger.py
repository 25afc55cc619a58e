"""decide: what a batch of commands does to a region's balances. Pure; every store calls it inside one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from regionquota.core import counter as counters
from regionquota.core.commands import (
    Adjust,
    Adjusted,
    Adjustment,
    Command,
    Commit,
    Denied,
    DenyReason,
    Expire,
    Extend,
    Forbidden,
    Granted,
    Invalid,
    NotFound,
    Outcome,
    Release,
    RequestConflict,
    Reserve,
    Settled,
    UnknownQuota,
)
from regionquota.core.counter import Counter
from regionquota.core.periods import Epoch
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.core.reservation import Event, Reservation, State, after
from regionquota.core.slice import Holding, roll_over

RequestKey: TypeAlias = tuple[str, str]
"""Tenant and request id."""


class EntryKind(StrEnum):
    """COMMIT, LATE_COMMIT, ADJUST and CARRY sum to `used`; OVERDRAFT to what was issued, REPAY to what was repaid."""

    COMMIT = "commit"
    LATE_COMMIT = "late_commit"
    ADJUST = "adjust"
    CARRY = "carry"
    OVERDRAFT = "overdraft"
    REPAY = "repay"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the usage ledger. It is written in the transaction of the change it records, and never changed."""

    key: QuotaKey
    epoch: Epoch
    kind: EntryKind
    delta: int
    at: float
    reservation_id: str | None = None
    request_id: str | None = None
    reason: str = ""


@dataclass(slots=True)
class Loaded:
    """What a batch needs to know, locked by the store. `closed` holds the counters of epochs that have ended."""

    holdings: dict[QuotaKey, Holding] = field(default_factory=dict)
    closed: dict[tuple[QuotaKey, Epoch], Counter] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    requests: dict[RequestKey, str] = field(default_factory=dict)
    """Request id of a known reserve -> its reservation, which is in `reservations`."""
    adjustments: dict[RequestKey, Adjustment] = field(default_factory=dict)


@dataclass(slots=True)
class Writes:
    """What a batch changed, as final values."""

    holdings: dict[QuotaKey, Holding] = field(default_factory=dict)
    closed: dict[tuple[QuotaKey, Epoch], Counter] = field(default_factory=dict)
    created: dict[str, Reservation] = field(default_factory=dict)
    changed: dict[str, Reservation] = field(default_factory=dict)
    adjustments: list[Adjustment] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


def decide(loaded: Loaded, batch: Sequence[Command], now: float) -> tuple[list[Outcome], Writes]:
    """One outcome per command, in order; `loaded` is used up. `now` is in seconds since 1970."""
    ledger = _Ledger(loaded, now)
    return [ledger.execute(command) for command in batch], ledger.writes


def entries_of(
    key: QuotaKey, epoch: Epoch, before: Counter, changed: Counter, kind: EntryKind, cause: Entry
) -> list[Entry]:
    """The ledger lines that explain how `before` became `changed`; `cause` lends them time and references."""
    deltas = (
        (kind, changed.used - before.used),
        (EntryKind.OVERDRAFT, changed.overdraft_issued - before.overdraft_issued),
        (EntryKind.REPAY, changed.overdraft_repaid - before.overdraft_repaid),
    )
    return [replace(cause, key=key, epoch=epoch, kind=name, delta=delta) for name, delta in deltas if delta]


def turn_of_epoch(
    before: Holding | None, changed: Holding, now: float
) -> tuple[dict[tuple[QuotaKey, Epoch], Counter], list[Entry]]:
    """What a store must write beside `changed`: the counter it closed, and the ledger lines of a change of slice."""
    cause = Entry(changed.key, changed.epoch, EntryKind.CARRY, 0, now)
    if before is None or before.epoch == changed.epoch:
        was = Counter() if before is None else before.counter
        return {}, entries_of(changed.key, changed.epoch, was, changed.counter, EntryKind.CARRY, cause)
    lines = entries_of(changed.key, changed.epoch, Counter(), changed.counter, EntryKind.CARRY, cause)
    return {(before.key, before.epoch): before.counter}, lines


class _Ledger:
    """The fold over one batch: each command sees what those before it did."""

    def __init__(self, loaded: Loaded, now: float) -> None:
        self._loaded = loaded
        self._now = now
        self.writes = Writes()

    def execute(self, command: Command) -> Outcome:
        match command:
            case Reserve():
                return self._reserve(command)
            case Commit():
                return self._commit(command)
            case Release():
                return self._end(command.reservation_id, Event.RELEASE)
            case Expire():
                return self._expire(command)
            case Extend():
                return self._extend(command)
            case Adjust():
                return self._adjust(command)
            case _:
                assert_never(command)

    def _reserve(self, command: Reserve) -> Outcome:
        known_id = self._loaded.requests.get((command.key.tenant, command.request_id))
        if known_id is not None:
            known = self._loaded.reservations[known_id]
            if known.digest != command.digest:
                return RequestConflict(command.request_id)
            return Granted(known, self._loaded.holdings[known.key], replayed=True)
        holding = self._current(command.key)
        if holding is None:
            return UnknownQuota(command.key)
        counter = counters.reserve(holding.counter, command.amount)
        if counter is None:
            reason = DenyReason.IN_DEBT if holding.counter.debt else DenyReason.OVER_LIMIT
            return Denied(reason, command.amount, holding)
        holding = self._store(replace(holding, counter=counter))
        reservation = Reservation(
            id=command.reservation_id,
            key=command.key,
            epoch=holding.epoch,
            request_id=command.request_id,
            digest=command.digest,
            amount=command.amount,
            state=State.PENDING,
            created_at=self._now,
            expires_at=self._now + command.ttl_s,
        )
        self._loaded.reservations[reservation.id] = reservation
        self._loaded.requests[command.key.tenant, command.request_id] = reservation.id
        self.writes.created[reservation.id] = reservation
        return Granted(reservation, holding)

    def _commit(self, command: Commit) -> Outcome:
        reservation = self._loaded.reservations.get(command.reservation_id)
        if reservation is None:
            return NotFound(command.reservation_id)
        actual = reservation.amount if command.actual is None else command.actual
        if reservation.state is State.COMMITTED:
            if actual == reservation.actual:
                return Settled(reservation, replayed=True)
            message = f"already committed with actual_amount {reservation.actual}, not {actual}"
            return Forbidden(reservation, Event.COMMIT, message)
        state = after(reservation.state, Event.COMMIT)
        if state is None:
            return _forbidden(reservation, Event.COMMIT)
        before = self._counter_of(reservation)
        held = 0 if reservation.state is State.EXPIRED else reservation.amount
        if actual > held and not counters.can_charge(before, actual - held):
            return Invalid("actual_amount", f"usage would pass {MAX_AMOUNT}: commit at most what was reserved")
        if reservation.state is State.EXPIRED:
            counter, kind = counters.charge(before, actual), EntryKind.LATE_COMMIT
        else:
            counter, kind = counters.settle(before, reservation.amount, actual), EntryKind.COMMIT
        self._charge(reservation, counter, kind)
        return Settled(self._move(reservation, state, actual))

    def _expire(self, command: Expire) -> Outcome:
        reservation = self._loaded.reservations.get(command.reservation_id)
        if reservation is not None and reservation.state is State.PENDING and reservation.expires_at > self._now:
            return Forbidden(reservation, Event.EXPIRE, "extended: its time has not come")
        return self._end(command.reservation_id, Event.EXPIRE)

    def _end(self, reservation_id: str, event: Event) -> Outcome:
        """Give a hold back; a second time is answered like the first."""
        reservation = self._loaded.reservations.get(reservation_id)
        if reservation is None:
            return NotFound(reservation_id)
        state = after(reservation.state, event)
        if state is None:
            if reservation.state is after(State.PENDING, event):
                return Settled(reservation, replayed=True)
            return _forbidden(reservation, event)
        counter = counters.release(self._counter_of(reservation), reservation.amount)
        self._charge(reservation, counter, EntryKind.COMMIT)
        return Settled(self._move(reservation, state, None))

    def _extend(self, command: Extend) -> Outcome:
        reservation = self._loaded.reservations.get(command.reservation_id)
        if reservation is None:
            return NotFound(command.reservation_id)
        if reservation.state is not State.PENDING:
            return Forbidden(reservation, None, f"cannot extend: it is {reservation.state}, only PENDING can be")
        return Settled(self._keep(replace(reservation, expires_at=self._now + command.ttl_s)))

    def _adjust(self, command: Adjust) -> Outcome:
        request = (command.key.tenant, command.request_id)
        known = self._loaded.adjustments.get(request)
        if known is not None:
            if known.digest != command.digest:
                return RequestConflict(command.request_id)
            return Adjusted(known, replayed=True)
        holding = self._current(command.key)
        if holding is None:
            return UnknownQuota(command.key)
        before = holding.counter
        if command.delta < 0:
            if -command.delta > before.used:
                return Invalid("delta", f"delta {command.delta} would take used below 0: it is {before.used}")
            counter = counters.refund(before, -command.delta)
        else:
            if not counters.can_charge(before, command.delta):
                return Invalid("delta", f"usage would pass {MAX_AMOUNT}: it is {before.used}")
            counter = counters.charge(before, command.delta)
        cause = Entry(
            command.key, holding.epoch, EntryKind.ADJUST, 0, self._now,
            request_id=command.request_id, reason=command.reason,
        )  # fmt: skip
        self.writes.entries += entries_of(command.key, holding.epoch, before, counter, EntryKind.ADJUST, cause)
        self._store(replace(holding, counter=counter))
        adjustment = Adjustment(
            key=command.key,
            epoch=holding.epoch,
            request_id=command.request_id,
            digest=command.digest,
            delta=command.delta,
            reason=command.reason,
            used=counter.used,
            available=counter.available,
            at=self._now,
        )
        self._loaded.adjustments[request] = adjustment
        self.writes.adjustments.append(adjustment)
        return Adjusted(adjustment)

    def _current(self, key: QuotaKey) -> Holding | None:
        """The holding in the epoch of now; the epoch before it is closed on the way."""
        before = self._loaded.holdings.get(key)
        if before is None:
            return None
        holding = roll_over(before, self._now)
        if holding is not before:
            closed, lines = turn_of_epoch(before, holding, self._now)
            self._loaded.closed.update(closed)
            self.writes.closed.update(closed)
            self.writes.entries += lines
            self._store(holding)
        return holding

    def _store(self, holding: Holding) -> Holding:
        self._loaded.holdings[holding.key] = holding
        self.writes.holdings[holding.key] = holding
        return holding

    def _counter_of(self, reservation: Reservation) -> Counter:
        holding = self._loaded.holdings[reservation.key]
        if reservation.epoch == holding.epoch:
            return holding.counter
        return self._loaded.closed[reservation.key, reservation.epoch]

    def _charge(self, reservation: Reservation, counter: Counter, kind: EntryKind) -> None:
        """Store the counter of the period that the reservation belongs to, with its ledger lines."""
        before = self._counter_of(reservation)
        cause = Entry(
            reservation.key, reservation.epoch, kind, 0, self._now,
            reservation_id=reservation.id, request_id=reservation.request_id,
        )  # fmt: skip
        self.writes.entries += entries_of(reservation.key, reservation.epoch, before, counter, kind, cause)
        holding = self._loaded.holdings[reservation.key]
        if reservation.epoch == holding.epoch:
            self._store(replace(holding, counter=counter))
        else:
            self._loaded.closed[reservation.key, reservation.epoch] = counter
            self.writes.closed[reservation.key, reservation.epoch] = counter

    def _move(self, reservation: Reservation, state: State, actual: int | None) -> Reservation:
        return self._keep(replace(reservation, state=state, actual=actual, settled_at=self._now))

    def _keep(self, reservation: Reservation) -> Reservation:
        """A reservation made in this very batch is written once, as it ends up."""
        self._loaded.reservations[reservation.id] = reservation
        into = self.writes.created if reservation.id in self.writes.created else self.writes.changed
        into[reservation.id] = reservation
        return reservation


def _forbidden(reservation: Reservation, event: Event) -> Forbidden:
    return Forbidden(reservation, event, f"cannot {event}: it is {reservation.state}")
