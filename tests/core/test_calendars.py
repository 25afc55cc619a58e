"""Hours, days, weeks and months of the tenant's own calendar."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.core.periods import Calendar, Period, epoch_of, period_end, start_of
from regionquota.core.quota import Kind

ZONES = [
    "UTC",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "America/New_York",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
]
calendars = st.builds(Calendar, st.sampled_from(Period), st.sampled_from(ZONES))
moments = st.integers(*(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1995, 2037)))


def epoch(moment: datetime, calendar: Calendar) -> int:
    return epoch_of(Kind.CONSUMABLE, moment.timestamp(), calendar)


def length(moment: datetime, calendar: Calendar) -> timedelta:
    """Of the period that `moment` lies in."""
    found = epoch(moment, calendar)
    return start_of(found + 1, calendar) - start_of(found, calendar)


def local(zone: str, *parts: int) -> datetime:
    return datetime(*parts, tzinfo=ZoneInfo(zone))  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("day", "hours"), [((2026, 3, 28), 24), ((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 10, 26), 24)]
)
def test_a_day_is_as_long_as_summer_time_makes_it(day: tuple[int, int, int], hours: int) -> None:
    berlin = Calendar(Period.DAY, "Europe/Berlin")
    assert timedelta(hours=hours) == length(local("Europe/Berlin", *day, 12), berlin)


@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)])
def test_a_day_of_23_or_25_hours_turns_once(day: tuple[int, int, int]) -> None:
    berlin = Calendar(Period.DAY, "Europe/Berlin")
    begin = local("Europe/Berlin", *day).timestamp()
    epochs = [epoch_of(Kind.CONSUMABLE, begin + minute * 60, berlin) for minute in range(-60, 27 * 60)]
    assert 3 == len(set(epochs))
    assert sorted(epochs) == epochs


def test_a_day_begins_at_the_tenants_midnight_not_at_utcs() -> None:
    tokyo = Calendar(Period.DAY, "Asia/Tokyo")
    midnight = datetime(2026, 6, 14, 15, tzinfo=UTC)
    assert epoch(midnight, tokyo) == epoch(midnight - timedelta(seconds=1), tokyo) + 1
    assert midnight == start_of(epoch(midnight, tokyo), tokyo)


def test_hours_of_kolkata_begin_at_half_past_utcs() -> None:
    kolkata = Calendar(Period.HOUR, "Asia/Kolkata")
    half_past = datetime(2026, 6, 15, 9, 30, tzinfo=UTC)
    assert epoch(half_past, kolkata) == epoch(half_past - timedelta(seconds=1), kolkata) + 1
    assert half_past == start_of(epoch(half_past, kolkata), kolkata)
    assert timedelta(hours=1) == length(half_past, kolkata)


@pytest.mark.parametrize("change", [(2026, 3, 29, 1), (2026, 10, 25, 1)])
def test_a_change_of_summer_time_does_not_interrupt_the_hours(change: tuple[int, int, int, int]) -> None:
    berlin = Calendar(Period.HOUR, "Europe/Berlin")
    begin = datetime(*change, tzinfo=UTC) - timedelta(hours=2)
    epochs = [epoch(begin + timedelta(hours=n), berlin) for n in range(5)]
    assert list(range(epochs[0], epochs[0] + 5)) == epochs


def test_an_hour_in_which_half_an_hour_of_summer_time_ends_begins_when_it_does() -> None:
    """Lord Howe's clocks go back by 30 minutes at 15:00 UTC: its hours then begin at half past UTC's."""
    lord_howe = Calendar(Period.HOUR, "Australia/Lord_Howe")
    change = datetime(2026, 4, 4, 15, tzinfo=UTC)
    after = epoch(change, lord_howe)
    assert [change, change + timedelta(minutes=30)] == [start_of(after + n, lord_howe) for n in range(2)]


def test_a_day_without_a_midnight_begins_with_its_first_instant() -> None:
    """In São Paulo summer time began at midnight: the clocks went from 23:59:59 to 01:00."""
    paulo = Calendar(Period.DAY, "America/Sao_Paulo")
    first = datetime(2018, 11, 4, 3, tzinfo=UTC)
    day = epoch(first, paulo)
    assert day == epoch(first - timedelta(seconds=1), paulo) + 1
    assert first == start_of(day, paulo)
    assert timedelta(hours=23) == length(first, paulo)


def test_a_day_that_a_country_skipped_has_no_length() -> None:
    """Samoa went from the 29th to the 31st of December 2011."""
    apia = Calendar(Period.DAY, "Pacific/Apia")
    first = local("Pacific/Apia", 2011, 12, 31)
    last = first.astimezone(UTC) - timedelta(seconds=1)
    assert epoch(last, apia) + 2 == epoch(first, apia)
    assert first.astimezone(UTC) == start_of(epoch(first, apia) - 1, apia) == start_of(epoch(first, apia), apia)


def test_a_week_lasts_from_monday_to_sunday() -> None:
    weeks = Calendar(Period.WEEK, "Europe/Berlin")
    monday = local("Europe/Berlin", 2026, 6, 15)
    sunday = local("Europe/Berlin", 2026, 6, 21, 23, 59, 59)
    assert epoch(monday, weeks) == epoch(sunday, weeks) == epoch(monday - timedelta(seconds=1), weeks) + 1
    assert monday == start_of(epoch(monday, weeks), weeks)


@pytest.mark.parametrize(
    ("month", "days"), [((2026, 2), 28), ((2028, 2), 29), ((2026, 4), 30), ((2026, 7), 31), ((2100, 2), 28)]
)
def test_months_are_those_of_the_calendar(month: tuple[int, int], days: int) -> None:
    tokyo = Calendar(Period.MONTH, "Asia/Tokyo")
    assert timedelta(days=days) == length(local("Asia/Tokyo", *month, 15), tokyo)


def test_a_month_in_which_summer_time_begins_is_an_hour_shorter() -> None:
    berlin = Calendar(Period.MONTH, "Europe/Berlin")
    assert timedelta(days=31, hours=-1) == length(local("Europe/Berlin", 2026, 3, 15), berlin)


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="Mars/Olympus is no IANA time zone known here, such as UTC"):
        Calendar(Period.DAY, "Mars/Olympus")


@pytest.mark.parametrize("name", ["", "../etc/passwd", "/etc/localtime", "UTC\0"])
def test_what_is_no_name_at_all_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is no IANA time zone"):
        Calendar(Period.DAY, name)


def never_falling(seconds: int, calendar: Calendar) -> int:
    """As who stores epochs sees them: in some zones midnight comes twice, and the higher one stays."""
    return max(epoch_of(Kind.CONSUMABLE, seconds - earlier, calendar) for earlier in (0, 3599, 3600, 7200))


@given(moments, calendars)
def test_every_instant_lies_in_its_period_whatever_the_calendar(seconds: int, calendar: Calendar) -> None:
    now, found = datetime.fromtimestamp(seconds, UTC), never_falling(seconds, calendar)
    end = period_end(Kind.CONSUMABLE, found, calendar)
    assert end is not None
    assert start_of(found, calendar) <= now < end


@given(moments, st.integers(0, 10**6), calendars)
def test_an_epoch_never_falls_as_time_goes_on(seconds: int, later: int, calendar: Calendar) -> None:
    assert never_falling(seconds, calendar) <= never_falling(seconds + later, calendar)


@given(moments, calendars)
def test_a_period_begins_at_the_first_instant_that_belongs_to_it(seconds: int, calendar: Calendar) -> None:
    found = never_falling(seconds, calendar)
    begin = int(start_of(found, calendar).timestamp())
    assert found <= never_falling(begin, calendar)
    assert found > never_falling(begin - 1, calendar)
