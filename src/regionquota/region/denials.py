"""The last denial of each quota that this server has answered, for whoever asks why."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from regionquota.core.commands import Denied
from regionquota.core.quota import QuotaKey

MOST: Final = 10_000
"""Quotas remembered; beyond it the longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class Denial:
    """`at` in seconds since 1970; the balances are those at that moment. `kept` of them were for higher priorities."""

    at: float
    reason: str
    priority: str
    amount: int
    kept: int
    available: int
    slice: int
    pool: int | None


class Denials:
    def __init__(self) -> None:
        self._last: OrderedDict[QuotaKey, Denial] = OrderedDict()

    def note(self, denied: Denied, now: float, pool: int | None) -> None:
        """`pool` is what was heard of it; None: nothing."""
        counter = denied.holding.counter
        key = denied.holding.key
        self._last[key] = Denial(
            at=now,
            reason=denied.reason.value,
            priority=denied.priority.value,
            amount=denied.amount,
            kept=denied.kept,
            available=counter.available,
            slice=counter.slice,
            pool=pool,
        )
        self._last.move_to_end(key)
        if len(self._last) > MOST:
            self._last.popitem(last=False)

    def last(self, key: QuotaKey) -> Denial | None:
        return self._last.get(key)
