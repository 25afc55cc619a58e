import pytest
from msgspec.structs import replace
from tests.core.builders import allocation, move

from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    grant_and_request,
    hand_over,
    new_allocation,
    request_moves,
    set_limit,
)
from regionquota.core.quota import MAX_AMOUNT, Kind
from regionquota.errors import ProtocolError, StaleVersion

PLAN, OVERRIDE = LimitSource.PLAN, LimitSource.OVERRIDE


def planned(amount: int | None, version: int = 1) -> Allocation:
    return new_allocation(Kind.ALLOCATED, PLAN, VersionedLimit(amount, version))


def test_a_new_quota_lies_in_the_pool() -> None:
    fresh = planned(500)
    assert (500, 500, {}) == (fresh.limit, fresh.pool, dict(fresh.slices))


def test_an_allocation_that_does_not_add_up_cannot_exist() -> None:
    with pytest.raises(ProtocolError, match="pool \\+ retired \\+ slices is 301, the limit 300"):
        replace(allocation(300, eu=100), pool=201)


def test_a_limit_that_nobody_set_cannot_exist() -> None:
    with pytest.raises(ProtocolError, match="neither the override's nor the plan's"):
        replace(allocation(300), plan=VersionedLimit(299, 1))


@pytest.mark.parametrize("size", [-1, MAX_AMOUNT + 1])
def test_a_slice_out_of_range_cannot_exist(size: int) -> None:
    with pytest.raises(ProtocolError):
        allocation(300, eu=size)


@pytest.mark.parametrize("wrong", [move("eu", "us", 0), move("eu", "us", -1), move("eu", "eu", 1)])
def test_a_move_of_nothing_or_to_its_own_source_cannot_exist(wrong: Move) -> None:
    with pytest.raises(ProtocolError):
        request_moves(allocation(300, eu=100), [wrong])


def test_retired_capacity_counts() -> None:
    assert 150 == allocation(300, retired=50, eu=100).pool


def test_retired_capacity_cannot_be_negative() -> None:
    with pytest.raises(ProtocolError):
        allocation(300, retired=-1)


def test_slices_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        allocation(300, eu=100).slices["eu"] = 101  # type: ignore[index]


def test_the_dictionary_it_was_made_of_may_change_afterwards() -> None:
    slices = {"eu": 100}
    made = replace(allocation(300, eu=100), slices=slices)
    slices["eu"] = 101
    assert 100 == made.slice_of("eu")


def test_a_higher_limit_goes_to_the_pool() -> None:
    raised = set_limit(allocation(300, eu=200), PLAN, VersionedLimit(400, 2))
    assert (400, 200, 200) == (raised.limit, raised.pool, raised.slice_of("eu"))


def test_a_lower_limit_leaves_the_pool_in_debt_until_it_is_collected() -> None:
    cut = set_limit(allocation(300, eu=200, us=100), PLAN, VersionedLimit(220, 2))
    assert (-80, 200, 100) == (cut.pool, cut.slice_of("eu"), cut.slice_of("us"))
    collected = hand_over(request_moves(cut, [move("eu", None, 80)]), "eu", 120, 0)
    assert (0, 120) == (collected.pool, collected.slice_of("eu"))


def test_an_older_version_never_wins() -> None:
    with pytest.raises(StaleVersion, match="PLAN version 4 does not replace version 5"):
        set_limit(planned(500, version=5), PLAN, VersionedLimit(600, 4))


def test_the_same_version_with_the_same_amount_changes_nothing() -> None:
    known = planned(500, version=5)
    assert known is set_limit(known, PLAN, VersionedLimit(500, 5))


def test_the_same_version_with_another_amount_is_stale() -> None:
    with pytest.raises(StaleVersion):
        set_limit(planned(500, version=5), PLAN, VersionedLimit(501, 5))


def test_an_override_beats_the_plan() -> None:
    assert 700 == set_limit(planned(500), OVERRIDE, VersionedLimit(700, 1)).limit


def test_an_override_may_be_lower_than_the_plan() -> None:
    assert 0 == set_limit(planned(500), OVERRIDE, VersionedLimit(0, 1)).limit


def test_a_new_plan_under_an_override_waits_for_its_turn() -> None:
    overridden = set_limit(planned(500), OVERRIDE, VersionedLimit(700, 1))
    replanned = set_limit(overridden, PLAN, VersionedLimit(550, 2))
    assert 700 == replanned.limit
    assert 550 == set_limit(replanned, OVERRIDE, VersionedLimit(None, 2)).limit


def test_an_override_that_was_taken_back_does_not_come_back() -> None:
    taken_back = set_limit(set_limit(planned(500), OVERRIDE, VersionedLimit(700, 7)), OVERRIDE, VersionedLimit(None, 8))
    with pytest.raises(StaleVersion):
        set_limit(taken_back, OVERRIDE, VersionedLimit(700, 7))


def test_the_versions_of_plan_and_override_are_counted_apart() -> None:
    overridden = set_limit(planned(500, version=9), OVERRIDE, VersionedLimit(700, 1))
    assert 1000 == set_limit(overridden, OVERRIDE, VersionedLimit(1000, 2)).limit


def test_without_any_word_the_limit_is_zero() -> None:
    assert 0 == planned(None).limit


def test_a_grant_comes_out_of_the_pool() -> None:
    granted = grant(allocation(300, eu=100), {"eu": 20, "us": 30})
    assert (150, 120, 30) == (granted.pool, granted.slice_of("eu"), granted.slice_of("us"))


def test_a_region_joins_with_nothing() -> None:
    assert {"eu": 0} == dict(grant(allocation(300), {"eu": 0}).slices)


