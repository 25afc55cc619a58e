"""What is simulated: a scenario's file, checked."""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT
from regionquota.errors import InvalidRequest

MAX_REGIONS: Final = 16
MAX_REQUESTS: Final = 5_000_000
"""Of one scenario, for each policy."""
Policy: TypeAlias = Literal["oracle", "static", "periodic", "ours", "leases", "pull"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
Above0 = Annotated[float, Meta(gt=0, le=31_536_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Region = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,63}\Z")]


class RegionPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`round_trip_s` is to etcd and back."""

    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)] = 100
    round_trip_s: Annotated[float, Meta(ge=0, le=60)] = 0.1


class DemandPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A trace (CSV: a bin column, then one per region), or a `shape` that is generated: `mean` units per bin and
    region, `factor` times as much in a burst or after a jump; `days` that follow the sun. `rates` are units per second
    of each region.

    `requests` is a CSV of single requests instead: time, units reserved, units used on top of a `most` reserved.

    So large a part of the requests, of each region or of those that are named, is of `high` or `low` priority.
    """

    trace: str | None = None
    requests: str | None = None
    rates: dict[Region, Annotated[float, Meta(ge=0, le=1e9)]] | None = None
    most: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] = 0
    shape: Literal["follow_the_sun", "bursts", "drift", "idle_then_jump", "clients", "flat"] | None = None
    mean: Above0 = 100.0
    factor: Above0 = 100.0
    clients: Annotated[int, Meta(ge=1, le=1000)] = 45
    scale: Above0 = 1.0
    high: Share | dict[Region, Share] = 0.0
    low: Share | dict[Region, Share] = 0.0
    skip: Annotated[int, Meta(ge=0)] = 0
    bins: Annotated[int, Meta(ge=1, le=100_000)] = 288
    days: Annotated[int, Meta(ge=1, le=1000)] = 1
    bin_s: Annotated[float, Meta(ge=1, le=86_400)] = 300.0


class RulesPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Of the quota, for one region. Left out: the weight of the region, no floor, no cap."""

    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)] | None = None
    floor: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] = 0
    cap: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] | None = None


class QuotaPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The limit of each bin: so many units, or so many times the mean demand of all regions. `slices`: who holds how
    much of it in the beginning; left out, nobody has used the quota yet. `regions`: its rules for single regions. The
    percents are those of its policy.
    """

    limit: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] | None = None
    limit_factor: Above0 = 1.5
    slices: dict[Region, Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]] = msgspec.field(default_factory=dict)
    regions: dict[Region, RulesPart] = msgspec.field(default_factory=dict)
    normal_fill_percent: Percent = 100
    low_fill_percent: Percent = 100


class CoordinatorPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Left out: what is shipped. `learn` false: regions learn nothing of their demand."""

    interval_s: Above0 | None = None
    report_interval_s: Above0 | None = None
    claim_share: Share | None = None
    low_water: Share | None = None
    pool_share: Share | None = None
    smallest_pool_share: Share | None = None
    largest_pool_share: Share | None = None
    smallest_move_share: Share | None = None
    growth_rounds: Annotated[float, Meta(ge=0, le=1000)] | None = None
    variance: Annotated[float, Meta(ge=0, le=1000)] | None = None
    learn: bool = True


class EventPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """From `at_s` to `until_s` (weight: from then on)."""

    at_s: Seconds
    what: Literal["partition", "region_down", "coordinator_down", "weight"]
    region: Region | None = None
    until_s: Seconds | None = None
    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)] = 100


class Scenario(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`wait_s` is how long each caller is willing to wait for room. Without `regions` they are the trace's columns."""

    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    shows: Annotated[str, Meta(min_length=1, max_length=1000)]
    demand: DemandPart
    regions: Annotated[dict[Region, RegionPart], Meta(max_length=MAX_REGIONS)] = msgspec.field(default_factory=dict)
    quota: QuotaPart = QuotaPart()
    coordinator: CoordinatorPart = CoordinatorPart()
    events: list[EventPart] = msgspec.field(default_factory=list)
    policies: Annotated[list[Policy], Meta(min_length=1)] = msgspec.field(default_factory=lambda: list(POLICIES))
    wait_s: Seconds = 0.0
    seed: Annotated[int, Meta(ge=0)] = 1


