"""When a balance begins anew: at the tenant's own boundary, once, and not a moment earlier."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from tests.core.builders import Book

from regionquota.core.commands import Denied, Granted
from regionquota.core.periods import Calendar, Period, epoch_of, period_end
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind

BERLIN = "Europe/Berlin"


def midnight(*day: int, zone: str = BERLIN) -> datetime:
    return datetime(*day, tzinfo=ZoneInfo(zone)).astimezone(UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 15), 24)])
def test_a_balance_begins_anew_once_on_a_day_of_any_length(day: tuple[int, int, int], hours: int) -> None:
    """One unit is used in each half of an hour, from two hours before the day to two hours after it."""
    begin, end = midnight(*day), midnight(*day) + timedelta(hours=hours)
    book = Book(1000, Kind.CONSUMABLE, begin.timestamp() - 7200, QuotaPolicy(Calendar(Period.DAY, BERLIN)))
    begun = []
    while book.now < end.timestamp() + 7200:
        before = book.counter().used
        book.adjust(1)
        if book.counter().used != before + 1:
            begun.append(datetime.fromtimestamp(book.now, UTC))
        book.now += 1800
    assert [begin, end] == begun
    assert 2 * hours == book.closed(epoch_of(Kind.CONSUMABLE, begin.timestamp(), Calendar(Period.DAY, BERLIN))).used


@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Asia/Kolkata", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("period", Period)
def test_what_is_used_up_stays_so_until_the_period_ends_and_not_longer(period: Period, zone: str) -> None:
    calendar = Calendar(period, zone)
    begun = datetime(2026, 6, 15, 9, 31, tzinfo=UTC).timestamp()
    end = period_end(Kind.CONSUMABLE, epoch_of(Kind.CONSUMABLE, begun, calendar), calendar)
    assert end is not None
    book = Book(10, Kind.CONSUMABLE, begun, QuotaPolicy(calendar))
    book.adjust(10)
    book.now = end.timestamp() - 0.001
    assert isinstance(book.reserve(1), Denied)
    book.now = end.timestamp()
    assert isinstance(book.reserve(10), Granted)
