"""When how much is asked for, where: from a trace, a list of requests, or made up. The same seed, the same demand."""

import csv
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from msgspec import structs

from regionquota.core.policy import Priority
from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest
from regionquota.replay.trace import MAX_UNITS, Trace, read_columns, read_trace
from regionquota.simulator.events import Happening, happenings, is_down
from regionquota.simulator.scenario import MAX_REGIONS, MAX_REQUESTS, DemandPart, RegionPart, Scenario, share_by_region
from regionquota.simulator.shapes import shaped


@dataclass(frozen=True, slots=True)
class Request:
    """`units` are reserved, `used` of them are used."""

    at: float
    region: int
    units: int = 1
    used: int = 1
    priority: Priority = Priority.NORMAL


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


def workload(scenario: Scenario, directory: Path, assumed: Sequence[str] = ()) -> Workload:
    """Paths are relative to `directory`. Nobody asks in a region that is down. Raises `InvalidRequest`."""
    regions = tuple(scenario.regions)
    demand = scenario.demand
    if demand.requests is not None:
        requests, bins, notes = _single(directory / demand.requests, demand, regions)
    else:
        trace = _trace(demand, regions, directory, scenario.seed)
        requests, bins, notes = _spread(trace, demand.bin_s, scenario.seed), len(trace.demand), trace.notes
    requests = _with_priorities(requests, demand, regions, scenario.seed)
    total = sum(request.used for request in requests)
    if not total:
        raise InvalidRequest("demand", "nobody asks for anything: raise demand.scale, or take other bins")
    limit = scenario.quota.limit
    if limit is None:
        limit = round(scenario.quota.limit_factor * total / bins)
    if (floors := sum(rules.floor for rules in scenario.quota.regions.values())) > limit:
        raise InvalidRequest("quota", f"quota.regions: the floors add up to {floors:,}, above the limit {limit:,}")
    happened = happenings(scenario, regions, bins * demand.bin_s)
    asked = [request for request in requests if not is_down(happened, request.region, request.at)]
    return Workload(regions, asked, limit, demand.bin_s, bins, happened, (*notes, *assumed))


def with_regions(scenario: Scenario, directory: Path) -> Scenario:
    """Where a scenario names no regions, the columns of its trace are its regions. Raises `InvalidRequest`."""
    if scenario.regions or scenario.demand.trace is None:
        return scenario
    named = {_as_region(column): RegionPart() for column in read_columns(directory / scenario.demand.trace)}
    if len(named) > MAX_REGIONS:
        raise InvalidRequest(
            "trace", f"the trace has {len(named)} columns of demand, at most {MAX_REGIONS} are simulated"
        )
    return structs.replace(scenario, regions=named)


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


def _with_priorities(
    requests: list[Request], demand: DemandPart, regions: Sequence[Region], seed: int
) -> list[Request]:
    """Each is of one by chance."""
    if not demand.high and not demand.low:
        return requests
    high, low = (share_by_region(one, regions) for one in (demand.high, demand.low))
    shares = [(high.get(name, 0.0), low.get(name, 0.0)) for name in regions]
    rng = random.Random(f"{seed}/priorities")  # noqa: S311 - repeatable, not secret
    found = []
    for request in requests:
        above, below = shares[request.region]
        drawn = rng.random()
        priority = Priority.HIGH if drawn < above else Priority.LOW if drawn >= 1 - below else Priority.NORMAL
        found.append(replace(request, priority=priority))
    return found


def _single(path: Path, demand: DemandPart, regions: Sequence[Region]) -> tuple[list[Request], int, Sequence[str]]:
    """Requests go round robin over the regions. The estimate is what is known before: the second column, and `most`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = [_parse(row, number) for number, row in enumerate(csv.reader(lines), 1) if row and number > 1]
    except OSError as error:
        raise InvalidRequest("demand", f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest("demand", f"{path} is not CSV in UTF-8: {error}") from error
    if not 0 < len(rows) <= MAX_REQUESTS:
        raise InvalidRequest("demand", f"{path} has {len(rows):,} requests: from 1 to {MAX_REQUESTS:,} are simulated")
    rows.sort(key=lambda row: row[0])
    begin = rows[0][0]
    bins = min(demand.bins, int((rows[-1][0] - begin) // demand.bin_s) + 1)
    found = []
    for number, (at, known, more) in enumerate(rows):
        if at - begin >= bins * demand.bin_s:
            break
        units = max(1, known + max(more, demand.most))
        found.append(Request(at - begin, number % len(regions), units, known + more))
    note = f"{len(found):,} requests, round robin over {len(regions)} regions"
    return found, bins, (note,)


def _parse(row: Sequence[str], line: int) -> tuple[float, int, int]:
    try:
        text = row[0].strip()
        at = float(text) if text.replace(".", "").isdigit() else datetime.fromisoformat(text[:26]).timestamp()
        known, more = int(row[1]), int(row[2])
    except (ValueError, IndexError) as error:
        raise InvalidRequest("demand", f"line {line}: a time, and two whole numbers are needed: {error}") from error
    if not (0 <= known <= MAX_UNITS and 0 <= more <= MAX_UNITS):
        raise InvalidRequest("demand", f"line {line}: units must be from 0 to {MAX_UNITS:,}, got {known} and {more}")
    return at, known, more
