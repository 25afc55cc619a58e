"""Accounting epochs: which period an instant belongs to, in the tenant's own time zone.

An epoch is an integer that never falls. Allocated and rate quotas live in epoch 0 for ever; a consumable quota's
epoch counts its periods: months since the year 0, ISO weeks or days since the year 1, hours and minutes since 1970.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias, assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from regionquota.core.quota import Kind

Epoch: TypeAlias = int
TIMELESS: Final[Epoch] = 0
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


class Period(StrEnum):
    MINUTE = "minute"
    """60 s, beginning on the full minutes of UTC."""
    HOUR = "hour"
    """3,600 s, beginning on the zone's full hours; a change of summer time does not interrupt them."""
    DAY = "day"
    """From midnight to midnight: 23 or 25 hours where summer time begins or ends."""
    WEEK = "week"
    """From Monday."""
    MONTH = "month"


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name} is no IANA time zone known here, such as UTC or Europe/Berlin") from error


@dataclass(frozen=True, slots=True)
class Calendar:
    """`time_zone` is an IANA name. Raises `ValueError` for one that is not known here."""

    period: Period = Period.MONTH
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        _zone(self.time_zone)


UTC_MONTHS: Final = Calendar()


def epoch_of(kind: Kind, now: float, calendar: Calendar = UTC_MONTHS) -> Epoch:
    """`now` is in seconds since 1970, UTC.

    Zones that turn back over midnight say an epoch less for an hour; whoever stores epochs keeps the higher one.
    """
    if kind is not Kind.CONSUMABLE:
        return TIMELESS
    local = datetime.fromtimestamp(now, _zone(calendar.time_zone))
    match calendar.period:
        case Period.MINUTE:
            return int(now) // _MINUTE_S
        case Period.HOUR:
            return int(now + _minutes_past_the_hour(local)) // _HOUR_S
        case Period.DAY:
            return local.toordinal()
        case Period.WEEK:
            return (local.toordinal() - 1) // 7
        case Period.MONTH:
            return local.year * 12 + local.month - 1
        case _:
            assert_never(calendar.period)


def start_of(epoch: Epoch, calendar: Calendar = UTC_MONTHS) -> datetime:
    """The first instant of a consumable quota's epoch, in UTC."""
    match calendar.period:
        case Period.MINUTE:
            return datetime.fromtimestamp(epoch * _MINUTE_S, UTC)
        case Period.HOUR:
            zone, hour = _zone(calendar.time_zone), datetime.fromtimestamp(epoch * _HOUR_S, UTC)
            begin = hour - timedelta(seconds=_minutes_past_the_hour(hour.astimezone(zone)))
            # Where half an hour of summer time ends in between (Lord Howe), the minutes before it are those that count.
            return hour - timedelta(seconds=_minutes_past_the_hour(begin.astimezone(zone)))
        case Period.DAY:
            first = date.fromordinal(epoch)
        case Period.WEEK:
            first = date.fromordinal(epoch * 7 + 1)
        case Period.MONTH:
            first = date(epoch // 12, epoch % 12 + 1, 1)
        case _:
            assert_never(calendar.period)
    return datetime(first.year, first.month, first.day, tzinfo=_zone(calendar.time_zone)).astimezone(UTC)


def period_end(kind: Kind, epoch: Epoch, calendar: Calendar = UTC_MONTHS) -> datetime | None:
    """The first instant after `epoch`; None where periods have no end."""
    return start_of(epoch + 1, calendar) if kind is Kind.CONSUMABLE else None


def _minutes_past_the_hour(local: datetime) -> int:
    """In seconds: how far the zone's full hours are from those of UTC (Kolkata: 1,800)."""
    offset = local.utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) % _HOUR_S
