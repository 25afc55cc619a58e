"""The last denial of each quota that this server has answered, for whoever asks why."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.commands import Denied
from regionquota.core.floors_and_caps import below_floor
from regionquota.core.quota import QuotaKey, Region

MOST: Final = 10_000
"""Quotas remembered; beyond it the longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class Denial:
    """`at` in seconds since 1970; `answer` has limit, policy and balances of that moment. `pool` (None: unknown) and
    the regions that were `below_floor` are as the region had heard by then.
    """

    at: float
    answer: Denied
    pool: int | None
    below_floor: Collection[Region]


class Denials:
    def __init__(self) -> None:
        self._last: OrderedDict[QuotaKey, Denial] = OrderedDict()

    def note(self, denied: Denied, now: float, known: Allocation | None) -> None:
        """`known` is what was heard of the quota; None: nothing."""
        key = denied.holding.key
        pool, lacking = (None, frozenset[Region]()) if known is None else (known.pool, below_floor(known))
        self._last[key] = Denial(now, denied, pool, lacking)
        self._last.move_to_end(key)
        if len(self._last) > MOST:
            self._last.popitem(last=False)

    def last(self, key: QuotaKey) -> Denial | None:
        return self._last.get(key)
