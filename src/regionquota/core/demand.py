"""What a region tells the coordinator of a quota, and what the coordinator makes of several such words.

Advisory throughout: nothing that keeps slices within the limit reads it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regionquota.core.periods import TIMELESS, Epoch
from regionquota.core.quota import QuotaKey, Region


@dataclass(frozen=True, slots=True)
class Demand:
    """One region server's word. `granted`, `denied` are units since its last report, `seconds` long.

    `freed` are units given back in that time (release, expiry, negative adjustment); `epoch` is the accounting
    period of `used`.
    """

    key: QuotaKey
    slice: int
    used: int
    reserved: int
    granted: int = 0
    freed: int = 0
    denied: int = 0
    seconds: float = 0.0
    epoch: Epoch = TIMELESS


@dataclass(frozen=True, slots=True)
class Need:
    """One region's state in one quota, as the planner takes it. Rates are units per second, seen over `seconds`."""

    in_use: int = 0
    growth: float = 0.0
    denied: float = 0.0
    seconds: float = math.inf


def needs(reports: Iterable[tuple[Region, Demand]]) -> Mapping[QuotaKey, Mapping[Region, Need]]:
    """Sum up what the several servers of each region said.

    Balances come out of one database, so the largest word is taken; rates are each server's own and add up.
    """
    summed: dict[QuotaKey, dict[Region, Need]] = {}
    for region, demand in reports:
        seconds = max(demand.seconds, 1e-3)
        known = summed.setdefault(demand.key, {}).get(region, Need(seconds=0.0))
        summed[demand.key][region] = Need(
            in_use=max(known.in_use, demand.used + demand.reserved),
            growth=known.growth + (demand.granted - demand.freed) / seconds,
            denied=known.denied + demand.denied / seconds,
            seconds=max(known.seconds, seconds),
        )
    return summed
