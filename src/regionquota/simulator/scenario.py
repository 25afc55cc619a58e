"""What is simulated: the fields of a scenario, their defaults and their ranges."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT

MAX_REGIONS: Final = 16
MAX_REQUESTS: Final = 5_000_000
"""Of one scenario, for each policy."""
Policy: TypeAlias = Literal["oracle", "static", "periodic", "ours", "leases", "pull"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
Shape: TypeAlias = Literal["follow_the_sun", "bursts", "drift", "idle_then_jump", "clients", "flat"]
SHAPES: Final[tuple[Shape, ...]] = get_args(Shape)

MAX_BINS: Final = 100_000
MADE_UP_BINS: Final = 288
_TOP: Final = 31_536_000
Seconds = Annotated[float, Meta(ge=0, le=_TOP)]
Above0 = Annotated[float, Meta(gt=0, le=_TOP, description=f"a number above 0, up to {_TOP:,}")]
Interval = Annotated[float, Meta(ge=0.01, le=_TOP)]
Share = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(ge=0, le=1000)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Units = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Weight = Annotated[int, Meta(ge=0, le=MAX_WEIGHT)]
Region = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,63}\Z", description="1 to 63 characters of a-z, 0-9, - and _")]
Text = Annotated[str, Meta(min_length=1, max_length=1000, description="a text of 1 to 1,000 characters")]
File = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]+\Z", description="the path of a CSV")]
Shares = Annotated[
    Share | dict[Region, Share], Meta(description="a number from 0 to 1, or a table with one for each region")
]


class RegionPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`round_trip_s` is to etcd and back."""

    weight: Weight = 100
    round_trip_s: Annotated[float, Meta(ge=0, le=60)] = 0.1


class DemandPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A trace (CSV: a bin column, then one per region), or a `shape` that is generated: `mean` units per bin and
    region, `factor` times as much in a burst or after a jump; `days` that follow the sun. `rates` are units per second
    of each region.

    `requests` is a CSV of single requests instead: time, units reserved, units used on top of a `most` reserved.

    So large a part of the requests, of each region or of those that are named, is of `high` or `low` priority.

    `bins` None: all that a file has, `MADE_UP_BINS` of what is generated.
    """

    trace: File | None = None
    requests: File | None = None
    rates: dict[Region, Annotated[float, Meta(ge=0, le=1e9)]] | None = None
    most: Units = 0
    shape: Shape | None = None
    mean: Above0 = 100.0
    factor: Above0 = 100.0
    clients: Annotated[int, Meta(ge=1, le=1000)] = 45
    scale: Above0 = 1.0
    high: Shares = 0.0
    low: Shares = 0.0
    skip: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    bins: Annotated[int, Meta(ge=1, le=MAX_BINS)] | None = None
    days: Annotated[int, Meta(ge=1, le=1000)] = 1
    bin_s: Annotated[float, Meta(ge=1, le=86_400)] = 300.0

    @property
    def kind(self) -> str:
        """The shape, or one of trace, requests and rates."""
        return self.shape or next(name for name in ("trace", "requests", "rates") if getattr(self, name) is not None)

    @property
    def made_up_bins(self) -> int:
        return MADE_UP_BINS if self.bins is None else self.bins


class RulesPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Of the quota, for one region. Left out: the weight of the region, no floor, no cap."""

    weight: Weight | None = None
    floor: Units = 0
    cap: Units | None = None


class QuotaPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The limit of each bin: so many units, or so many times the mean demand of all regions. `slices`: who holds how
    much of it in the beginning; left out, nobody has used the quota yet. `regions`: its rules for single regions. The
    percents are those of its policy.
    """

    limit: Units | None = None
    limit_factor: Above0 = 1.5
    slices: dict[Region, Units] = msgspec.field(default_factory=dict)
    regions: dict[Region, RulesPart] = msgspec.field(default_factory=dict)
    normal_fill_percent: Percent = 100
    low_fill_percent: Percent = 100


class CoordinatorPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Left out: what is shipped. `learn` false: regions learn nothing of their demand."""

    interval_s: Interval | None = None
    report_interval_s: Interval | None = None
    claim_share: Share | None = None
    low_water: Share | None = None
    pool_share: Share | None = None
    smallest_pool_share: Share | None = None
    largest_pool_share: Share | None = None
    smallest_move_share: Share | None = None
    growth_rounds: Factor | None = None
    variance: Factor | None = None
    learn: bool = True


class EventPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """From `at_s` to `until_s`. A `weight` holds from then on."""

    at_s: Seconds
    what: Literal["partition", "region_down", "coordinator_down", "weight"]
    region: Region | None = None
    until_s: Seconds | None = None
    weight: Weight | None = None


Regions = Annotated[
    dict[Region, RegionPart],
    Meta(max_length=MAX_REGIONS, description=f"a table of at most {MAX_REGIONS} regions"),
]
Events = Annotated[list[EventPart], Meta(description="a list of tables, each begun by [[events]]")]
Policies = Annotated[list[Policy], Meta(min_length=1, description=f"a list of one or more of {', '.join(POLICIES)}")]


class Scenario(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`wait_s` is how long each caller is willing to wait for room. Without `regions` they are the trace's columns."""

    name: Text
    shows: Text
    demand: DemandPart
    regions: Regions = msgspec.field(default_factory=dict)
    quota: QuotaPart = QuotaPart()
    coordinator: CoordinatorPart = CoordinatorPart()
    events: Events = msgspec.field(default_factory=list)
    policies: Policies = msgspec.field(default_factory=lambda: list(POLICIES))
    wait_s: Seconds = 0.0
    seed: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)] = 1


def share_by_region(share: float | Mapping[str, float], regions: Iterable[str]) -> Mapping[str, float]:
    return share if isinstance(share, Mapping) else dict.fromkeys(regions, share)
