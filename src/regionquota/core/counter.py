"""One counter: a region's slice of a quota in one accounting epoch, and how it is spent.

    slice + overdraft_issued + overage = available + reserved + used + retired + overdraft_repaid
    debt = overdraft_issued - overdraft_repaid;  available > 0 only while debt = 0 and overage = 0

Both hold after every function here; Postgres states them again as CHECK constraints.
"""

import msgspec
from msgspec.structs import replace

from regionquota.core.quota import MAX_AMOUNT
from regionquota.errors import ProtocolError


class Counter(msgspec.Struct, frozen=True, gc=False):
    """`overage` is what stands beyond the slice because a soft, shadow or unlimited policy let it in.

    Overdraft is what had to be let in, because the work was done; it is owed. Overage just has to go.
    """

    slice: int = 0
    available: int = 0
    reserved: int = 0
    used: int = 0
    retired: int = 0
    overdraft_issued: int = 0
    overdraft_repaid: int = 0
    overage: int = 0

    def __post_init__(self) -> None:
        issued, repaid, available, overage = self.overdraft_issued, self.overdraft_repaid, self.available, self.overage
        if self.slice + issued + overage != available + self.reserved + self.used + self.retired + repaid:
            raise ProtocolError(f"counter does not add up: {self}")
        if min(self.slice, available, self.reserved, self.used, self.retired, issued - repaid, overage) < 0:
            raise ProtocolError(f"negative balance: {self}")
        if available > 0 and (issued > repaid or overage > 0):
            raise ProtocolError(f"capacity is available while something is owed: {self}")

    @property
    def debt(self) -> int:
        return self.overdraft_issued - self.overdraft_repaid

    @property
    def in_use(self) -> int:
        return self.used + self.reserved


def reserve(counter: Counter, amount: int) -> Counter | None:
    """Hold `amount`, or None: it does not fit. Never fits while debt is open, for then nothing is available."""
    if amount > counter.available:
        return None
    return replace(counter, available=counter.available - amount, reserved=counter.reserved + amount)


def reserve_beyond(counter: Counter, amount: int) -> Counter | None:
    """Hold `amount` whether it fits or not, the shortfall as overage; None: no balance could store it."""
    if counter.in_use + amount > MAX_AMOUNT:
        return None
    paid = min(counter.available, amount)
    return replace(
        counter,
        available=counter.available - paid,
        reserved=counter.reserved + amount,
        overage=counter.overage + amount - paid,
    )


def release(counter: Counter, amount: int) -> Counter:
    """Give a hold of `amount` back."""
    return _freed(counter, amount, reserved=-amount)


def settle(counter: Counter, held: int, actual: int, *, lenient: bool = False) -> Counter:
    """Turn a hold into usage. What was held too much is freed; what was held too little is charged (see `charge`)."""
    if actual <= held:
        return _freed(counter, held - actual, reserved=-held, used=actual)
    settled = replace(counter, reserved=counter.reserved - held, used=counter.used + held)
    return charge(settled, actual - held, lenient=lenient)


def can_charge(counter: Counter, amount: int) -> bool:
    """Whether every balance could still be stored after a charge of `amount`, or after settling that much too much."""
    overdraft = max(0, amount - counter.available)
    return max(counter.in_use + amount, counter.overdraft_issued + overdraft) <= MAX_AMOUNT


def charge(counter: Counter, amount: int, *, lenient: bool = False) -> Counter:
    """Record usage that nothing was held for: out of what is available, the remainder as overdraft.

    `lenient`: as overage, where no limit is enforced.
    """
    paid = min(counter.available, amount)
    beyond = amount - paid
    return replace(
        counter,
        available=counter.available - paid,
        used=counter.used + amount,
        overdraft_issued=counter.overdraft_issued + (0 if lenient else beyond),
        overage=counter.overage + (beyond if lenient else 0),
    )


def refund(counter: Counter, amount: int) -> Counter:
    """Take `amount` out of what is used. Raises `ProtocolError` below zero."""
    return _freed(counter, amount, used=-amount)


def resize(counter: Counter, slice_: int) -> Counter:
    """Set the slice. A decrease takes only what is available, else raises `ProtocolError`."""
    growth = slice_ - counter.slice
    if growth >= 0:
        return _freed(counter, growth, slice_=growth)
    return replace(counter, slice=slice_, available=counter.available + growth)


def dispossess(counter: Counter, slice_: int, *, lenient: bool = False) -> Counter:
    """Take a slice away although it is in use: what is beyond the new one is owed, or just has to go if `lenient`.

    For a slice that is not ours, which only a database that has lost commits can hold.
    """
    taken = counter.slice - slice_
    beyond = max(0, taken - counter.available)
    return replace(
        counter,
        slice=slice_,
        available=counter.available - (taken - beyond),
        overdraft_issued=counter.overdraft_issued + (0 if lenient else beyond),
        overage=counter.overage + (beyond if lenient else 0),
    )


def carry_debt(closed: Counter, current: Counter) -> tuple[Counter, Counter]:
    """Move the debt of an ended epoch into the current one: the units that were overdrawn are charged there instead.

    Charged once in all, and repaid by whatever frees capacity from now on.
    """
    debt = min(closed.debt, closed.used)
    if not debt:
        return closed, current
    moved = replace(closed, used=closed.used - debt, overdraft_repaid=closed.overdraft_repaid + debt)
    return moved, charge(current, debt)


def _freed(counter: Counter, amount: int, *, slice_: int = 0, reserved: int = 0, used: int = 0) -> Counter:
    """Debt is repaid before anything else, and overage has to go before anything becomes available."""
    repaid = min(counter.debt, amount)
    shed = min(counter.overage, amount - repaid)
    return Counter(
        slice=counter.slice + slice_,
        available=counter.available + amount - repaid - shed,
        reserved=counter.reserved + reserved,
        used=counter.used + used,
        retired=counter.retired,
        overdraft_issued=counter.overdraft_issued,
        overdraft_repaid=counter.overdraft_repaid + repaid,
        overage=counter.overage - shed,
    )
