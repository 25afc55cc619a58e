"""Demand made up from a seed: a day that follows the sun, and when within a bin each unit is asked for."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from regionquota.core.quota import Region
from regionquota.replay.trace import Trace

NIGHT: Final = 0.15
"""Demand at the quietest hour, as a share of that at the busiest."""
NOISE: Final = 0.1
BURST_CHANCE: Final = 0.02
BURST_SIZE: Final = (2.0, 5.0)
BURST_BINS: Final = (2, 6)


def follow_the_sun(regions: Sequence[Region], *, bins: int, mean: float, seed: int, days: int = 1) -> Trace:
    """`days` in `bins` bins. The regions' noons are spread evenly over it; `mean` units per bin and region, about.

    Now and then one region's demand is several times higher for a few bins: that is what static shares cannot serve.
    """
    columns = [
        _day(random.Random(f"{seed}/{region}"), bins, mean, noon=at / len(regions), days=days)  # noqa: S311 - repeatable
        for at, region in enumerate(regions)
    ]
    span = "a day" if days == 1 else f"{days} days"
    note = f"demand was generated: {span} in {bins} bins that follows the sun, with bursts, seed {seed}"
    return Trace(tuple(regions), tuple(zip(*columns, strict=True)), (note,))


def _day(rng: random.Random, bins: int, mean: float, *, noon: float, days: int) -> list[int]:
    demand = []
    burst, burst_left = 1.0, 0
    for at in range(bins):
        if burst_left == 0:
            burst = 1.0
            if rng.random() < BURST_CHANCE:
                burst, burst_left = rng.uniform(*BURST_SIZE), rng.randint(*BURST_BINS)
        burst_left = max(0, burst_left - 1)
        sun = (1 + math.cos(2 * math.pi * (at * days / bins - noon))) / 2
        level = mean * 2 * (NIGHT + (1 - NIGHT) * sun) / (1 + NIGHT)
        demand.append(max(0, round(level * burst * rng.gauss(1, NOISE))))
    return demand


@dataclass(frozen=True, slots=True)
class Arrival:
    """`at` seconds after the start; `releases`: the unit is released instead of committed."""

    at: float
    releases: bool


def arrivals(trace: Trace, at: int, *, bin_s: float, release_share: float, seed: int) -> Iterator[Arrival]:
    """When units are asked for in the region at place `at`, ascending: evenly over each bin, jittered."""
    rng = random.Random(f"{seed}/{trace.regions[at]}/arrivals")  # noqa: S311 - repeatable, not secret
    for number, demand in enumerate(trace.demand):
        units = demand[at]
        for nth in range(units):
            yield Arrival((number + (nth + rng.random()) / units) * bin_s, rng.random() < release_share)
