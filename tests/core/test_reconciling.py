"""What a count says of a balance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import NOON, OTHER, QUOTA

from regionquota.core.reconciling import Sighting, Verdict, beyond_doubt, judge, judge_closed, request_id_of


def verdict(truth: int, sight: Sighting, floor: int = 0) -> Verdict:
    return judge(truth, sight, floor).verdict


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (10_000, Verdict.AGREES),
        (10_010, Verdict.AGREES),
        (9_990, Verdict.AGREES),
        (10_011, Verdict.ADJUST),
        (9_989, Verdict.ADJUST),
        (10_500, Verdict.ADJUST),
        (9_500, Verdict.ADJUST),
        (10_501, Verdict.CASE),
        (9_499, Verdict.CASE),
    ],
)
def test_a_thousandth_is_nothing_and_more_than_a_twentieth_is_a_case(truth: int, expected: Verdict) -> None:
    assert expected is verdict(truth, Sighting(used=10_000))


def test_the_floor_counts_where_it_is_the_larger_bound() -> None:
    assert Verdict.AGREES is verdict(10, Sighting(used=0), floor=10)
    assert Verdict.CASE is verdict(11, Sighting(used=0), floor=10)
    assert Verdict.AGREES is verdict(10_010, Sighting(used=10_000), floor=1)


def test_what_was_committed_after_the_snapshot_survives_it() -> None:
    assert Verdict.AGREES is verdict(1000, Sighting(used=1300, since=300))
    assert 20 == judge(1020, Sighting(used=1300, since=300), 0).difference


def test_what_was_given_back_after_the_snapshot_is_not_given_back_again() -> None:
    assert Verdict.AGREES is verdict(1000, Sighting(used=400, since=-600))


def test_a_quota_that_was_charged_around_the_snapshot_is_left_to_a_later_one() -> None:
    assert Verdict.UNSETTLED is verdict(1020, Sighting(used=1000, near=True))


def test_a_hold_that_was_open_then_and_committed_since_leaves_the_quota_to_a_later_one() -> None:
    assert Verdict.UNSETTLED is verdict(1020, Sighting(used=1020, since=20, settled=20))


@pytest.mark.parametrize(("truth", "difference"), [(99, -1), (100, 0), (110, 0), (111, 1)])
def test_the_work_of_open_holds_may_be_done_or_not(truth: int, difference: int) -> None:
    assert difference == beyond_doubt(truth, Sighting(used=100, held=10))


def test_an_adjustment_below_zero_is_a_case_however_small_it_is() -> None:
    judged = judge(970, Sighting(used=10, since=-990), 0)
    assert (Verdict.CASE, -30) == (judged.verdict, judged.difference)
    assert "below 0" in judged.why


def test_usage_where_the_ledger_shows_none_is_a_case() -> None:
    assert Verdict.CASE is verdict(1, Sighting())


def test_a_closed_period_is_never_adjusted() -> None:
    assert Verdict.AGREES is judge_closed(10_010, 10_000, 0).verdict
    assert Verdict.CASE is judge_closed(10_011, 10_000, 0).verdict
    assert Verdict.CASE is judge_closed(9_989, 10_000, 0).verdict
    assert Verdict.AGREES is judge_closed(9_989, 10_000, 11).verdict


def test_a_count_is_acted_upon_under_one_name() -> None:
    name = request_id_of("inventory", NOON, QUOTA)
    assert name == request_id_of("inventory", NOON, QUOTA)
    others = {
        request_id_of("billing", NOON, QUOTA),
        request_id_of("inventory", NOON + 1, QUOTA),
        request_id_of("inventory", NOON, OTHER),
    }
    assert 3 == len(others - {name})


@given(
    before=st.integers(0, 10**6),
    drift=st.integers(-1000, 1000),
    since=st.lists(st.integers(-1000, 1000), max_size=5),
)
def test_an_adjustment_makes_the_ledger_say_what_is_true(before: int, drift: int, since: list[int]) -> None:
    """`drift` was lost before the snapshot; the ledger and the world both go on by `since`."""
    truth = max(0, before + drift)
    used = before + sum(since)
    judged = judge(truth, Sighting(used=used, since=sum(since)), 0)
    if judged.verdict is Verdict.ADJUST:
        assert truth + sum(since) == used + judged.difference
