"""Demand made up from a seed, by bin and region."""

import math
import random
from collections.abc import Sequence
from typing import Final

from regionquota.replay.generate import follow_the_sun
from regionquota.replay.trace import Trace
from regionquota.simulator.scenario import DemandPart

BURST_CHANCE: Final = 0.05
SPIKE_CHANCE: Final = 0.01
SPIKE_BINS: Final = (2, 5)
SPIKE_SIZE: Final = (3.0, 6.0)
STEP: Final = 0.1
"""By how much of itself a client's demand drifts in a bin, about."""
STRAYS: Final = (0.2, 3.0)
"""How far it drifts from the mean, as a multiple of it."""


def shaped(demand: DemandPart, regions: Sequence[str], seed: int) -> Trace:
    """`demand.shape` or `demand.rates` must be given."""
    mean = demand.mean * demand.scale
    if demand.shape == "follow_the_sun":
        return follow_the_sun(regions, bins=demand.made_up_bins, mean=mean, seed=seed, days=demand.days)
    rng = random.Random(f"{seed}/demand")  # noqa: S311 - repeatable, not secret
    if demand.rates is not None:
        levels = [[demand.rates.get(name, 0.0) * demand.bin_s * demand.scale for name in regions]] * demand.made_up_bins
    elif demand.shape == "clients":
        levels = _clients(demand.clients, demand.made_up_bins, len(regions), mean, rng)
    else:
        levels = [_levels(demand, number, len(regions), mean, rng) for number in range(demand.made_up_bins)]
    bins = [tuple(max(0, round(rng.gauss(level, math.sqrt(level)))) for level in row) for row in levels]
    return Trace(tuple(regions), tuple(bins), (f"demand was generated: {demand.shape or 'as it is now'}, seed {seed}",))


def _levels(demand: DemandPart, number: int, regions: int, mean: float, rng: random.Random) -> list[float]:
    """What is to be expected in bin `number`."""
    place = number / demand.made_up_bins
    busy = int(place * regions)
    match demand.shape:
        case "drift":
            return [mean * (1 + math.sin(2 * math.pi * (2 * place + one / regions))) for one in range(regions)]
        case "bursts":
            return [mean * (demand.factor if rng.random() < BURST_CHANCE else 1.0) for _ in range(regions)]
        case "idle_then_jump":
            return [mean if one == busy else mean / demand.factor for one in range(regions)]
        case _:
            return [mean] * regions


def _clients(clients: int, bins: int, regions: int, mean: float, rng: random.Random) -> list[list[float]]:
    """Each client's demand drifts, and jumps now and then; clients are spread evenly over the regions."""
    levels = [[0.0] * regions for _ in range(bins)]
    for client in range(clients):
        drifted, spike, left = rng.uniform(0.5, 1.5), 1.0, 0
        for row in levels:
            drifted = min(max(drifted * math.exp(rng.gauss(0, STEP)), STRAYS[0]), STRAYS[1])
            if left == 0:
                spike = 1.0
                if rng.random() < SPIKE_CHANCE:
                    spike, left = rng.uniform(*SPIKE_SIZE), rng.randint(*SPIKE_BINS)
            left = max(0, left - 1)
            row[client % regions] += mean * regions / clients * drifted * spike
    return levels
