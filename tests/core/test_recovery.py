"""A document that is made of what the regions hold."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct
from tests.core.builders import NOON, QUOTA
from tests.core.builders import allocation as document

from regionquota.core.allocation import UNLIMITED, Allocation, Move, Retired, VersionedLimit
from regionquota.core.eviction import readmit
from regionquota.core.policy import DEFAULT_POLICY, Enforcement
from regionquota.core.quota import Kind
from regionquota.core.recovery import Stated
from regionquota.core.recovery import rebuild as rebuild_if_any

SNAPSHOT = 100


def rebuild(*words: Any) -> Allocation:
    made = rebuild_if_any(*words)
    assert made is not None
    return made


def holds(units: int, *, revision: int = SNAPSHOT, limit: int = 300, epoch: int = 0, unlimited: bool = False) -> Stated:
    return Stated(QUOTA, Kind.ALLOCATED, limit, unlimited, DEFAULT_POLICY, revision, epoch, units, units)


def test_slices_are_what_the_regions_hold_and_the_rest_is_in_the_pool() -> None:
    made = rebuild(document(300, eu=100, us=100), SNAPSHOT, {"eu": holds(40), "us": holds(120)}, [], [], NOON)
    assert ({"eu": 40, "us": 120}, 140) == (made.slices, made.pool)


def test_a_region_that_the_snapshot_does_not_know() -> None:
    assert {"eu": 40, "ap": 7} == rebuild(
        document(300, eu=40), SNAPSHOT, {"eu": holds(40), "ap": holds(7)}, [], [], NOON
    ).slices


def test_moves_of_the_snapshot_are_forgotten() -> None:
    made = rebuild(document(300, eu=40, moves=[Move("1", "eu", "us", 5)]), SNAPSHOT, {"eu": holds(40)}, [], [], NOON)
    assert () == made.moves


def test_more_than_the_limit_is_held() -> None:
    assert -50 == rebuild(document(300), SNAPSHOT, {"eu": holds(200), "us": holds(150)}, [], [], NOON).pool


def test_a_limit_that_a_region_has_heard_of_since_the_snapshot() -> None:
    made = rebuild(document(300), SNAPSHOT, {"eu": holds(0), "us": holds(350, revision=101, limit=500)}, [], [], NOON)
    assert (500, VersionedLimit(500, 1), 150) == (made.limit, made.plan, made.pool)


def test_a_limit_that_was_older_than_the_snapshots() -> None:
    assert 300 == rebuild(document(300), SNAPSHOT, {"eu": holds(0, revision=99, limit=500)}, [], [], NOON).limit


def test_an_override_that_was_changed_since() -> None:
    known = replace_struct(document(300), override=VersionedLimit(300, 4))
    made = rebuild(known, SNAPSHOT, {"eu": holds(0, revision=101, limit=20)}, [], [], NOON)
    assert (20, VersionedLimit(300, 1), VersionedLimit(20, 4)) == (made.limit, made.plan, made.override)


def test_a_quota_that_became_unlimited_since() -> None:
    made = rebuild(document(300), SNAPSHOT, {"eu": holds(10, revision=101, unlimited=True)}, [], [], NOON)
    assert (UNLIMITED, True) == (made.plan.amount if made.plan else None, made.unlimited)


def test_a_quota_that_was_made_since() -> None:
    made = rebuild(None, 0, {"eu": holds(10, limit=50)}, [], [], NOON)
    assert (50, {"eu": 10}, 40, VersionedLimit(50, 0)) == (made.limit, made.slices, made.pool, made.plan)


def test_a_quota_that_was_removed_stays_so() -> None:
    ended = replace(holds(0, limit=0), policy=replace(DEFAULT_POLICY, admission_open=False))
    assert rebuild_if_any(None, 0, {"eu": ended, "us": ended}, [], [], NOON) is None
    assert {"eu": 3} == rebuild(None, 0, {"eu": replace(ended, slice=3), "us": ended}, [], [], NOON).slices
    assert rebuild(None, 0, {"eu": holds(0, limit=0)}, [], [], NOON).policy.admission_open


def owes(units: int, *, slice_: int = 0) -> Stated:
    return replace(holds(slice_), in_use=slice_ + units)


def test_what_is_owed_was_never_within_the_limit() -> None:
    made = rebuild(document(300), SNAPSHOT, {"us": owes(40, slice_=100), "eu": holds(150)}, [], [], NOON)
    assert ({"us": 100, "eu": 150}, 50) == (made.slices, made.pool)


def test_what_was_taken_from_a_region_is_its_own_again_where_that_is_forgotten() -> None:
    made = rebuild(document(300), SNAPSHOT, {"us": owes(40), "eu": holds(200)}, [], [], NOON, ["us"])
    assert ({"us": 40, "eu": 200}, 60) == (made.slices, made.pool)


def test_of_what_is_owed_nothing_is_owned_beyond_the_limit() -> None:
    """More could be spent than the limit once it was given back."""
    made = rebuild(document(300), SNAPSHOT, {"us": owes(40), "eu": holds(290)}, [], [], NOON, ["us"])
    assert ({"us": 10, "eu": 290}, 0) == (made.slices, made.pool)
    made = rebuild(document(300), SNAPSHOT, {"us": owes(40), "eu": holds(310)}, [], [], NOON, ["us"])
    assert ({"eu": 310}, -10) == (made.slices, made.pool)


def test_what_an_evicted_region_has_in_use_is_retired_though_the_snapshot_knows_of_less() -> None:
    known = replace_struct(document(300), retired={"us": Retired(30)}, pool=270)
    made = rebuild(known, SNAPSHOT, {"us": owes(40), "eu": holds(200)}, ["us"], [], NOON)
    assert ({"eu": 200}, 40, 60) == (made.slices, made.retired_units, made.pool)
    assert known.retired == rebuild(known, SNAPSHOT, {"us": owes(20)}, ["us"], [], NOON).retired


def test_what_was_retired_is_not_counted_beside_what_the_region_holds_since() -> None:
    """It was readmitted after the snapshot was taken."""
    known = replace_struct(document(300), retired={"us": Retired(30, unknown=5)}, pool=270)
    made = rebuild(known, SNAPSHOT, {"us": holds(20)}, ["us"], [], NOON)
    assert ({"us": 20}, 10, 270) == (made.slices, made.retired_units, made.pool)
    assert 5 == rebuild(known, SNAPSHOT, {"us": holds(40)}, ["us"], [], NOON).retired_units


def test_what_is_not_held_to_the_limit_is_not_counted_beyond_the_slice() -> None:
    for word in (
        replace(holds(5, unlimited=True), in_use=40),
        replace(holds(5), in_use=40, policy=replace(DEFAULT_POLICY, enforcement=Enforcement.SOFT)),
    ):
        assert {"us": 5} == rebuild(document(300), SNAPSHOT, {"us": word}, [], [], NOON, ["us"]).slices


def test_what_was_given_up_in_a_newer_period_is_not_spent_in_an_older_one() -> None:
    assert 7 == rebuild(document(300), SNAPSHOT, {"eu": holds(1, epoch=7), "us": holds(1, epoch=6)}, [], [], NOON).epoch


def test_a_region_that_was_evicted_before_the_snapshot_stays_counted() -> None:
    known = replace_struct(document(300, eu=100), retired={"ap": Retired(50)}, pool=150)
    made = rebuild(known, SNAPSHOT, {"eu": holds(100)}, ["ap"], [], NOON)
    assert ({"ap": Retired(50)}, 150) == (made.retired, made.pool)


def test_an_eviction_that_the_snapshot_has_half_of() -> None:
    assert {"ap": Retired(50)} == rebuild(document(300, ap=50), SNAPSHOT, {}, ["ap"], [], NOON).retired


def test_a_region_that_may_hold_anything_is_counted_with_all_that_nobody_holds() -> None:
    made = rebuild(document(300, eu=100, ap=50), SNAPSHOT, {"eu": holds(120)}, ["ap"], ["ap"], NOON)
    assert ({"ap": Retired(180)}, 0) == (made.retired, made.pool)


def test_what_one_of_two_lost_regions_may_hold_the_database_of_one_is_no_evidence_for() -> None:
    made = rebuild(document(300, eu=100), SNAPSHOT, {"eu": holds(120)}, ["ap", "us"], ["ap", "us"], NOON)
    assert {"ap": Retired(180, unknown=180)} == made.retired
    assert made is readmit(made, "ap", 10, 0)
    assert 180 == readmit(made, "ap", 0, 0, with_unknown=True).pool


@given(
    st.dictionaries(st.sampled_from(["eu", "us", "ap"]), st.integers(0, 150)),
    st.dictionaries(st.sampled_from(["eu", "us"]), st.builds(holds, st.integers(0, 300), revision=st.integers(1, 200))),
    st.sampled_from([[], ["ap"]]),
)
def test_it_owns_what_it_holds_and_once_rebuilt_stays_as_it_is(
    slices: dict[str, int], stated: dict[str, Stated], blind: list[str]
) -> None:
    made = rebuild(document(300, **slices), SNAPSHOT, stated, ["ap"], blind, NOON)
    assert all(word.slice == made.slice_of(region) for region, word in stated.items())
    assert made == rebuild(made, SNAPSHOT + 1, stated, ["ap"], [], NOON)
