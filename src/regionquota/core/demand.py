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
    """One region server's word. `granted`, `denied` are units since its last report, `seconds` long; `largest` is the
    most that anybody asked for at once; `at` is the region's time of these words, in seconds since 1970, 0 if unknown.

    `freed` are units given back in that time (release, expiry, negative adjustment); `epoch` is the accounting
    period of `used`. `expected`, `deviation`: what it foresees (`forecast.Foreseen`), 0 if it learnt nothing.
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
    largest: int = 0
    at: float = 0.0
    expected: float = 0.0
    deviation: float = 0.0


class Need(NamedTuple):
    """One region's state in one quota, as the planner takes it. Rates are units per second, seen over `seconds`;
    `expected` and `deviation` are foreseen (`forecast.Foreseen`), 0 if nothing is.
    """

    in_use: int = 0
    growth: float = 0.0
    denied: float = 0.0
    seconds: float = math.inf
    largest: int = 0
    expected: float = 0.0
    deviation: float = 0.0


def needs(
    reports: Iterable[tuple[Region, Demand]], now: float | None = None
) -> Mapping[QuotaKey, Mapping[Region, Need]]:
    """Sum up what the several servers of each region said; what they said a while ago as it will be `now`.

    Balances and what is foreseen come out of one database, so the largest word is taken; rates are each server's own
    and add up. What was in use in an accounting epoch that is over for anybody is so no more.
    """
    said = list(reports)
    newest: dict[QuotaKey, Epoch] = {}
    for _, demand in said:
        if demand.epoch > newest.get(demand.key, TIMELESS - 1):
            newest[demand.key] = demand.epoch
    summed: dict[QuotaKey, dict[Region, Need]] = {key: {} for key in newest}
    for region, demand in said:
        seconds = max(demand.seconds, 1e-3)
        in_use = _in_use(demand, seconds, now) if demand.epoch == newest[demand.key] else 0
        growth, denied = (demand.granted - demand.freed) / seconds, demand.denied / seconds
        word = Need(in_use, growth, denied, seconds, demand.largest, demand.expected, demand.deviation)
        regions = summed[demand.key]
        known = regions.get(region)
        regions[region] = word if known is None else _added(known, word)
    return summed


def _in_use(demand: Demand, seconds: float, now: float | None) -> int:
    """It has gone on growing since, for as long again as was counted at most, and within the slice.

    That bounds what a clock that is wrong can do.
    """
    said = demand.used + demand.reserved
    if now is None or not demand.at:
        return said
    since = min(max(0.0, now - demand.at), seconds)
    grown = max(0, demand.granted - demand.freed) / seconds * since
    return max(said, min(said + int(grown), demand.slice))


def _added(one: Need, other: Need) -> Need:
    return Need(
        max(one.in_use, other.in_use),
        one.growth + other.growth,
        one.denied + other.denied,
        max(one.seconds, other.seconds),
        max(one.largest, other.largest),
        max(one.expected, other.expected),
        max(one.deviation, other.deviation),
    )
