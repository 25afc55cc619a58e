"""The usage ledger's lines: what explains every change of a balance."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

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


class Cause(NamedTuple):
    """Why a balance changed: time and references for the ledger."""

    kind: EntryKind
    at: float
    reservation_id: str | None = None
    request_id: str | None = None
    reason: str = ""


class Entry(msgspec.Struct, frozen=True, gc=False):
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
    if (
        changed.used == before.used
        and changed.overdraft_issued == before.overdraft_issued
        and changed.overdraft_repaid == before.overdraft_repaid
    ):
        return ()
    deltas = (
        (cause.kind, changed.used - before.used),
        (EntryKind.OVERDRAFT, changed.overdraft_issued - before.overdraft_issued),
        (EntryKind.REPAY, changed.overdraft_repaid - before.overdraft_repaid),
    )
    return [
        Entry(key, epoch, kind, delta, cause.at, cause.reservation_id, cause.request_id, cause.reason)
        for kind, delta in deltas
        if delta
    ]
