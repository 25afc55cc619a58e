"""Reservations: hold, start, settle, give back. Each command is all or none, over all the lines of a reservation."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from regionquota.core import counter as counters
from regionquota.core.admission import Admitted, admit, free, kept
from regionquota.core.balances import Balances, Loaded, Writes
from regionquota.core.commands import (
    Charge,
    Commit,
    Denied,
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
    Start,
)
from regionquota.core.entries import Cause, EntryKind
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.core.reservation import DUE, Event, Line, Reservation, State, after
from regionquota.core.slice import Holding


class Holds:
    def __init__(self, loaded: Loaded, writes: Writes, balances: Balances, now: float) -> None:
        self._reservations = loaded.reservations
        self._requests = loaded.requests
        self._writes = writes
        self._balances = balances
        self._now = now

    def reserve(self, command: Reserve) -> Outcome:
        known = self._requests.get((command.key.tenant, command.request_id))
        if known is not None:
            return self._repeated(self._reservations[known], command)
        charges = (Charge(command.key, command.amount), *command.also)
        if refused := _uncountable(charges):
            return refused
        if unknown := self._balances.unknown(command.keys):
            return unknown
        holdings = [self._balances.known(key) for key in command.keys]
        if refused := _ttl_out_of_bounds(holdings[0].policy, command.ttl_s):
            return refused
        liens = {holding.key: 0 for holding in holdings}
        for holding in holdings:
            if holding.parent in liens:
                liens[holding.parent] += holding.lien
        admitted: list[Admitted] = []
        for charge, holding in zip(charges, holdings, strict=True):
            enforced = holding.policy.holds_to(command.key.tenant, command.request_id)
            lien = liens[holding.key]
            word = admit(holding, charge.amount, command.priority, own_lien=lien, enforced=enforced)
            if not isinstance(word, Admitted):
                room, left = free(holding, lien), kept(holding, command.priority)
                return Denied(word, charge.amount, holding, room, left, command.priority)
            admitted.append(word)
        return self._hold(command, charges, holdings, admitted)

    def _repeated(self, known: Reservation, command: Reserve) -> Outcome:
        holding = self._balances.view(known.key)
        if known.digest != command.digest or holding is None:
            return RequestConflict(command.request_id)
        return Granted(known, holding, replayed=True)

    def _hold(
        self, command: Reserve, charges: Sequence[Charge], holdings: Sequence[Holding], admitted: Sequence[Admitted]
    ) -> Outcome:
        cause = Cause(EntryKind.COMMIT, self._now)
        lines, changed = [], []
        for charge, holding, word in zip(charges, holdings, admitted, strict=True):
            # The liens of lines before this one change what is kept in this one's counter, never the counter itself.
            changed.append(self._balances.change(charge.key, holding.epoch, word.counter, cause))
            lines.append(Line(charge.key, holding.epoch, charge.amount, word.over, via=charge.via))
        first = lines[0]
        reservation = Reservation(
            id=command.reservation_id,
            key=command.key,
            epoch=first.epoch,
            request_id=command.request_id,
            digest=command.digest,
            amount=command.amount,
            state=State.PENDING,
            created_at=self._now,
            expires_at=self._now + command.ttl_s,
            generation=holdings[0].policy.generation,
            over=first.over,
            also=tuple(lines[1:]),
        )
        self._reservations[reservation.id] = reservation
        self._requests[command.key.tenant, command.request_id] = reservation.id
        self._writes.created[reservation.id] = reservation
        denials = [word.would_deny for word in admitted if word.would_deny is not None]
        return Granted(reservation, changed[0], would_deny=denials[0] if denials else None)

    def start(self, command: Start) -> Outcome:
        reservation = self._reservations.get(command.reservation_id)
        if reservation is None:
            return NotFound(command.reservation_id)
        if reservation.operation_id == command.operation_id:
            return Settled(reservation, replayed=True)
        state = after(reservation.state, Event.START)
        if state is None or reservation.operation_id is not None:
            bound = reservation.operation_id
            what = f"operation {bound} was started for it" if bound else f"it is {reservation.state}"
            return Forbidden(reservation, Event.START, f"cannot start: {what}")
        return Settled(self._keep(replace(reservation, state=state, operation_id=command.operation_id)))

    def commit(self, command: Commit) -> Outcome:
        reservation = self._reservations.get(command.reservation_id)
        if reservation is None:
            return NotFound(command.reservation_id)
        unknown = [key for key in command.lines if all(line.key != key for line in reservation.also)]
        if unknown:
            return Invalid("lines", f"{unknown[0]} is none of the reservation's further lines")
        actual = reservation.amount if command.actual is None else command.actual
        lines = _settled_lines(reservation, actual, command.lines)
        if reservation.state is State.COMMITTED:
            if lines == reservation.lines:
                return Settled(reservation, replayed=True)
            said = f"already committed with actual_amount {reservation.actual}, not {actual}"
            if actual == reservation.actual:
                said = "already committed with other amounts in its lines"
            return Forbidden(reservation, Event.COMMIT, said)
        state = after(reservation.state, Event.COMMIT)
        if state is None:
            return _forbidden(reservation, Event.COMMIT)
        late = reservation.state is State.EXPIRED
        if refused := self._unstorable(lines, late=late):
            return refused
        for line in lines:
            self._settle(reservation, line, command.reason, late=late)
        settled = replace(reservation, state=state, actual=actual, settled_at=self._now, also=lines[1:])
        return Settled(self._keep(settled))

    def _unstorable(self, lines: Sequence[Line], *, late: bool) -> Invalid | None:
        for line in lines:
            assert line.actual is not None
            beyond = line.actual - (0 if late else line.amount)
            if beyond > 0 and not self._can_charge(line, beyond):
                return Invalid("actual_amount", f"usage would pass {MAX_AMOUNT}: commit at most what was reserved")
        return None

    def _can_charge(self, line: Line, beyond: int) -> bool:
        """What overdraws an epoch that has ended is charged to the current one."""
        counter, current = self._balances.counter(line.key, line.epoch), self._balances.turned(line.key)
        carried = 0 if line.epoch == current.epoch else max(0, beyond - counter.available)
        return counters.can_charge(counter, beyond) and counters.can_charge(current.counter, carried)

    def _settle(self, reservation: Reservation, line: Line, reason: str, *, late: bool) -> None:
        assert line.actual is not None
        before = self._balances.counter(line.key, line.epoch)
        lenient = self._balances.turned(line.key).lenient
        if late:
            changed = counters.charge(before, line.actual, lenient=lenient)
        else:
            changed = counters.settle(before, line.amount, line.actual, lenient=lenient)
        kind = EntryKind.LATE_COMMIT if late else EntryKind.COMMIT
        self._balances.change(line.key, line.epoch, changed, self._cause(kind, reservation, reason))

    def release(self, command: Release) -> Outcome:
        return self._end(command.reservation_id, Event.RELEASE, command.reason)

    def expire(self, command: Expire) -> Outcome:
        reservation = self._reservations.get(command.reservation_id)
        if reservation is not None and reservation.state in DUE and reservation.expires_at > self._now:
            return Forbidden(reservation, Event.EXPIRE, "extended: its time has not come")
        return self._end(command.reservation_id, Event.EXPIRE)

    def _end(self, reservation_id: str, event: Event, reason: str = "") -> Outcome:
        """Give a hold back; a second time is answered like the first."""
        reservation = self._reservations.get(reservation_id)
        if reservation is None:
            return NotFound(reservation_id)
        state = after(reservation.state, event)
        if state is None:
            if reservation.state is after(State.PENDING, event):
                return Settled(reservation, replayed=True)
            return _forbidden(reservation, event)
        if state is State.UNKNOWN:
            return Settled(self._keep(replace(reservation, state=state)))
        for line in reservation.lines:
            changed = counters.release(self._balances.counter(line.key, line.epoch), line.amount)
            self._balances.change(line.key, line.epoch, changed, self._cause(EntryKind.COMMIT, reservation, reason))
        return Settled(self._keep(replace(reservation, state=state, settled_at=self._now)))

    def extend(self, command: Extend) -> Outcome:
        reservation = self._reservations.get(command.reservation_id)
        if reservation is None:
            return NotFound(command.reservation_id)
        if reservation.state not in DUE:
            allowed = " or ".join(state for state in State if state in DUE)
            return Forbidden(reservation, None, f"cannot extend: it is {reservation.state}, only {allowed} can be")
        holding = self._balances.view(reservation.key)
        if holding is not None and (refused := _ttl_out_of_bounds(holding.policy, command.ttl_s)):
            return refused
        return Settled(self._keep(replace(reservation, expires_at=self._now + command.ttl_s)))

    def _cause(self, kind: EntryKind, reservation: Reservation, reason: str) -> Cause:
        return Cause(kind, self._now, reservation.id, reservation.request_id, reason)

    def _keep(self, reservation: Reservation) -> Reservation:
        """A reservation made in this very batch is written once, as it ends up."""
        self._reservations[reservation.id] = reservation
        into = self._writes.created if reservation.id in self._writes.created else self._writes.changed
        into[reservation.id] = reservation
        return reservation


def _settled_lines(reservation: Reservation, actual: int, named: Mapping[QuotaKey, int]) -> tuple[Line, ...]:
    """What each line is settled at: what the caller says of it, what the lines that it is charged for leave, or what
    was held.
    """
    lines = reservation.lines
    saved = [line.amount - named.get(line.key, line.amount) for line in lines]
    saved[0] = reservation.amount - actual

    def of(line: Line) -> int:
        return max(0, named.get(line.key, line.amount - sum(saved[place] for place in line.via)))

    return (lines[0]._replace(actual=actual), *(line._replace(actual=of(line)) for line in lines[1:]))


def _uncountable(charges: Sequence[Charge]) -> Invalid | None:
    """What several lines are charged to has to hold their sum."""
    for charge in charges:
        if charge.amount > MAX_AMOUNT:
            said = f"lines charge {charge.key} with {charge.amount} together: the most is {MAX_AMOUNT}"
            return Invalid("lines", said)
    return None


def _ttl_out_of_bounds(policy: QuotaPolicy, ttl_s: int) -> Invalid | None:
    least, most = policy.min_ttl_s or 1, policy.max_ttl_s
    if ttl_s >= least and (most is None or ttl_s <= most):
        return None
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    return Invalid("ttl_s", f"this quota's policy takes a ttl_s {bounds} seconds, got {ttl_s}")


def _forbidden(reservation: Reservation, event: Event) -> Forbidden:
    return Forbidden(reservation, event, f"cannot {event}: it is {reservation.state}")
