"""What is simulated: a scenario's file, checked."""

import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT
from regionquota.errors import InvalidRequest

MAX_REGIONS: Final = 16
MAX_REQUESTS: Final = 5_000_000
"""Of one scenario, for each policy."""
POLICIES: Final = ("oracle", "static", "periodic", "ours", "leases", "pull")

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
Above0 = Annotated[float, Meta(gt=0, le=31_536_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Region = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,63}\Z")]


class RegionPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`round_trip_s` is to etcd and back."""

    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)] = 100
    round_trip_s: Seconds = 0.1


class DemandPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A trace (CSV: a bin column, then one per region), or a `shape` that is generated.

    `requests` is a CSV of single requests instead: time, units reserved, units used on top of a `most` reserved.
    """

    trace: str | None = None
    requests: str | None = None
    most: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] = 0
    shape: Literal["follow_the_sun", "bursts", "drift", "idle_then_jump", "flat"] | None = None
    mean: Above0 = 100.0
    factor: Above0 = 100.0
    scale: Above0 = 1.0
    skip: Annotated[int, Meta(ge=0)] = 0
    bins: Annotated[int, Meta(ge=1, le=100_000)] = 288
    bin_s: Above0 = 300.0


class QuotaPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The limit of each bin: so many units, or so many times the mean demand of all regions."""

    limit: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] | None = None
    limit_factor: Above0 = 1.5


class CoordinatorPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Left out: what is shipped."""

    interval_s: Above0 | None = None
    report_interval_s: Above0 | None = None
    claim_share: Share | None = None
    low_water: Share | None = None
    pool_share: Share | None = None
    smallest_move_share: Share | None = None
    growth_rounds: Annotated[float, Meta(ge=0, le=1000)] | None = None
    variance: Annotated[float, Meta(ge=0, le=1000)] | None = None


class EventPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """From `at_s` to `until_s` (weight: from then on)."""

    at_s: Seconds
    what: Literal["partition", "region_down", "coordinator_down", "weight"]
    region: Region | None = None
    until_s: Seconds | None = None
    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)] = 100


class Scenario(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`wait_s` is how long each caller is willing to wait for room."""

    name: str
    shows: str
    regions: Annotated[dict[Region, RegionPart], Meta(min_length=1, max_length=MAX_REGIONS)]
    demand: DemandPart
    quota: QuotaPart = QuotaPart()
    coordinator: CoordinatorPart = CoordinatorPart()
    events: list[EventPart] = msgspec.field(default_factory=list)
    policies: list[Literal["oracle", "static", "periodic", "ours", "leases", "pull"]] = msgspec.field(
        default_factory=lambda: list(POLICIES)
    )
    wait_s: Seconds = 0.0
    seed: int = 1


def read_scenario(path: Path) -> Scenario:
    """Raises `InvalidRequest` that names the field."""
    try:
        with path.open("rb") as file:
            plain = tomllib.load(file)
    except OSError as error:
        raise InvalidRequest("scenario", f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest("scenario", f"{path} is not TOML: {error}") from error
    return checked(plain, str(path))


def checked(plain: object, where: str) -> Scenario:
    try:
        scenario = msgspec.convert(plain, Scenario)
    except msgspec.ValidationError as error:
        raise InvalidRequest("scenario", f"{where}: {error}") from error
    for number, event in enumerate(scenario.events):
        if event.what != "coordinator_down" and event.region not in scenario.regions:
            raise InvalidRequest("scenario", f"{where}: events[{number}] names no region of this scenario")
        if event.until_s is not None and event.until_s <= event.at_s:
            raise InvalidRequest("scenario", f"{where}: events[{number}] ends before it begins")
    demand = scenario.demand
    if sum(one is not None for one in (demand.trace, demand.requests, demand.shape)) != 1:
        raise InvalidRequest("scenario", f"{where}: demand takes one of trace, requests and shape")
    return scenario
