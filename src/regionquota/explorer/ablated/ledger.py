"""Safeguards of the ledger: idempotency, states, conservation, debt."""

from typing import Any, Final

from msgspec.structs import replace

from regionquota.core import counter, holds
from regionquota.core.admission import Admitted, admit
from regionquota.core.balances import Balances
from regionquota.core.commands import Adjust, Commit, Denied, Expire, Meter, Outcome, Reserve, Settled, Start
from regionquota.core.corrections import Corrections
from regionquota.core.counter import Counter
from regionquota.core.entries import Cause, EntryKind, entries_of
from regionquota.core.holds import Holds
from regionquota.core.policy import Priority
from regionquota.core.reservation import Event, Reservation, State, after
from regionquota.core.slice import Holding

_reserve, _commit, _start = Holds.reserve, Holds.commit, Holds.start
_adjust, _meter = Corrections.adjust, Corrections.meter
_charge, _settle_counter = counter.charge, counter.settle


def _forget_requests(self: Holds, command: Reserve) -> Outcome:
    self._requests.pop((command.key.tenant, command.request_id), None)
    return _reserve(self, command)


def _forget_digest(self: Holds, known: Reservation, command: Reserve) -> Outcome:
    return _repeated(self, known, _with_digest(command, known.digest))


_repeated = Holds._repeated


def _with_digest(command: Reserve, digest: bytes) -> Reserve:
    return replace(command, digest=digest)


def _forget_adjustments(self: Corrections, command: Adjust) -> Outcome:
    self._adjustments.pop((command.key.tenant, command.request_id), None)
    return _adjust(self, command)


def _any_adjustment(self: Corrections, command: Adjust) -> Outcome:
    known = self._adjustments.get((command.key.tenant, command.request_id))
    return _adjust(self, command if known is None else replace(command, digest=known.digest))


def _count_again(self: Corrections, command: Meter) -> Outcome:
    """As if totals were differences."""
    self._readings.pop((command.key, command.source, command.incarnation), None)
    return _meter(self, command)


def _any_order(self: Corrections, command: Meter) -> Outcome:
    name = (command.key, command.source, command.incarnation)
    known = self._readings.get(name)
    if known is not None:
        self._readings[name] = replace(known, sequence=min(known.sequence, command.sequence - 1))
    return _meter(self, command)


def _first_line_pays(self: Holds, command: Reserve) -> Outcome:
    """Line by line, and no way back."""
    outcome = _reserve(self, command)
    if isinstance(outcome, Denied) and command.also and outcome.holding.key != command.key:
        holding = self._balances.turned(command.key)
        charged = counter.reserve(holding.counter, command.amount)
        if charged is not None:
            self._balances.change(command.key, holding.epoch, charged, Cause(EntryKind.COMMIT, self._now))
    return outcome


def _any_state(state: State, event: Event) -> State | None:
    """A state that is not compared with the one it was read in: whoever comes last wins."""
    return after(state, event) or after(State.PENDING, event)


def _settle_first_line(self: Holds, command: Commit) -> Outcome:
    known = self._reservations.get(command.reservation_id)
    if known is None or not known.also:
        return _commit(self, command)
    self._reservations[known.id] = replace(known, also=())
    outcome = _commit(self, command)
    settled = self._reservations[known.id]
    self._keep(replace(settled, also=tuple(line._replace(actual=line.amount) for line in known.also)))
    return outcome


def _another_operation(self: Holds, command: Start) -> Outcome:
    known = self._reservations.get(command.reservation_id)
    if known is not None and known.state is State.STARTED:
        self._reservations[known.id] = replace(known, state=State.PENDING, operation_id=None)
    return _start(self, command)


def _expire_now(self: Holds, command: Expire) -> Outcome:
    return self._end(command.reservation_id, Event.EXPIRE)


def _expire_started(state: State, event: Event) -> State | None:
    """Started work ends with its time, whatever it has done."""
    return State.EXPIRED if (state, event) == (State.STARTED, Event.EXPIRE) else after(state, event)


