"""Whether one line of a request may be held: the one inequality, and what a policy makes of it."""

from typing import NamedTuple

from regionquota.core import counter as counters
from regionquota.core.commands import DenyReason
from regionquota.core.counter import Counter
from regionquota.core.policy import Priority
from regionquota.core.slice import Holding


class Admitted(NamedTuple):
    """The counter with the hold on it. `over` units were not available; `would_deny` is what a hard limit had said."""

    counter: Counter
    over: int = 0
    would_deny: DenyReason | None = None


def admit(holding: Holding, amount: int, priority: Priority, *, own_lien: int, enforced: bool) -> Admitted | DenyReason:
    """`own_lien` is what is kept in this quota for those who ask: their guarantee, unlike others', is theirs to use.

    `enforced` False: the request is not among those that the limit is enforced upon.
    """
    if not holding.policy.admission_open:
        return DenyReason.ADMISSION_CLOSED
    reason = None if holding.unlimited else _objection(holding, amount, own_lien, priority)
    if reason is not None and enforced and not holding.lenient:
        return reason
    if reason is None and not holding.unlimited:
        counter = counters.reserve(holding.counter, amount)
        assert counter is not None, "what is free is available"
        return Admitted(counter)
    beyond = counters.reserve_beyond(holding.counter, amount)
    if beyond is None:
        return DenyReason.OVER_LIMIT  # no column could hold the sum, whatever the policy says
    return Admitted(beyond, beyond.overage - holding.counter.overage, reason)


def free(holding: Holding, own_lien: int = 0) -> int:
    """What may be taken of what is available: not what is guaranteed to others."""
    return max(0, holding.counter.available - max(0, holding.guaranteed - own_lien))


def kept(holding: Holding, priority: Priority) -> int:
    """Of what is free, the units that requests of `priority` have to leave to higher ones."""
    return holding.slice - holding.policy.may_fill(holding.slice, priority)


def _objection(holding: Holding, amount: int, own_lien: int, priority: Priority) -> DenyReason | None:
    policy, debt = holding.policy, holding.counter.debt
    if policy.max_single is not None and amount > policy.max_single:
        return DenyReason.MAX_SINGLE_RESERVATION
    if debt:
        exceeded = policy.max_overdraft is not None and debt > policy.max_overdraft
        return DenyReason.OVERDRAFT_EXCEEDED if exceeded else DenyReason.IN_DEBT
    room = free(holding, own_lien)
    if amount > room:
        return DenyReason.OVER_LIMIT
    if policy.low_fill_percent == 100:  # as nearly everywhere: then nobody leaves anything to anybody
        return None
    return DenyReason.KEPT_FOR_HIGHER_PRIORITY if amount > room - kept(holding, priority) else None
