"""Capacity of an evicted region: counted once, always, until there is evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import allocation as document
from tests.core.builders import at

from regionquota.core.allocation import Allocation, Move, Retired
from regionquota.core.eviction import CLOCK_MARGIN_S, evict, readmit, release_ended
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind

JUNE, JULY = at(2026, 6, 15, 12), at(2026, 7, 1, 0)
IN_JUNE, IN_JULY = epoch_of(Kind.CONSUMABLE, JUNE), epoch_of(Kind.CONSUMABLE, JULY)


def used_up(allocation: Allocation) -> int:
    return allocation.limit - allocation.pool


def test_what_it_owned_stays_counted_as_spent() -> None:
    gone = evict(document(300, eu=100, ap=50), "ap", JUNE)
    assert {"ap": Retired(50)} == gone.retired
    assert ({"eu": 100}, 150) == (gone.slices, gone.pool)


def test_no_move_names_it_any_more() -> None:
    moves = [Move("1", "ap", "eu", 5), Move("2", "eu", "ap", 5), Move("3", "eu", None, 5)]
    assert ("3",) == tuple(move.id for move in evict(document(300, eu=100, ap=50, moves=moves), "ap", JUNE).moves)


def test_a_quota_that_it_has_no_part_in_is_not_touched() -> None:
    known = document(300, eu=100)
    assert known is evict(known, "ap", JUNE)


def test_a_claim_that_came_late_is_retired_too() -> None:
    once = evict(document(300, ap=50), "ap", JUNE)
    again = evict(replace(once, slices={"ap": 7}, pool=once.pool - 7), "ap", JUNE)
    assert {"ap": Retired(57)} == again.retired


def test_the_end_of_the_period_returns_it_to_the_pool() -> None:
    gone = evict(document(300, kind=Kind.CONSUMABLE, eu=100, ap=50), "ap", JUNE)
    assert gone is release_ended(gone, JUNE)
    over = release_ended(gone, JULY)
    assert ({}, 200) == (over.retired, over.pool)


def test_what_the_end_of_the_period_returned_is_not_spent_by_who_still_lives_in_it() -> None:
    over = release_ended(evict(document(300, kind=Kind.CONSUMABLE, ap=50), "ap", JUNE), JULY)
    assert IN_JULY == over.epoch


def test_its_clock_may_have_been_ahead_of_ours() -> None:
    gone = evict(document(300, kind=Kind.CONSUMABLE, ap=50), "ap", JULY - CLOCK_MARGIN_S + 1)
    assert {"ap": Retired(50, IN_JULY)} == gone.retired
    assert gone is release_ended(gone, JULY + 1)


def test_allocated_capacity_waits_for_evidence_however_long() -> None:
    gone = evict(document(300, ap=50), "ap", JUNE)
    assert gone is release_ended(gone, JULY)


def test_what_it_has_in_use_is_its_own_again() -> None:
    back = readmit(evict(document(300, eu=100, ap=50), "ap", JUNE), "ap", 20, 0)
    assert ({"eu": 100, "ap": 20}, {}, 180) == (back.slices, back.retired, back.pool)


def test_it_gets_no_more_than_was_retired() -> None:
    assert {"ap": 50} == readmit(evict(document(300, ap=50), "ap", JUNE), "ap", 70, 0).slices


def test_usage_of_a_period_that_is_over_counts_no_more() -> None:
    gone = evict(document(300, kind=Kind.CONSUMABLE, ap=50), "ap", JUNE)
    assert 300 == readmit(gone, "ap", 20, IN_JULY).pool
    assert 280 == readmit(gone, "ap", 20, IN_JUNE).pool


@given(
    st.sampled_from(Kind), st.dictionaries(st.sampled_from(["eu", "us", "ap"]), st.integers(0, 90)),
    st.integers(0, 100), st.sampled_from([IN_JUNE, IN_JULY]), st.sampled_from([JUNE, JULY]),
)  # fmt: skip
def test_nothing_is_free_that_may_be_spent(
    kind: Kind, slices: dict[str, int], in_use: int, epoch: int, now: float
) -> None:
    known = document(300, kind=kind, **slices)
    gone = evict(known, "ap", JUNE)
    assert used_up(known) == used_up(gone)
    back = readmit(gone, "ap", in_use, epoch if kind is Kind.CONSUMABLE else 0)
    over = kind is Kind.CONSUMABLE and epoch > IN_JUNE
    assert used_up(back) >= sum(size for name, size in slices.items() if name != "ap") + (
        0 if over else min(in_use, slices.get("ap", 0))
    )
    assert used_up(release_ended(gone, now)) >= sum(size for name, size in slices.items() if name != "ap")


def test_more_than_nothing_cannot_be_retired_below_zero() -> None:
    with pytest.raises(Exception, match="retired of ap is -1"):
        replace(document(300), retired={"ap": Retired(-1)}, pool=301)
