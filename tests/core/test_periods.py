from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.core.periods import TIMELESS, epoch_of, period_end, start_of
from regionquota.core.quota import Kind

moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - UTC is added below


def monthly(moment: datetime) -> int:
    return epoch_of(Kind.CONSUMABLE, moment.timestamp())


@given(moments)
def test_what_is_held_until_it_is_given_back_knows_no_periods(moment: datetime) -> None:
    assert TIMELESS == epoch_of(Kind.ALLOCATED, moment.replace(tzinfo=UTC).timestamp())


def test_a_timeless_period_has_no_end() -> None:
    assert period_end(Kind.ALLOCATED, TIMELESS) is None


@pytest.mark.parametrize(
    ("year", "month", "last"),
    [(2026, 1, 31), (2026, 2, 28), (2028, 2, 29), (2100, 2, 28), (2026, 4, 30), (2026, 12, 31)],
)
def test_a_month_lasts_to_the_end_of_its_last_day(year: int, month: int, last: int) -> None:
    begin = datetime(year, month, 1, tzinfo=UTC)
    end = datetime(year, month, last, 23, 59, 59, 999_000, tzinfo=UTC)
    assert monthly(begin) == monthly(end)
    assert monthly(begin) + 1 == monthly(end + timedelta(milliseconds=1))


def test_a_period_ends_where_the_next_begins() -> None:
    february = monthly(datetime(2028, 2, 10, tzinfo=UTC))
    assert datetime(2028, 3, 1, tzinfo=UTC) == period_end(Kind.CONSUMABLE, february)


def test_december_is_followed_by_january() -> None:
    december = monthly(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert datetime(2027, 1, 1, tzinfo=UTC) == period_end(Kind.CONSUMABLE, december)


@given(moments)
def test_every_moment_lies_in_its_period(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC, microsecond=0)
    epoch = monthly(moment)
    end = period_end(Kind.CONSUMABLE, epoch)
    assert end is not None
    assert start_of(epoch) <= moment < end
