"""What is foreseen, whatever was counted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.core.forecast import Counted, Foreseen, Outlook, Past, hour_of, hours_to_recall, outlook, together
from regionquota.core.quota import MAX_AMOUNT, QuotaKey

KEY = QuotaKey("acme", "vcpu")
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
HOUR = 500_000 * HOUR_S
NOON = HOUR + HOUR_S / 2

HOURLY = Counted(3600)

units = st.integers(0, MAX_AMOUNT)
hours = st.sampled_from(hours_to_recall(NOON, HOUR_S))
pasts = st.builds(
    Past,
    key=st.just(KEY),
    since=st.sampled_from([HOUR - day * DAY_S for day in range(20)]),
    hours=st.dictionaries(hours, st.builds(Counted, units, units, units, units)),
)


def days(count: int, counted: Counted = HOURLY, since: int | None = None) -> Past:
    """So much in each hour of so many days, up to the hour of NOON."""
    first = HOUR - (since or count) * DAY_S
    recalled = [hour for hour in hours_to_recall(NOON, HOUR_S) if hour >= HOUR - count * DAY_S]
    return Past(KEY, first, dict.fromkeys(recalled, counted) | {HOUR: Counted(*(one // 2 for one in counted))})


def foreseen(past: Past, at: float = NOON) -> Foreseen:
    found = outlook(past, NOON, HOUR_S)
    assert found is not None
    return found.at(at, HOUR_S)


@given(pasts, st.floats(-HOUR_S, 3 * HOUR_S))
def test_it_is_finite_and_not_below_nothing(past: Past, passed: float) -> None:
    found = outlook(past, NOON, HOUR_S)
    if found is not None:
        assert all(math.isfinite(value) and value >= 0 for value in found.at(NOON + passed, HOUR_S))


@given(pasts)
def test_nothing_is_said_before_the_same_hours_of_a_day_are_known(past: Past) -> None:
    assert (past.since > HOUR - DAY_S) == (outlook(past, NOON, HOUR_S) is None)


@given(st.integers(1, 14), st.integers(0, 10**6), st.integers(1, 10))
def test_what_is_the_same_every_day_is_expected_to_be_so(count: int, minute: int, change: int) -> None:
    past = days(count, Counted(60 * minute, 0, 0, minute))
    assert foreseen(past).expected == pytest.approx(minute / 60, rel=0.06)
    assert 0.0 == foreseen(past).deviation


@given(st.integers(1, 14), st.integers(0, 1000), st.integers(1, 1000))
def test_more_on_any_day_is_never_expected_to_be_less(day: int, before: int, more: int) -> None:
    past, hour = days(14, Counted(before * 60)), HOUR - day * DAY_S
    grown = Past(KEY, past.since, {**past.hours, hour: Counted((before + more) * 60)})
    first, second = (outlook(one, HOUR, HOUR_S) for one in (past, grown))
    assert first is not None
    assert second is not None
    assert second.this.expected >= first.this.expected
    assert second.this.deviation >= first.this.deviation


def test_what_was_unusual_on_a_day_or_two_is_not_expected() -> None:
    past = days(5)
    unusual = {HOUR - day * DAY_S + next_: amount for day, amount in ((1, 10**6), (4, 0)) for next_ in (0, HOUR_S)}
    other = Past(KEY, past.since, past.hours | {hour: Counted(amount) for hour, amount in unusual.items()})
    assert foreseen(past).expected == foreseen(other).expected


def test_of_two_days_the_lesser_is_expected() -> None:
    past = days(2)
    more = {hour: Counted(7200) for hour in past.hours if hour < HOUR - 1.5 * DAY_S}
    other = Past(KEY, past.since, {**past.hours, **more})
    assert foreseen(past).expected == foreseen(other).expected


def test_an_hour_without_a_count_asked_for_nothing() -> None:
    assert days(2, since=5).hours.keys() == days(2).hours.keys()
    assert foreseen(days(2, since=5)).expected < foreseen(days(2)).expected


def test_it_goes_over_into_what_is_expected_an_hour_later() -> None:
    found = Outlook(HOUR, HOUR, Foreseen(1.0, 10.0), Foreseen(3.0, 20.0))
    told = [found.at(HOUR + passed * HOUR_S, HOUR_S) for passed in (-1, 0, 0.5, 1, 2)]
    assert [(1, 10), (1, 10), (2, 15), (3, 20), (3, 20)] == told


def test_a_part_of_what_today_differs_by_goes_on() -> None:
    past = days(7)
    busy = Past(KEY, past.since, {**past.hours, HOUR - HOUR_S: Counted(7200), HOUR: Counted(3600)})
    quiet = Past(KEY, past.since, {**past.hours, HOUR - HOUR_S: Counted(), HOUR: Counted()})
    assert [1.7, 1.0, 0.33] == [foreseen(one).expected for one in (busy, past, quiet)]


def test_what_is_given_back_is_no_growth() -> None:
    assert 0.0 == foreseen(days(3, Counted(granted=3600, freed=3600))).expected
    assert 0.0 == foreseen(days(3, Counted(granted=3600, freed=7200))).expected


def test_callers_that_ask_again_and_again_are_no_demand() -> None:
    assert 2.0 == foreseen(days(3, Counted(granted=3600, denied=10**9))).expected


def test_a_busy_minute_is_what_it_asks_beyond_the_mean() -> None:
    assert 40.0 == foreseen(days(3, Counted(granted=600, peak=50))).deviation
    assert 50.0 == together([30.0, 0.0, 40.0])
    assert 0.0 == together([])


def test_hours_of_a_day_are_recalled_for_two_weeks_and_the_last_two() -> None:
    recalled = hours_to_recall(NOON, HOUR_S)
    assert HOUR == hour_of(NOON, HOUR_S) == max(recalled)
    assert HOUR - 14 * DAY_S - HOUR_S == min(recalled)
    assert 14 * 4 + 2 == len(set(recalled))


def test_the_next_two_hours_count_alike() -> None:
    hours = {
        hour: Counted(3600 * n) for n, hour in enumerate(range(int(HOUR - DAY_S), int(HOUR - DAY_S) + 10800, 3600))
    }
    found = outlook(Past(KEY, HOUR - DAY_S, dict(hours)), HOUR, HOUR_S)
    assert found is not None
    assert (0.5, 1.5) == (found.this.expected, found.next.expected)
