"""The last denial of each quota that this server has answered, for whoever asks why."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from regionquota.core.commands import Denied
from regionquota.core.quota import QuotaKey, Region

MOST: Final = 10_000
"""Quotas remembered; beyond it the longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class Pool:
    """As a region has heard of it: `units` (below 0: more is owned than the limit), of which it may claim
    `within_reach`, if it `takes_part`; and what others lack of their floors, `below_floor`, is kept for them.
    """

    units: int
    within_reach: int
    takes_part: bool
    below_floor: Collection[Region]


@dataclass(frozen=True, slots=True)
class Denial:
    """`at` in seconds since 1970; `answer` has limit, policy and balances of that moment, `pool` None is unknown."""

    at: float
    answer: Denied
    pool: Pool | None


class Denials:
    def __init__(self) -> None:
        self._last: OrderedDict[QuotaKey, Denial] = OrderedDict()

    def note(self, asked: QuotaKey, denied: Denied, now: float, pool: Pool | None) -> None:
        """The request was made for `asked`; another quota that is charged with it may have denied it."""
        for key in {asked, denied.holding.key}:
            self._last[key] = Denial(now, denied, pool)
            self._last.move_to_end(key)
            if len(self._last) > MOST:
                self._last.popitem(last=False)

    def last(self, key: QuotaKey) -> Denial | None:
        return self._last.get(key)
