"""One counter: a region's slice of a quota in one accounting epoch, and how it is spent.

    slice + overdraft_issued = available + reserved + used + retired + overdraft_repaid
    debt = overdraft_issued - overdraft_repaid;  available > 0 only while debt = 0

Both hold after every function here; Postgres states them again as CHECK constraints.
"""

from dataclasses import dataclass, replace

from regionquota.core.quota import MAX_AMOUNT
from regionquota.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Counter:
    slice: int = 0
    available: int = 0
    reserved: int = 0
    used: int = 0
    retired: int = 0
    overdraft_issued: int = 0
    overdraft_repaid: int = 0

    def __post_init__(self) -> None:
        owed = self.slice + self.overdraft_issued
        spent = self.available + self.reserved + self.used + self.retired + self.overdraft_repaid
        if owed != spent:
            raise ProtocolError(f"counter does not add up: {self}")
        if min(self.slice, self.available, self.reserved, self.used, self.retired, self.debt) < 0:
            raise ProtocolError(f"negative balance: {self}")
        if self.available > 0 and self.debt > 0:
            raise ProtocolError(f"capacity is available while debt is open: {self}")

    @property
    def debt(self) -> int:
        return self.overdraft_issued - self.overdraft_repaid


def reserve(counter: Counter, amount: int) -> Counter | None:
    """Hold `amount`, or None: it does not fit. Never fits while debt is open, for then nothing is available."""
    if amount > counter.available:
        return None
    return replace(counter, available=counter.available - amount, reserved=counter.reserved + amount)


def release(counter: Counter, amount: int) -> Counter:
    """Give a hold of `amount` back."""
    return _freed(counter, amount, reserved=-amount)


def settle(counter: Counter, held: int, actual: int) -> Counter:
    """Turn a hold into usage. What was held too much is freed; what was held too little is charged."""
    if actual <= held:
        return _freed(counter, held - actual, reserved=-held, used=actual)
    settled = replace(counter, reserved=counter.reserved - held, used=counter.used + held)
    return charge(settled, actual - held)


def can_charge(counter: Counter, amount: int) -> bool:
    """Whether every balance could still be stored after a charge of `amount`, or after settling that much too much."""
    overdraft = max(0, amount - counter.available)
    return max(counter.used + counter.reserved + amount, counter.overdraft_issued + overdraft) <= MAX_AMOUNT


def charge(counter: Counter, amount: int) -> Counter:
    """Record usage that nothing was held for: out of what is available, the remainder as overdraft."""
    paid = min(counter.available, amount)
    return replace(
        counter,
        available=counter.available - paid,
        used=counter.used + amount,
        overdraft_issued=counter.overdraft_issued + amount - paid,
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


def open_counter(slice_: int, debt: int = 0) -> Counter:
    """A counter for a new epoch. The debt of the epoch before is paid out of it before anything else."""
    return charge(Counter(slice=slice_, available=slice_), debt)


def _freed(counter: Counter, amount: int, *, slice_: int = 0, reserved: int = 0, used: int = 0) -> Counter:
    """Debt is repaid before anything becomes available."""
    repaid = min(counter.debt, amount)
    return Counter(
        slice=counter.slice + slice_,
        available=counter.available + amount - repaid,
        reserved=counter.reserved + reserved,
        used=counter.used + used,
        retired=counter.retired,
        overdraft_issued=counter.overdraft_issued,
        overdraft_repaid=counter.overdraft_repaid + repaid,
    )
