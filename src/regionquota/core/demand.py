"""What a region tells the coordinator of a quota, and what the coordinator makes of several such words.

Advisory throughout: nothing that keeps slices within the limit reads it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


class Need(NamedTuple):
    """One region's state in one quota, as the planner takes it. Rates are units per second, seen over `seconds`."""

    in_use: int = 0
    growth: float = 0.0
    denied: float = 0.0
    seconds: float = math.inf


def needs(reports: Iterable[tuple[Region, Demand]]) -> Mapping[QuotaKey, Mapping[Region, Need]]:
    """Sum up what the several servers of each region said.

    Balances come out of one database, so the largest word is taken; rates are each server's own and add up. What was
    in use in an accounting epoch that is over for anybody is so no more.
    """
    said = list(reports)
    newest: dict[QuotaKey, Epoch] = {}
    for _, demand in said:
        if demand.epoch > newest.get(demand.key, TIMELESS - 1):
            newest[demand.key] = demand.epoch
    summed: dict[QuotaKey, dict[Region, Need]] = {key: {} for key in newest}
    for region, demand in said:
        seconds = max(demand.seconds, 1e-3)
        in_use = demand.used + demand.reserved if demand.epoch == newest[demand.key] else 0
        word = Need(in_use, (demand.granted - demand.freed) / seconds, demand.denied / seconds, seconds)
        regions = summed[demand.key]
        known = regions.get(region)
        regions[region] = word if known is None else _added(known, word)
    return summed


def _added(one: Need, other: Need) -> Need:
    return Need(
        max(one.in_use, other.in_use),
        one.growth + other.growth,
        one.denied + other.denied,
        max(one.seconds, other.seconds),
    )