def _late_is_nothing(self: Holds, command: Commit) -> Outcome:
    """The hold has expired, so nobody pays."""
    known = self._reservations.get(command.reservation_id)
    if known is not None and known.state is State.EXPIRED:
        actual = known.amount if command.actual is None else command.actual
        lines = tuple(line._replace(actual=line.amount) for line in known.also)
        settled = replace(known, state=State.COMMITTED, actual=actual, settled_at=self._now, also=lines)
        return Settled(self._keep(settled))
    return _commit(self, command)


def _no_more_than_available(changed: Counter, amount: int, *, lenient: bool = False) -> Counter:
    """What there is no capacity for is not recorded."""
    return _charge(changed, min(amount, changed.available), lenient=lenient)


def _no_more_than_held(changed: Counter, held: int, actual: int, *, lenient: bool = False) -> Counter:
    return _settle_counter(changed, held, min(held, actual), lenient=lenient)


def _free_before_debt(changed: Counter, amount: int, *, slice_: int = 0, reserved: int = 0, used: int = 0) -> Counter:
    """What is freed is there for the next to take, whoever owes."""
    return Counter(
        slice=changed.slice + slice_,
        available=changed.available + amount,
        reserved=changed.reserved + reserved,
        used=changed.used + used,
        retired=changed.retired,
        overdraft_issued=changed.overdraft_issued,
        overdraft_repaid=changed.overdraft_repaid,
        overage=changed.overage,
    )


def _open_in_debt(holding: Holding, amount: int, priority: Priority, *, own_lien: int, enforced: bool) -> Any:
    word = admit(holding, amount, priority, own_lien=own_lien, enforced=enforced)
    if not isinstance(word, Admitted) and holding.counter.debt:
        beyond = counter.reserve_beyond(holding.counter, amount)
        assert beyond is not None
        return Admitted(beyond, amount)
    return word


def _debt_stays_behind(closed: Counter, current: Counter) -> tuple[Counter, Counter]:
    """What was owed at the end of a period is forgiven."""
    debt = min(closed.debt, closed.used)
    forgiven = replace(closed, used=closed.used - debt, overdraft_repaid=closed.overdraft_repaid + debt)
    return (forgiven if debt else closed), current


def _unexplained(self: Balances, key: Any, epoch: Any, before: Counter, changed: Counter, cause: Cause) -> None:
    """Small changes are not worth a line."""
    if abs(changed.used - before.used) > 1:
        self._writes.entries += entries_of(key, epoch, before, changed, cause)


ABLATED: Final = (
    ("request-id", "a request id holds once", (Holds, "reserve", _forget_requests)),
    ("digest", "a request id stands for one content", (Holds, "_repeated", _forget_digest)),
    ("adjustment-id", "an adjustment is made once", (Corrections, "adjust", _forget_adjustments)),
    ("adjustment-digest", "an adjustment's id stands for one content", (Corrections, "adjust", _any_adjustment)),
    (
        "meter-total",
        "metered totals are absolute: a word heard twice adds nothing",
        (Corrections, "meter", _count_again),
    ),
    ("meter-sequence", "a metered word that was overtaken is not heard", (Corrections, "meter", _any_order)),
    ("all-lines-or-none", "all lines of a reserve pay, or none", (Holds, "reserve", _first_line_pays)),
    ("every-line-settles", "every line of a reservation is settled", (Holds, "commit", _settle_first_line)),
    ("compare-state", "a state changes by the table only", (holds, "after", _any_state)),
    ("one-operation", "a reservation is started by one operation", (Holds, "start", _another_operation)),
    ("compare-ttl", "a hold that was extended does not expire", (Holds, "expire", _expire_now)),
    ("unknown-holds", "started work keeps its capacity past its time", (holds, "after", _expire_started)),
    ("late-commit", "work that outlived its hold is charged", (Holds, "commit", _late_is_nothing)),
    ("overdraft", "usage beyond what is available is recorded as debt", (counter, "charge", _no_more_than_available)),
    ("more-than-held", "usage beyond the hold is settled in full", (counter, "settle", _no_more_than_held)),
    ("debt-first", "what is freed repays debt before anything else", (counter, "_freed", _free_before_debt)),
    ("closed-in-debt", "nothing is admitted while anything is owed", (holds, "admit", _open_in_debt)),
    ("debt-carried", "debt outlives its period", (counter, "carry_debt", _debt_stays_behind)),
    ("every-change-explained", "every change of usage has its line", (Balances, "_explain", _unexplained)),
)
