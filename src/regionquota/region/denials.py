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
    """`at` in seconds since 1970; the balances are those at that moment."""

    at: float
    reason: str
    amount: int
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
        self._last[key] = Denial(now, denied.reason.value, denied.amount, counter.available, counter.slice, pool)
        self._last.move_to_end(key)
        if len(self._last) > MOST:
            self._last.popitem(last=False)

    def last(self, key: QuotaKey) -> Denial | None:
        return self._last.get(key)
