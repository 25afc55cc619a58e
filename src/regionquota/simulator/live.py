"""A scenario of what runs: limits, slices and demand as they are now, and a region that is cut off."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from regionquota.config import nearest
from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest

PERIODS_S: Final = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}
BEFORE_S: Final = 600.0
"""So long all is well before the region is cut off, and again afterwards."""
MAX_UNITS: Final = 100_000
"""Asked for within the scenario; of more, one unit stands for several."""
COARSE: Final = 100
"""Units of a limit, below which one more or less is seen in the figures."""
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Live:
    """One consumable quota of a running deployment. `rates` are the units per second that each region is asked for;
    `rules` are the quota's for single regions: weight, floor, cap; `fills` its percents for priorities. `notes` are
    for who reads the report.
    """

    name: str
    period: str
    limit: int
    slices: Mapping[Region, int]
    weights: Mapping[Region, int]
    rates: Mapping[Region, float]
    watched_s: float
    rules: Mapping[Region, Mapping[str, int | None]] = field(default_factory=dict)
    fills: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()


def parse_duration(text: str) -> float:
    """`1h`, `90m` or `30s`, in seconds. Raises `InvalidRequest`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = float(found[1]) * _UNITS_S[found[2]] if found else math.nan
    if not 1 <= seconds <= LONGEST_S:
        raise InvalidRequest("for", f'--for takes a time from 1s to 24h, as in 90s, 30m or 1h, got "{text}"')
    return seconds


def units_for_one(live: Live, for_s: float) -> int:
    """How many units of the quota one that is played stands for."""
    _, bins, bin_s = _bins(live, for_s)
    return max(1, math.ceil(sum(live.rates.values()) * bins * bin_s / MAX_UNITS))


def scaled_down(live: Live, each: int) -> str:
    limit = live.limit // each
    coarse = f"; of the limit that leaves {limit:,}, so that all figures are coarse" if limit < COARSE else ""
    return (
        f"{live.name} is asked for more than is played unit by unit: limit, slices and demand are divided by {each:,}, "
        f"so one unit of the report, and of what --set says, stands for {each:,} of the quota{coarse}"
    )


def _bins(live: Live, for_s: float) -> tuple[float, int, float]:
    """Seconds before the cut, how many bins there are in all, and seconds of each. Raises `InvalidRequest`."""
    bin_s = PERIODS_S.get(live.period)
    if bin_s is None:
        raise InvalidRequest(
            "resource", f"{live.name} is counted per {live.period}: a minute, an hour or a day is simulated"
        )
    before = math.ceil(BEFORE_S / bin_s) * bin_s
    return before, math.ceil((2 * before + for_s) / bin_s), bin_s


def scenario_of(live: Live, cut: Region | None, for_s: float) -> tuple[dict[str, Any], Sequence[str]]:
    """What is to be played, as a scenario's file would say it, and what is assumed. Raises `InvalidRequest`."""
    before, bins, bin_s = _bins(live, for_s)
    regions = sorted({*live.slices, *live.weights})
    if cut is not None and cut not in regions:
        raise InvalidRequest("cut", f'--cut: unknown region "{cut}"{nearest(cut, regions)}')
    each = units_for_one(live, for_s)
    shows = f"{live.name} as it is asked for now" + (
        "." if cut is None else f", and what happens if {cut} reaches nobody for {for_s / 60:g} minutes."
    )
    event = {"what": "partition", "region": cut, "at_s": before, "until_s": before + for_s}
    plain = {
        "name": f"{live.name}, live",
        "shows": shows,
        "regions": {name: {"weight": live.weights.get(name, 100)} for name in regions},
        "demand": {
            "rates": {name: live.rates.get(name, 0.0) / each for name in regions}, "bins": bins, "bin_s": bin_s,
        },
        "quota": {
            "limit": live.limit // each,
            "slices": {name: _slice(name, live) // each for name in regions},
            "regions": {name: _rules(rules, live, each) for name, rules in live.rules.items() if name in regions},
            **live.fills,
        },
        "events": [] if cut is None else [event],
    }  # fmt: skip
    return plain, _assumed(live, each)


def _slice(region: Region, live: Live) -> int:
    """What is still to be given back of a limit that was lowered cannot be in a scenario."""
    owned, size = sum(live.slices.values()), live.slices.get(region, 0)
    return size if owned <= live.limit else live.limit * size // owned


def _rules(rules: Mapping[str, int | None], live: Live, each: int) -> dict[str, int | None]:
    """Floors above a limit that was lowered since are scaled down, as the planner does."""
    floors = sum(one["floor"] or 0 for one in live.rules.values())
    floor, cap = rules["floor"] or 0, rules["cap"]
    fitting = floor if floors <= live.limit else live.limit * floor // floors
    return {"weight": rules["weight"], "floor": fitting // each, "cap": None if cap is None else cap // each}


def _assumed(live: Live, each: int) -> Sequence[str]:
    rates = ", ".join(f"{name} {rate:.3g}/s" for name, rate in sorted(live.rates.items()))
    notes = [
        *live.notes,
        *([scaled_down(live, each)] if each > 1 else []),
        f"demand goes on as it was seen for {live.watched_s:.0f} s, at random around it: {rates}",
        "what was denied counts as asked for, also where it was asked for again",
        "each period begins with nothing used; regions have today's slices, weights, floors and caps",
        "the product's shipped settings, 100 ms between each region and etcd",
    ]
    if (owned := sum(live.slices.values())) > live.limit:
        lowered = f"regions still own {owned:,} of a limit that was lowered to {live.limit:,}"
        notes.append(f"{lowered}: each gets the same part of its slice")
    if any(percent < 100 for percent in live.fills.values()):
        notes.append("who asks at which priority is not reported: all ask at normal priority")
    return notes
