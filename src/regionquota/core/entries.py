"""The usage ledger's lines: what explains every change of a balance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from regionquota.core.counter import Counter
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey


class EntryKind(StrEnum):
    """OVERDRAFT sums to what was issued, REPAY to what was repaid, all the others to `used`."""

    COMMIT = "commit"
    LATE_COMMIT = "late_commit"
    ADJUST = "adjust"
    RECONCILE = "reconcile"
    METER = "meter"
    CARRY = "carry"
    """Overdrawn units that move from an ended epoch to the current one."""
    REFILL = "refill"
    """What leaked away of a rate quota's usage."""
    OVERDRAFT = "overdraft"
    REPAY = "repay"


USAGE: Final = frozenset(EntryKind) - {EntryKind.OVERDRAFT, EntryKind.REPAY}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a balance changed: time and references for the ledger."""

    kind: EntryKind
    at: float
    reservation_id: str | None = None
    request_id: str | None = None
    reason: str = ""


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


def entries_of(key: QuotaKey, epoch: Epoch, before: Counter, changed: Counter, cause: Cause) -> Sequence[Entry]:
    """The lines that explain how `before` became `changed`."""
    deltas = (
        (cause.kind, changed.used - before.used),
        (EntryKind.OVERDRAFT, changed.overdraft_issued - before.overdraft_issued),
        (EntryKind.REPAY, changed.overdraft_repaid - before.overdraft_repaid),
    )
    found = [(kind, delta) for kind, delta in deltas if delta]
    if not found:
        return ()
    first = Entry(key, epoch, *found[0], cause.at, cause.reservation_id, cause.request_id, cause.reason)
    return [first, *(replace(first, kind=kind, delta=delta) for kind, delta in found[1:])]
