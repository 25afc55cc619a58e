"""What is told of usage over all regions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import NOON, QUOTA, allocation, at, unlimited

from regionquota.core.alerts import Mark, Usage, is_watched, threshold_of, usage_of
from regionquota.core.demand import Demand
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind

THRESHOLDS = (80, 100)
MAY, JUNE = (epoch_of(Kind.CONSUMABLE, at(2026, month)) for month in (5, 6))
BOTH = allocation(100, kind=Kind.CONSUMABLE, eu=60, us=40)


def word(used: int, epoch: int = JUNE) -> Demand:
    return Demand(QUOTA, 0, used, 0, epoch=epoch)


def told(threshold: int, epoch: int = JUNE) -> Mark:
    return Mark(threshold, epoch, NOON)


def known(used: int, epoch: int = JUNE) -> Usage:
    return Usage(epoch, used, used)


# -- usage --


def test_regions_add_up_and_servers_of_one_region_do_not() -> None:
    words = [("eu", word(50)), ("eu", word(48)), ("us", word(10))]
    assert Usage(JUNE, 60, 60) == usage_of(BOTH, words, None, NOON)


def test_a_region_that_is_silent_may_have_used_its_slice() -> None:
    assert Usage(JUNE, 50, 90) == usage_of(BOTH, [("eu", word(50))], None, NOON)


def test_what_an_evicted_region_had_may_be_used() -> None:
    assert Usage(JUNE, 50, 57) == usage_of(
        allocation(100, kind=Kind.CONSUMABLE, eu=60, retired=7), [("eu", word(50))], None, NOON
    )


def test_what_was_used_before_the_period_is_not_used_in_it() -> None:
    words = [("eu", word(60, MAY)), ("us", word(3, JUNE))]
    assert Usage(JUNE, 3, 63) == usage_of(BOTH, words, None, at(2026, 6))


@pytest.mark.parametrize(("seconds", "expected"), [(59, Usage(MAY, 60, 100)), (61, Usage(JUNE, 0, 100))])
def test_a_region_may_be_in_the_period_before_for_a_moment(seconds: int, expected: Usage) -> None:
    assert expected == usage_of(BOTH, [("eu", word(60, MAY))], None, at(2026, 6) + seconds)


def test_a_period_of_which_something_was_told_is_not_left_for_the_one_before() -> None:
    assert JUNE == usage_of(BOTH, [("eu", word(60, MAY))], told(80), at(2026, 6)).epoch


def test_rates_and_what_is_unlimited_are_not_watched() -> None:
    watched = [allocation(10), unlimited(allocation(10)), allocation(10, kind=Kind.RATE)]
    assert [True, False, False] == [is_watched(one) for one in watched]


# -- thresholds --


@pytest.mark.parametrize(("used", "expected"), [(0, 0), (79, 0), (80, 80), (99, 80), (100, 100), (250, 100)])
def test_the_highest_threshold_that_is_reached_is_marked(used: int, expected: int) -> None:
    assert expected == threshold_of(100, known(used), None, THRESHOLDS)


@pytest.mark.parametrize(("used", "expected"), [(100, 100), (95, 100), (94, 80), (76, 80), (75, 80), (74, 0)])
def test_a_threshold_is_armed_again_well_below_it(used: int, expected: int) -> None:
    assert expected == threshold_of(100, known(used), told(100), THRESHOLDS)


def test_what_may_still_be_used_arms_nothing_again() -> None:
    assert 80 == threshold_of(100, Usage(JUNE, 10, 90), told(80), THRESHOLDS)


def test_a_new_period_begins_with_nothing_told() -> None:
    assert [0, 80] == [threshold_of(100, known(used), told(100, MAY), THRESHOLDS) for used in (10, 81)]


def test_any_usage_is_above_a_limit_of_nought_and_none_is_not() -> None:
    assert [0, 100] == [threshold_of(0, known(used), None, THRESHOLDS) for used in (0, 1)]


def test_a_threshold_that_is_not_configured_any_more_falls_like_any_other() -> None:
    assert [90, 80, 0] == [threshold_of(100, known(used), told(90), THRESHOLDS) for used in (85, 84, 10)]


@given(
    limit=st.integers(0, 1000),
    steps=st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 300)), min_size=1, max_size=30),
)
def test_between_two_words_of_a_threshold_usage_was_well_below_it(limit: int, steps: list[tuple[int, int]]) -> None:
    mark, lowest = 0, dict.fromkeys(THRESHOLDS, -1)
    for least, more in steps:
        usage = Usage(JUNE, least, least + more)
        lowest = {one: min(low, usage.most) for one, low in lowest.items()}
        after = threshold_of(limit, usage, told(mark) if mark else None, THRESHOLDS)
        for threshold in THRESHOLDS:
            if mark < threshold <= after:
                assert 100 * least >= threshold * limit
                assert 100 * lowest[threshold] < (threshold - 5) * limit or lowest[threshold] <= 0
                lowest[threshold] = usage.most
        mark = after