def read_scenario(path: Path, words: Sequence[str] = (), trace: Path | None = None) -> Scenario:
    """`words` say otherwise: `quota.limit_factor=1.0`; `trace` goes before the demand that the file names.

    Raises `InvalidRequest` that names the field.
    """
    try:
        with path.open("rb") as file:
            plain = tomllib.load(file)
    except OSError as error:
        raise InvalidRequest("scenario", f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest("scenario", f"{path} is not TOML: {error}") from error
    if trace is not None:
        _take_trace(plain, trace)
    return otherwise(plain, words, str(path))


def otherwise(plain: dict[str, Any], words: Sequence[str], where: str) -> Scenario:
    """`plain`, as a file would say it, but for `words`. Raises `InvalidRequest`."""
    for word in words:
        _say(plain, word)
    return checked(plain, where, words)


def _take_trace(plain: dict[str, Any], trace: Path) -> None:
    demand = plain.setdefault("demand", {})
    if isinstance(demand, dict):
        for other in ("shape", "rates"):
            demand.pop(other, None)
        demand["requests" if "requests" in demand else "trace"] = str(trace)


def _say(plain: dict[str, Any], word: str) -> None:
    name, equals, value = word.partition("=")
    if not equals:
        raise InvalidRequest("set", f'--set takes FIELD=VALUE, as in "quota.limit_factor=1.5", got "{word}"')
    *parts, last = name.strip().split(".")
    for part in parts:
        plain = plain.setdefault(part, {})
        if not isinstance(plain, dict):
            raise InvalidRequest("set", f'--set {word}: {part} has no fields, as in "quota.limit_factor=1.5"')
    try:
        plain[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        plain[last] = value.strip()


def _said(words: Sequence[str]) -> str:
    """What may be wrong of it is not in the file."""
    return f" with --set {' --set '.join(words)}" if words else ""


def checked(plain: object, where: str, words: Sequence[str] = ()) -> Scenario:
    try:
        scenario = msgspec.convert(plain, Scenario)
    except msgspec.ValidationError as error:
        raise InvalidRequest("scenario", f"{where}{_said(words)}: {error}") from error
    demand = scenario.demand
    if sum(one is not None for one in (demand.trace, demand.requests, demand.shape, demand.rates)) != 1:
        raise InvalidRequest("scenario", f"{where}: demand takes one of trace, requests, shape and rates")
    for field, named in (
        ("demand.rates", demand.rates or {}),
        ("demand.high", share_by_region(demand.high, ())),
        ("demand.low", share_by_region(demand.low, ())),
        ("quota.slices", scenario.quota.slices),
        ("quota.regions", scenario.quota.regions),
    ):
        if strangers := named.keys() - scenario.regions.keys():
            raise InvalidRequest("scenario", f"{where}: {field} names {min(strangers)}, which is no region here")
    _check_priorities(scenario, where)
    if sum(scenario.quota.slices.values()) > (scenario.quota.limit or 0):
        raise InvalidRequest("scenario", f"{where}: quota.slices must not add up to more than quota.limit")
    for name, rules in scenario.quota.regions.items():
        if rules.cap is not None and rules.floor > rules.cap:
            raise InvalidRequest("scenario", f"{where}: quota.regions.{name}: the floor must not be above the cap")
    if not scenario.regions and demand.trace is None:
        raise InvalidRequest("scenario", f"{where}: regions is missing: only a trace names regions by its columns")
    for number, event in enumerate(scenario.events):
        _check_event(event, f"{where}: events[{number}]", scenario.regions)
    _check_overlaps(scenario.events, where)
    return scenario


def share_by_region(share: float | Mapping[str, float], regions: Iterable[str]) -> Mapping[str, float]:
    return share if isinstance(share, Mapping) else dict.fromkeys(regions, share)


def _check_priorities(scenario: Scenario, where: str) -> None:
    regions = scenario.regions or ("every region",)
    high, low = (share_by_region(one, regions) for one in (scenario.demand.high, scenario.demand.low))
    for region in sorted(high.keys() & low.keys()):
        if high[region] + low[region] > 1:
            raise InvalidRequest("scenario", f"{where}: demand.high and demand.low of {region} must not be above 1")
    quota = scenario.quota
    if quota.low_fill_percent > quota.normal_fill_percent:
        raise InvalidRequest(
            "scenario", f"{where}: quota.low_fill_percent must not be above quota.normal_fill_percent: set both"
        )


def _check_event(event: EventPart, where: str, regions: Mapping[str, RegionPart]) -> None:
    if event.what == "coordinator_down" and event.region is not None:
        raise InvalidRequest("scenario", f"{where}: coordinator_down takes no region")
    if event.what != "coordinator_down" and event.region not in regions:
        known = ", ".join(regions)
        raise InvalidRequest("scenario", f'{where}: region must be one of {known}, got "{event.region or ""}"')
    if event.until_s is not None and event.until_s <= event.at_s:
        raise InvalidRequest("scenario", f"{where}: until_s must be later than at_s, {event.at_s:g}")


def _check_overlaps(events: Sequence[EventPart], where: str) -> None:
    """What is cut off twice would be back when the first of both ends."""
    for (first, one), (second, other) in combinations(enumerate(events), 2):
        if "weight" in {one.what, other.what} or one.region != other.region:
            continue
        if max(one.at_s, other.at_s) < min(one.until_s or math.inf, other.until_s or math.inf):
            raise InvalidRequest(
                "scenario",
                f"{where}: events[{first}] and events[{second}] overlap: let one end before the other begins",
            )
