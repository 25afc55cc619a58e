"""When how much is asked for, where: from a trace, from a list of requests, or made up. The same seed, the same demand."""

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest
from regionquota.replay.generate import follow_the_sun
from regionquota.replay.trace import Trace, read_trace
from regionquota.simulator.scenario import MAX_REQUESTS, DemandPart, Scenario


@dataclass(frozen=True, slots=True)
class Request:
    """`units` are reserved, `used` of them are used."""

    at: float
    region: int
    units: int = 1
    used: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """In the order of time. `limit` holds for each bin of `bin_s` seconds."""

    regions: tuple[Region, ...]
    requests: Sequence[Request]
    limit: int
    bin_s: float
    bins: int
    notes: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        return self.bins * self.bin_s


def workload(scenario: Scenario, directory: Path) -> Workload:
    """Paths are relative to the scenario's `directory`. Raises `InvalidRequest`."""
    regions = tuple(scenario.regions)
    demand = scenario.demand
    if demand.requests is not None:
        requests, bins, notes = _single(directory / demand.requests, demand, regions)
    else:
        trace = _trace(demand, regions, directory, scenario.seed)
        requests, bins, notes = _spread(trace, demand.bin_s, scenario.seed), len(trace.demand), trace.notes
    total = sum(request.used for request in requests)
    limit = scenario.quota.limit
    if limit is None:
        limit = round(scenario.quota.limit_factor * total / bins)
    return Workload(regions, requests, limit, demand.bin_s, bins, notes)


def _trace(demand: DemandPart, regions: tuple[Region, ...], directory: Path, seed: int) -> Trace:
    if demand.trace is not None:
        return read_trace(directory / demand.trace, regions, scale=demand.scale, skip=demand.skip, most=demand.bins)
    mean = demand.mean * demand.scale
    if demand.shape == "follow_the_sun":
        return follow_the_sun(regions, bins=demand.bins, mean=mean, seed=seed)
    rng = random.Random(f"{seed}/demand")  # noqa: S311 - repeatable, not secret
    bins = [_bin(demand, number, len(regions), mean, rng) for number in range(demand.bins)]
    return Trace(regions, tuple(bins), (f"demand was generated: {demand.shape}, seed {seed}",))


def _bin(demand: DemandPart, number: int, regions: int, mean: float, rng: random.Random) -> tuple[int, ...]:
    place = number / demand.bins
    levels = []
    for region in range(regions):
        level = mean
        if demand.shape == "drift":
            level = mean * (1 + math.sin(2 * math.pi * (2 * place + region / regions)))
        elif demand.shape == "bursts" and rng.random() < 0.05:
            level = mean * demand.factor
        elif demand.shape == "idle_then_jump":
            busy = region == int(place * regions) % regions
            level = mean if busy else mean / demand.factor
        levels.append(max(0, round(rng.gauss(level, math.sqrt(level)))))
    return tuple(levels)


def _spread(trace: Trace, bin_s: float, seed: int) -> list[Request]:
    """Units are asked for one by one, at random within their bin."""
    if trace.units > MAX_REQUESTS:
        raise InvalidRequest(
            "demand", f"the scenario asks for {trace.units:,} units, at most {MAX_REQUESTS:,} are simulated"
        )
    rng = random.Random(f"{seed}/arrivals")  # noqa: S311 - repeatable, not secret
    requests = [
        Request((number + rng.random()) * bin_s, region)
        for number, row in enumerate(trace.demand)
        for region, units in enumerate(row)
        for _ in range(units)
    ]
    requests.sort(key=lambda request: (request.at, request.region))
    return requests


def _single(path: Path, demand: DemandPart, regions: Sequence[Region]) -> tuple[list[Request], int, Sequence[str]]:
    """Requests go round robin over the regions. The estimate is what is known before: the second column, and `most`."""
    found: list[Request] = []
    first: float | None = None
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            for number, row in enumerate(csv.reader(lines)):
                if number == 0 or not row:
                    continue
                at, known, more = _parse(row, number + 1)
                first = at if first is None else first
                used = known + more
                units = max(used, known + demand.most) if demand.most else used
                found.append(Request(at - first, len(found) % len(regions), units, used))
    except OSError as error:
        raise InvalidRequest("demand", f"cannot read {path}: {error.strerror}") from error
    if not found:
        raise InvalidRequest("demand", f"{path} has no requests")
    found.sort(key=lambda request: request.at)
    bins = min(demand.bins, math.ceil((found[-1].at + 1e-9) / demand.bin_s))
    note = f"{len(found):,} requests, round robin over {len(regions)} regions"
    return [request for request in found if request.at < bins * demand.bin_s], bins, (note,)


def _parse(row: Sequence[str], line: int) -> tuple[float, int, int]:
    try:
        text = row[0].strip()
        at = float(text) if text.replace(".", "").isdigit() else datetime.fromisoformat(text[:26]).timestamp()
        return at, int(row[1]), int(row[2])
    except (ValueError, IndexError) as error:
        raise InvalidRequest("demand", f"line {line}: a time, and two whole numbers are needed: {error}") from error
