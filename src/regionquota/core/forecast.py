"""What a quota will be asked for in a region within the next two hours, by the same hours of the days before.

Advisory, as all of demand is. Nothing is set by hand: the past says how much, and how much it scatters.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final, NamedTuple

from regionquota.core.quota import QuotaKey

DAYS: Final = 14
"""So many are looked back at, and kept."""
HOURS_AHEAD: Final = 2
HOURS_A_DAY: Final = 24
MINUTES_AN_HOUR: Final = 60
_AROUND: Final = range(-1, HOURS_AHEAD + 1)
"""Hours before and after the present one of which the days before are asked."""
_TODAY: Final = 2 / 3
"""So much of what today differs by from the days before, in this hour and the last one, is expected to go on."""
_MOST: Final = 1e18
"""Units and units per second that are told at most: more than any limit."""


class Counted(NamedTuple):
    """Units that were asked for, and given back, in (a part of) an hour; `peak` are those asked for in its busiest
    minute.
    """

    granted: int = 0
    freed: int = 0
    denied: int = 0
    peak: int = 0

    def plus(self, other: "Counted") -> "Counted":
        return Counted(
            self.granted + other.granted,
            self.freed + other.freed,
            self.denied + other.denied,
            self.peak + other.peak,
        )


class Foreseen(NamedTuple):
    """`expected`: units per second by which what is in use grows within the next `HOURS_AHEAD`, `deviation`: units that
    a busy minute asks for beyond the mean.

    0: nothing is known, or nothing was ever asked for.
    """

    expected: float = 0.0
    deviation: float = 0.0


NOTHING: Final = Foreseen()


@dataclass(frozen=True, slots=True)
class Past:
    """`since` is when the first hour began in which anything was asked for. An hour since then that is not among
    `hours`, by their begin, asked for nothing.
    """

    key: QuotaKey
    since: float
    hours: Mapping[float, Counted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Made at `made`: what the days before say of the `HOURS_AHEAD` from `hour` on, and from an hour later on; `today`
    are the units per second to be added to what they expect.
    """

    made: float
    hour: float
    this: Foreseen
    next: Foreseen
    today: float = 0.0

    def at(self, now: float, hour_s: float) -> Foreseen:
        """From `now` on. An outlook that is too old tells of the time it ends with."""
        passed = min(max(0.0, (now - self.hour) / hour_s), 1.0)
        expected = self.this.expected + passed * (self.next.expected - self.this.expected) + self.today
        deviation = self.this.deviation + passed * (self.next.deviation - self.this.deviation)
        return Foreseen(_told(max(0.0, expected)), _told(deviation))


def hour_of(now: float, hour_s: float) -> float:
    """When the hour that `now` lies in began."""
    return math.floor(now / hour_s) * hour_s


def hours_to_recall(now: float, hour_s: float) -> Sequence[float]:
    """The begins of all hours that an outlook made `now` is made of."""
    hour = hour_of(now, hour_s)
    before = [hour + (ahead - day * HOURS_A_DAY) * hour_s for day in range(1, DAYS + 1) for ahead in _AROUND]
    return [*before, hour - hour_s, hour]


def outlook(past: Past, now: float, hour_s: float) -> Outlook | None:
    """None: nothing is known of these hours of any day before."""
    hour = hour_of(now, hour_s)
    last, this, *later = (_of_days_before(past, hour + ahead * hour_s, hour_s) for ahead in _AROUND)
    if this is None:
        return None
    passed = now - hour
    usual = ((last or this).expected * hour_s + this.expected * passed) / (hour_s + passed)
    lately = sum(_net(past.hours.get(begin, _UNASKED)) for begin in (hour - hour_s, hour)) / (hour_s + passed)
    today = _TODAY * (lately - usual) if past.since < hour else 0.0
    ahead = [one for one in (this, *later) if one is not None]
    return Outlook(now, hour, _mean(ahead[:HOURS_AHEAD]), _mean(ahead[1:]), today)


def _mean(several: Sequence[Foreseen]) -> Foreseen:
    return Foreseen(
        sum(one.expected for one in several) / len(several), sum(one.deviation for one in several) / len(several)
    )


def _of_days_before(past: Past, hour: float, hour_s: float) -> Foreseen | None:
    """What is usual: the median of the days, so that one day's burst is not expected on the next. Busy minutes are
    averaged, so that it does count there.
    """
    days = [
        past.hours.get(begin, _UNASKED)
        for day in range(1, DAYS + 1)
        if (begin := hour - day * HOURS_A_DAY * hour_s) >= past.since
    ]
    if not days:
        return None
    deviation = sum(_beyond_the_mean(counted) for counted in days) / len(days)
    return Foreseen(median_low(_net(counted) for counted in days) / hour_s, deviation)


_UNASKED: Final = Counted()


def _net(counted: Counted) -> int:
    return _asked(counted) - counted.freed


def _asked(counted: Counted) -> int:
    """What was denied counts at most as much as was granted: callers that repeat themselves are no demand."""
    return counted.granted + min(counted.denied, counted.granted)


def _beyond_the_mean(counted: Counted) -> float:
    return max(0.0, min(counted.peak, _asked(counted)) - _asked(counted) / MINUTES_AN_HOUR)


def _told(value: float) -> float:
    """Two digits: what drifts by less is no news."""
    return float(f"{min(value, _MOST):.2g}")


def together(deviations: Collection[float]) -> float:
    """Of several regions, whose busy minutes do not come at the same time."""
    return math.hypot(*deviations)
