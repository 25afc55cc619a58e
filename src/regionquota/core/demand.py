"""What a region tells the coordinator of a quota, and what the coordinator makes of several such words.

Advisory throughout: nothing that keeps slices within the limit reads it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from regionquota.core.periods import TIMELESS, Epoch
from regionquota.core.quota import QuotaKey, Region

_SHORTEST_S: Final = 1e-3
"""What is said of a shorter time is taken for said of so long, as rates go by it."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """One region server's word. `granted`, `denied` are units since its last report, `seconds` long; `largest` is the
    most that anybody asked for at once; `at` is the region's time of these words, in seconds since 1970, 0 if unknown.
    Of the units denied, `denied_high` and `denied_low` were asked for at that priority.

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
    denied_high: int = 0
    denied_low: int = 0
    expected: float = 0.0
    deviation: float = 0.0


class Need(msgspec.Struct, frozen=True, gc=False):
    """One region's state in one quota, as the planner takes it. Rates are units per second, seen over `seconds`;
    `growth` is what was granted less what was freed, `turnover` both together. `expected` and `deviation` are foreseen
    (`forecast.Foreseen`), 0 if nothing is.
    """

    in_use: int = 0
    growth: float = 0.0
    denied: float = 0.0
    seconds: float = math.inf
    largest: int = 0
    denied_high: float = 0.0
    denied_low: float = 0.0
    expected: float = 0.0
    deviation: float = 0.0
    turnover: float = 0.0


def needs(
    reports: Iterable[tuple[Region, Demand]], now: float | None = None
) -> Mapping[QuotaKey, Mapping[Region, Need]]:
    """Of each quota: see `needs_of`."""
    return {key: needs_of(words, now) for key, words in by_quota(reports).items()}


def by_quota(reports: Iterable[tuple[Region, Demand]]) -> Mapping[QuotaKey, Sequence[tuple[Region, Demand]]]:
    sorted_out: dict[QuotaKey, list[tuple[Region, Demand]]] = {}
    for one in reports:
        key = one[1].key
        if key in sorted_out:
            sorted_out[key].append(one)
        else:
            sorted_out[key] = [one]
    return sorted_out


def needs_of(words: Sequence[tuple[Region, Demand]], now: float | None = None) -> Mapping[Region, Need]:
    """Sum up what the several servers of each region said of one quota; what they said a while ago as it will be `now`.

    Balances and what is foreseen come out of one database, so the largest word is taken; rates are each server's own
    and add up. What was in use in an accounting epoch that is over for anybody is so no more.
    """
    newest = max([demand.epoch for _, demand in words], default=TIMELESS)
    summed: dict[Region, Need] = {}
    for region, demand in words:
        word = _need(demand, newest, now)
        summed[region] = _added(summed[region], word) if region in summed else word
    return summed


def _need(demand: Demand, newest: Epoch, now: float | None) -> Need:
    seconds = demand.seconds if demand.seconds > _SHORTEST_S else _SHORTEST_S
    growth = (demand.granted - demand.freed) / seconds
    in_use = 0
    if demand.epoch == newest:
        in_use = demand.used + demand.reserved
        if growth > 0 and now is not None and demand.at and in_use < demand.slice:
            since = now - demand.at
            in_use = _grown(in_use, growth, since if since < seconds else seconds, demand.slice)
    high = low = 0.0
    if demand.denied_high or demand.denied_low:
        high, low = (units / seconds for units in _by_priority(demand))
    return Need(
        in_use,
        growth,
        demand.denied / seconds,
        seconds,
        demand.largest,
        high,
        low,
        demand.expected,
        demand.deviation,
        (demand.granted + demand.freed) / seconds,
    )


def _grown(in_use: int, growth: float, since: float, slice_: int) -> int:
    """It has gone on growing `since`, for as long again as was counted at most, and within the slice.

    That bounds what a clock that is wrong can do.
    """
    if since <= 0:
        return in_use
    grown = in_use + int(growth * since)
    return grown if grown < slice_ else slice_


def _added(one: Need, other: Need) -> Need:
    return Need(
        max(one.in_use, other.in_use),
        one.growth + other.growth,
        one.denied + other.denied,
        max(one.seconds, other.seconds),
        max(one.largest, other.largest),
        one.denied_high + other.denied_high,
        one.denied_low + other.denied_low,
        max(one.expected, other.expected),
        max(one.deviation, other.deviation),
        one.turnover + other.turnover,
    )


LAST_TURN: Final = 2


class Refused(Protocol):
    """Units, or units per second."""

    @property
    def denied(self) -> float: ...
    @property
    def denied_high(self) -> float: ...
    @property
    def denied_low(self) -> float: ...


def turn_of(said: Refused) -> int:
    """Who runs short is served in this order: 0 where something is denied at high priority, 2 where only at low."""
    if said.denied_high:
        return 0
    return LAST_TURN if 0 < said.denied <= said.denied_low else 1


def _by_priority(demand: Demand) -> tuple[int, int]:
    """What of `denied` was asked for at high and at low priority: together no more than that, whatever a word says."""
    high = min(demand.denied_high, demand.denied)
    return high, min(demand.denied_low, demand.denied - high)
