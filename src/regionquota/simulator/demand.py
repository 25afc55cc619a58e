"""When how much is asked for, where: from a trace, a list of requests, or made up. The same seed, the same demand."""

import csv
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest
from regionquota.replay.trace import Trace, read_columns, read_trace
from regionquota.simulator.events import Happening, happenings, is_down
from regionquota.simulator.scenario import MAX_REGIONS, MAX_REQUESTS, DemandPart, RegionPart, Scenario
from regionquota.simulator.shapes import shaped


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
    happenings: Sequence[Happening] = ()
    notes: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        return self.bins * self.bin_s


def workload(scenario: Scenario, directory: Path) -> Workload:
    """Paths are relative to `directory`. Nobody asks in a region that is down. Raises `InvalidRequest`."""
    regions = tuple(scenario.regions)
    demand = scenario.demand
    if demand.requests is not None:
        requests, bins, notes = _single(directory / demand.requests, demand, regions)
    else:
        trace = _trace(demand, regions, directory, scenario.seed)
        requests, bins, notes = _spread(trace, demand.bin_s, scenario.seed), len(trace.demand), trace.notes
    total = sum(request.used for request in requests)
    if not total:
        raise InvalidRequest("demand", "nobody asks for anything: raise demand.scale, or take other bins")
    limit = scenario.quota.limit
    if limit is None:
        limit = round(scenario.quota.limit_factor * total / bins)
    happened = happenings(scenario, regions, bins * demand.bin_s)
    asked = [request for request in requests if not is_down(happened, request.region, request.at)]
    return Workload(regions, asked, limit, demand.bin_s, bins, happened, notes)


def with_regions(scenario: Scenario, directory: Path) -> Scenario:
    """Where a scenario names no regions, the columns of its trace are its regions. Raises `InvalidRequest`."""
    if scenario.regions or scenario.demand.trace is None:
        return scenario
    named = {_as_region(column): RegionPart() for column in read_columns(directory / scenario.demand.trace)}
    if len(named) > MAX_REGIONS:
        raise InvalidRequest(
            "trace", f"the trace has {len(named)} columns of demand, at most {MAX_REGIONS} are simulated"
        )
    return replace(scenario, regions=named)


def _as_region(column: str) -> Region:
    return re.sub(r"[^a-z0-9_-]", "-", column.lower())[:63]


def _trace(demand: DemandPart, regions: tuple[Region, ...], directory: Path, seed: int) -> Trace:
    if demand.trace is None:
        return shaped(demand, regions, seed)
    return read_trace(directory / demand.trace, regions, scale=demand.scale, skip=demand.skip, most=demand.bins)


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
