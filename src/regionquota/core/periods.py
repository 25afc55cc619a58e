"""Accounting epochs: which period an instant belongs to.

An epoch is an integer that never falls. Allocated quotas live in epoch 0 for ever; a consumable quota's epoch
counts calendar months (UTC) since the year 0.
"""

from datetime import UTC, datetime
from typing import Final, TypeAlias

from regionquota.core.quota import Kind

Epoch: TypeAlias = int
TIMELESS: Final[Epoch] = 0


def epoch_of(kind: Kind, now: float) -> Epoch:
    """`now` is in seconds since 1970, UTC."""
    if kind is Kind.ALLOCATED:
        return TIMELESS
    moment = datetime.fromtimestamp(now, UTC)
    return moment.year * 12 + moment.month - 1


def start_of(epoch: Epoch) -> datetime:
    """The first instant of a month's epoch."""
    year, month = divmod(epoch, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)


def period_end(kind: Kind, epoch: Epoch) -> datetime | None:
    """The first instant after `epoch`; None where periods have no end."""
    return None if kind is Kind.ALLOCATED else start_of(epoch + 1)
