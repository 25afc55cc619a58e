"""The quotas that are explored: a whole, and a part of it that is charged to both."""

from typing import Final

from regionquota.core.policy import QuotaPolicy, Refill
from regionquota.core.quota import Kind, QuotaKey, Region

WHOLE: Final = QuotaKey("acme", "units")
PART: Final = QuotaKey("acme", "units", "part")
QUOTAS: Final = (WHOLE, PART)
LIMITS: Final = {WHOLE: 12, PART: 8}
REGIONS: Final[tuple[Region, ...]] = ("ap", "eu", "us")
MONTH_ENDS: Final = 1_782_864_000.0
"""2026-07-01 00:00 UTC."""


def policy_of(kind: Kind, guarantee: int) -> QuotaPolicy:
    refill = Refill(amount=6, interval_s=30, per=LIMITS[WHOLE]) if kind is Kind.RATE else None
    return QuotaPolicy(refill=refill, guarantee=guarantee)