def test_no_more_is_granted_than_the_pool_holds() -> None:
    with pytest.raises(ProtocolError, match="out of a pool of 200"):
        grant(allocation(300, eu=100), {"eu": 100, "us": 101})


def test_nothing_is_granted_out_of_a_negative_pool() -> None:
    cut = set_limit(allocation(300, eu=300), PLAN, VersionedLimit(200, 2))
    with pytest.raises(ProtocolError):
        grant(cut, {"us": 1})


def test_a_negative_grant_is_refused() -> None:
    with pytest.raises(ProtocolError):
        grant(allocation(300, eu=100), {"eu": -50, "us": 60})


def test_requesting_a_move_moves_nothing() -> None:
    before = allocation(300, eu=200, us=50)
    assert dict(before.slices) == dict(request_moves(before, [move("eu", "us", 100)]).slices)


def test_new_requests_replace_the_old_ones() -> None:
    first = request_moves(allocation(300, eu=200), [move("eu", "us", 100, "old")])
    assert ["new"] == [one.id for one in request_moves(first, [move("eu", "us", 30, "new")]).moves]


def test_a_grant_and_moves_in_one_change_are_one_after_the_other() -> None:
    before, moves = allocation(300, eu=200, moves=[move("us", "eu", 5)]), [move("eu", "us", 30, "new")]
    together = grant_and_request(before, {"us": 40}, moves)
    assert request_moves(grant(before, {"us": 40}), moves) == together
    with pytest.raises(ProtocolError, match="out of a pool of 100"):
        grant_and_request(before, {"us": 101}, moves)


def test_a_move_may_ask_for_more_than_the_source_owns() -> None:
    asked = request_moves(allocation(300, eu=20), [move("eu", "us", 100)])
    handed = hand_over(asked, "eu", 0, 0)
    assert (0, 20) == (handed.slice_of("eu"), handed.slice_of("us"))


def test_what_the_donor_no_longer_holds_is_the_receivers() -> None:
    handed = hand_over(allocation(300, eu=200, moves=[move("eu", "us", 40)]), "eu", 160, 0)
    assert (160, 40, ()) == (handed.slice_of("eu"), handed.slice_of("us"), handed.moves)


def test_a_donor_that_could_give_only_a_part_gives_that_part() -> None:
    handed = hand_over(allocation(300, eu=200, moves=[move("eu", "us", 40)]), "eu", 185, 0)
    assert (185, 15, ()) == (handed.slice_of("eu"), handed.slice_of("us"), handed.moves)


def test_a_donor_that_could_give_nothing_withdraws_its_moves() -> None:
    handed = hand_over(allocation(300, eu=200, moves=[move("eu", "us", 40)]), "eu", 200, 0)
    assert (200, 0, ()) == (handed.slice_of("eu"), handed.slice_of("us"), handed.moves)


def test_a_donor_gives_no_more_than_it_was_asked_for() -> None:
    handed = hand_over(allocation(300, eu=200, moves=[move("eu", "us", 40)]), "eu", 100, 0)
    assert (160, 40) == (handed.slice_of("eu"), handed.slice_of("us"))


def test_a_donor_that_owns_nothing_gives_nothing() -> None:
    handed = hand_over(allocation(300, us=200, moves=[move("eu", "us", 40)]), "eu", 0, 0)
    assert ({"us": 200}, ()) == (dict(handed.slices), handed.moves)


def test_capacity_returns_to_the_pool() -> None:
    handed = hand_over(allocation(300, eu=200, moves=[move("eu", None, 40)]), "eu", 160, 0)
    assert (160, 140) == (handed.slice_of("eu"), handed.pool)


def test_several_moves_are_served_in_their_order() -> None:
    moves = [move("eu", "us", 40, "m1"), move("eu", None, 30, "m2"), move("eu", "ap", 20, "m3")]
    handed = hand_over(allocation(200, eu=200, moves=moves), "eu", 145, 0)
    assert (145, 40, 15, 0) == (handed.slice_of("eu"), handed.slice_of("us"), handed.pool, handed.slice_of("ap"))


def test_the_moves_of_others_stay_requested() -> None:
    moves = [move("eu", "us", 40, "m1"), move("us", "ap", 5, "m2")]
    handed = hand_over(allocation(300, eu=200, us=10, moves=moves), "eu", 160, 0)
    assert ["m2"] == [one.id for one in handed.moves]


def test_the_donors_epoch_is_recorded() -> None:
    asked = allocation(300, kind=Kind.CONSUMABLE, epoch=24_305, eu=200, moves=[move("eu", "us", 40)])
    assert 24_306 == hand_over(asked, "eu", 160, 24_306).epoch


def test_an_older_donor_does_not_set_the_epoch_back() -> None:
    asked = allocation(300, kind=Kind.CONSUMABLE, epoch=24_306, eu=200, moves=[move("eu", "us", 40)])
    assert 24_306 == hand_over(asked, "eu", 160, 24_305).epoch


def test_a_donor_that_holds_more_than_it_owns_is_a_bug() -> None:
    with pytest.raises(ProtocolError, match="eu holds 201 but owns 200"):
        hand_over(allocation(300, eu=200, moves=[move("eu", "us", 40)]), "eu", 201, 0)


def test_the_moves_that_name_a_region_are_those_from_it_and_to_it() -> None:
    moves = [move("eu", "us", 1, "m1"), move("us", "ap", 1, "m2"), move("ap", None, 1, "m3")]
    assert ["m1", "m2"] == [one.id for one in allocation(300, eu=9, us=9, ap=9, moves=moves).moves_naming("us")]
