"""Which threshold the usage of a quota has crossed, and what is to be remembered of it so that it is told once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.periods import Epoch, epoch_of
from regionquota.core.quota import Kind, Region

REARM_POINTS: Final = 5
"""Usage has to fall so far below a threshold, in percent of the limit, before it can cross it again."""
TURN_S: Final = 60.0
"""So long after the turn of a period a region may still be in the one before; then what it says of that is over."""


@dataclass(frozen=True, slots=True)
class Mark:
    """It was told that usage reached `threshold` percent of the limit in `epoch`. `at`: seconds since 1970."""

    threshold: int
    epoch: Epoch
    at: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Of all regions in the newest period. `most` counts a region that has said nothing of this period with its whole
    slice, `least` with nothing.
    """

    epoch: Epoch
    least: int
    most: int


def is_watched(allocation: Allocation) -> bool:
    """A rate is spent and leaks away all the time; of what is unlimited there are no percents."""
    return allocation.kind is not Kind.RATE and not allocation.unlimited


def begun_by(allocation: Allocation, now: float) -> Epoch:
    """The period that every region is in, or past. `now` in seconds since 1970."""
    return epoch_of(allocation.kind, now - TURN_S, allocation.policy.calendar)


def usage_of(allocation: Allocation, words: Sequence[tuple[Region, Demand]], told: Mark | None, now: float) -> Usage:
    """What several servers of a region say comes out of one database: the largest word is taken."""
    epoch = max([begun_by(allocation, now), *(word.epoch for _, word in words)])
    epoch = epoch if told is None else max(epoch, told.epoch)
    used: dict[Region, int] = {}
    for region, word in words:
        if word.epoch == epoch:
            used[region] = max(used.get(region, 0), word.used)
    unheard = sum(size for region, size in allocation.slices.items() if region not in used)
    least = sum(used.values())
    return Usage(epoch, least, least + unheard + allocation.retired_units)


def threshold_of(limit: int, usage: Usage, told: Mark | None, thresholds: Sequence[int]) -> int:
    """The percentage that should be marked now; 0: none. Above that of `told`, in its period: it is to be told.

    It rises with what is certainly used, and falls only when certainly less is used.
    """
    known = told_in(usage, told)
    reached = [one for one in thresholds if _reaches(usage.least, limit, one)]
    kept = [one for one in {known, *thresholds} if one <= known and _reaches(usage.most, limit, one - REARM_POINTS)]
    return max([*reached, *kept], default=0)


def told_in(usage: Usage, told: Mark | None) -> int:
    """0: nothing in this period."""
    return told.threshold if told is not None and told.epoch == usage.epoch else 0


def _reaches(units: int, limit: int, percent: int) -> bool:
    return units > 0 and 100 * units >= percent * limit
