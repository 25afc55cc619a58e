"""What single fields cannot show: names that nobody has, sums, what contradicts itself."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from regionquota.config import PlannerConfig, nearest
from regionquota.errors import InvalidRequest
from regionquota.simulator.scenario import (
    MAX_REQUESTS,
    SHAPES,
    CoordinatorPart,
    DemandPart,
    EventPart,
    Scenario,
    share_by_region,
)

_GOES_WITH: Final = {
    "mean": SHAPES,
    "factor": ("bursts", "idle_then_jump"),
    "days": ("follow_the_sun",),
    "clients": ("clients",),
    "scale": ("trace", "rates", *SHAPES),
    "skip": ("trace",),
    "most": ("requests",),
}
_PLAIN: Final = DemandPart()


def refuse_contradictions(scenario: Scenario, where: str) -> None:
    """Raises `InvalidRequest` that begins with `where`. Without regions, see `refuse_strangers`."""
    for problem in _problems(scenario):
        raise InvalidRequest("scenario", f"{where}: {problem}")
    if scenario.regions:
        refuse_strangers(scenario, where)


def refuse_strangers(scenario: Scenario, where: str) -> None:
    """Raises `InvalidRequest` unless every region that is named is one."""
    demand, quota, regions = scenario.demand, scenario.quota, scenario.regions
    for field, named in (
        ("demand.rates", demand.rates or {}),
        ("demand.high", share_by_region(demand.high, ())),
        ("demand.low", share_by_region(demand.low, ())),
        ("quota.slices", quota.slices),
        ("quota.regions", quota.regions),
    ):
        for name in named:
            if name not in regions:
                hint = nearest(name, regions)
                raise InvalidRequest("scenario", f"{where}: {field} names {name}, which is no region here{hint}")
    for number, event in enumerate(scenario.events):
        if event.region is not None and event.region not in regions:
            said = f'events[{number}]: unknown region "{event.region}"{nearest(event.region, regions)}'
            raise InvalidRequest("scenario", f"{where}: {said}")


def doubts(scenario: Scenario, bins: int) -> Iterator[str]:
    """What somebody may have meant otherwise, for it changes or shows nothing. `bins` is how many are played."""
    demand, seconds = scenario.demand, bins * scenario.demand.bin_s
    for name, kinds in _GOES_WITH.items():
        if demand.kind not in kinds and getattr(demand, name) != getattr(_PLAIN, name):
            yield f"demand.{name} changes nothing: it goes with {', '.join(kinds)}, and this demand is {demand.kind}"
    if demand.bins is not None and bins < demand.bins:
        yield f"demand.bins is {demand.bins:,}, but the file has {bins:,} only: so many are played"
    if scenario.quota.limit == 0:
        yield "the limit is 0 units: everything is denied, by every policy"
    for number, event in enumerate(scenario.events):
        if event.at_s >= seconds:
            said = f"events[{number}] ({event.what}) begins at {event.at_s:g} s"
            yield f"{said}, but the scenario ends at {seconds:g} s: it changes nothing"


def _problems(scenario: Scenario) -> Iterator[str]:
    demand, quota = scenario.demand, scenario.quota
    given = [name for name in ("trace", "requests", "shape", "rates") if getattr(demand, name) is not None]
    if len(given) != 1:
        yield f"demand takes one of trace, requests, shape and rates, got {' and '.join(given) or 'none'}"
    if demand.shape == "clients" and demand.clients * demand.made_up_bins > MAX_REQUESTS:
        yield f"demand.clients times demand.bins must not be above {MAX_REQUESTS:,}: take fewer of either"
    if not scenario.regions and demand.trace is None:
        yield "regions is missing: only a trace names regions by its columns"
    yield from _priority_problems(scenario)
    yield from _pool_problems(scenario.coordinator)
    if quota.slices and quota.limit is None:
        yield "quota.limit is missing: quota.slices need it, for they must not add up to more"
    elif (owned := sum(quota.slices.values())) > (quota.limit or 0):
        yield f"quota.slices must not add up to more than quota.limit, got {owned:,} > {quota.limit or 0:,}"
    for name, rules in quota.regions.items():
        if rules.cap is not None and rules.floor > rules.cap:
            yield f"quota.regions.{name}: the floor must not be above the cap"
    for number, event in enumerate(scenario.events):
        yield from _event_problems(event, f"events[{number}]", scenario.regions)
    yield from _overlaps(scenario.events)


def _priority_problems(scenario: Scenario) -> Iterator[str]:
    regions: Iterable[str] = scenario.regions or ("every region",)
    high, low = (share_by_region(one, regions) for one in (scenario.demand.high, scenario.demand.low))
    for region in sorted(high.keys() & low.keys()):
        if high[region] + low[region] > 1:
            yield f"demand.high and demand.low of {region} must not be above 1 together"
    quota = scenario.quota
    if quota.low_fill_percent > quota.normal_fill_percent:
        yield "quota.low_fill_percent must not be above quota.normal_fill_percent: set both"


def _pool_problems(part: CoordinatorPart) -> Iterator[str]:
    shipped = PlannerConfig()
    smallest = shipped.smallest_pool_share if part.smallest_pool_share is None else part.smallest_pool_share
    largest = shipped.largest_pool_share if part.largest_pool_share is None else part.largest_pool_share
    if smallest > largest:
        what = "coordinator.smallest_pool_share must not be above coordinator.largest_pool_share"
        yield f"{what}, got {smallest:g} > {largest:g}: set both"


def _event_problems(event: EventPart, where: str, regions: Collection[str]) -> Iterator[str]:
    if event.what == "coordinator_down" and event.region is not None:
        yield f"{where}: coordinator_down takes no region: leave it out"
    if event.what != "coordinator_down" and event.region is None:
        yield f"{where}.region is missing: {event.what} takes one of {', '.join(regions) or 'the columns of the trace'}"
    if event.what == "weight" and event.until_s is not None:
        yield f"{where}: a weight stays as it is set: leave until_s out, and set it again with one more event"
    if event.what == "weight" and event.weight is None:
        yield f"{where}.weight is missing: it takes the region's new weight"
    if event.what != "weight" and event.weight is not None:
        yield f'{where}: weight goes with what = "weight", not with {event.what}: leave it out'
    if event.until_s is not None and event.until_s <= event.at_s:
        yield f"{where}: until_s must be later than at_s, {event.at_s:g}, got {event.until_s:g}"


def _overlaps(events: Sequence[EventPart]) -> Iterator[str]:
    """What is cut off twice would be back when the first of both ends."""
    for (first, one), (second, other) in combinations(enumerate(events), 2):
        if "weight" in {one.what, other.what} or one.region != other.region:
            continue
        if max(one.at_s, other.at_s) < min(_end(one), _end(other)):
            yield f"events[{first}] and events[{second}] overlap: let one end before the other begins"


def _end(event: EventPart) -> float:
    return math.inf if event.until_s is None else event.until_s
