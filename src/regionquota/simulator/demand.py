"""When how much is asked for, where: from a trace, a list of requests, or made up. The same seed, the same demand."""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from regionquota.config import nearest
from regionquota.core.policy import Priority
from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest
from regionquota.replay.trace import Trace, read_columns, read_trace
from regionquota.simulator.checks import doubts, refuse_strangers
from regionquota.simulator.events import Happening, happenings, is_down
from regionquota.simulator.scenario import (
    MAX_BINS,
    MAX_REGIONS,
    MAX_REQUESTS,
    DemandPart,
    RegionPart,
    Scenario,
    share_by_region,
)
from regionquota.simulator.shapes import shaped
from regionquota.simulator.single_requests import read_requests


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
    """In the order of time. `limit` holds for each bin of `bin_s` seconds. `notes` say what was made of the input,
    `warnings` what of it changes nothing.
    """

    regions: tuple[Region, ...]
    requests: Sequence[Request]
    limit: int
    bin_s: float
    bins: int
    happenings: Sequence[Happening] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def seconds(self) -> float:
        return self.bins * self.bin_s


def workload(scenario: Scenario, directory: Path, assumed: Sequence[str] = ()) -> Workload:
    """Paths are relative to `directory`. Nobody asks in a region that is down. Raises `InvalidRequest`."""
    regions = tuple(scenario.regions)
    demand = scenario.demand
    if demand.requests is not None:
        with _field("demand.requests"):
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
        if not limit:
            raise InvalidRequest("quota", "the limit comes to 0 units for each bin: raise quota.limit_factor")
    if (floors := sum(rules.floor for rules in scenario.quota.regions.values())) > limit:
        raise InvalidRequest(
            "quota",
            f"quota.regions: the floors add up to {floors:,}, above the limit {limit:,}: lower them, or raise it",
        )
    happened = happenings(scenario, regions, bins * demand.bin_s)
    asked = [request for request in requests if not is_down(happened, request.region, request.at)]
    warnings = tuple(doubts(scenario, bins))
    return Workload(regions, asked, limit, demand.bin_s, bins, happened, (*notes, *assumed), warnings)


def with_regions(scenario: Scenario, directory: Path) -> Scenario:
    """Where a scenario names no regions, the columns of its trace are its regions. Raises `InvalidRequest`."""
    if scenario.regions or scenario.demand.trace is None:
        return scenario
    path = directory / scenario.demand.trace
    with _field("demand.trace"):
        columns = _columns(path)
    if len(columns) > MAX_REGIONS:
        raise InvalidRequest(
            "trace", f"{path} has {len(columns)} columns of demand, at most {MAX_REGIONS} regions are simulated"
        )
    known = structs.replace(scenario, regions={column: RegionPart() for column in columns})
    refuse_strangers(known, f"{path}, whose columns are the regions")
    return known


@contextmanager
def _field(name: str) -> Iterator[None]:
    """What is wrong with a file is so because of the field that names it."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(error.field, f"{name}: {error}") from None


def _columns(path: Path) -> Sequence[Region]:
    """As regions. Raises `InvalidRequest`."""
    found: dict[Region, str] = {}
    for column in read_columns(path):
        name = _as_region(column)
        if name in found:
            both = f'columns "{found[name]}" and "{column}" are both region {name}'
            raise InvalidRequest("trace", f"{path}: line 1: {both}: rename one")
        found[name] = column
    return list(found)


def _as_region(column: str) -> Region:
    return re.sub(r"[^a-z0-9_-]", "-", column.lower())[:63]


def _trace(demand: DemandPart, regions: tuple[Region, ...], directory: Path, seed: int) -> Trace:
    if demand.trace is None:
        return shaped(demand, regions, seed)
    path = directory / demand.trace
    with _field("demand.trace"):
        _refuse_unclaimed(_columns(path), regions, path)
        return read_trace(path, regions, scale=demand.scale, skip=demand.skip, most=demand.bins, called=_as_region)


def _refuse_unclaimed(columns: Sequence[Region], regions: Sequence[Region], path: Path) -> None:
    """A replay adds what is left over to other regions; here regions can be named as the demand has them."""
    strangers = [column for column in columns if column not in regions]
    if strangers and len(strangers) < len(columns):
        what = f"column {strangers[0]} is no region here{nearest(strangers[0], regions)}"
        raise InvalidRequest("trace", f"{path}: {what}; name it in [regions], or take it out")
    if len(columns) > len(regions):
        raise InvalidRequest(
            "trace",
            f"{path} has {len(columns)} columns of demand, but there are {len(regions)} regions: name its columns in "
            "[regions], or leave [regions] out",
        )


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
    rows = read_requests(path)
    begin = rows[0][0]
    there = int((rows[-1][0] - begin) // demand.bin_s) + 1
    bins = there if demand.bins is None else min(demand.bins, there)
    if bins > MAX_BINS:
        what = f"{path} lasts for {bins:,} bins, at most {MAX_BINS:,} are simulated"
        raise InvalidRequest("demand", f"{what}: say demand.bins, or a longer demand.bin_s")
    found = []
    for number, (at, known, more) in enumerate(rows):
        if at - begin >= bins * demand.bin_s:
            break
        units = max(1, known + max(more, demand.most))
        found.append(Request(at - begin, number % len(regions), units, known + more))
    note = f"{len(found):,} requests, round robin over {len(regions)} regions"
    return found, bins, (note,)
