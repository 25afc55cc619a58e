"""Why each region has what it has, by the planner's own functions."""

from tests.core.builders import allocation, unlimited

from regionquota.core.demand import Need
from regionquota.core.explaining import (
    Explained,
    Explanation,
    Rule,
    Ruling,
    Situation,
    explain,
    lasts,
    room_in_words,
    ruling_in_words,
)
from regionquota.core.policy import QuotaPolicy
from regionquota.core.rebalancing import Policy, RegionState, plan
from regionquota.core.region_rules import RegionRules

POLICY, ROUND_S = Policy(), 10.0
REGIONS = {name: RegionState() for name in ("eu", "us", "ap")}
KNOWN = allocation(300, eu=100, us=50, ap=50)


def why(needs: dict[str, Need], **states: RegionState) -> Explanation:
    return explain(KNOWN, needs, REGIONS | states, POLICY, ROUND_S)


def situations(found: Explanation) -> dict[str, Situation]:
    return {one.region: one.situation for one in found.regions}


def test_the_next_plan_is_the_planners() -> None:
    needs = {"eu": Need(100, denied=3.0, seconds=5.0), "us": Need(10), "ap": Need(10)}
    assert plan(KNOWN, needs, REGIONS, POLICY, ROUND_S) == why(needs).next


def test_what_a_region_wants_is_what_it_wants_to_the_end_of_the_period_where_weights_differ() -> None:
    needs = {name: Need(30, growth=1.0) for name in REGIONS}
    regions = REGIONS | {"eu": RegionState(weight=300)}
    found = explain(KNOWN, needs, regions, POLICY, ROUND_S, period_s=50.0)
    assert {80} == {one.wants for one in found.regions}
    assert plan(KNOWN, needs, regions, POLICY, ROUND_S, 50.0) == found.next


def test_everybody_has_a_reason() -> None:
    found = why({"eu": Need(10), "us": Need(10)}, us=RegionState(frozen=True))
    assert {"eu": Situation.CONTENT, "us": Situation.FROZEN, "ap": Situation.SILENT} == situations(found)


def test_a_draining_region() -> None:
    assert Situation.DRAINING is situations(why({"eu": Need(10)}, eu=RegionState(draining=True)))["eu"]


def test_a_region_that_drains_does_so_whatever_it_has_reported() -> None:
    """It tells of nothing but what it has to give."""
    assert Situation.DRAINING is situations(why({}, eu=RegionState(draining=True)))["eu"]


def test_a_region_that_owns_nothing_and_says_nothing_keeps_nothing() -> None:
    found = explain(allocation(300, eu=100), {"eu": Need(10)}, REGIONS, POLICY, ROUND_S)
    assert Situation.UNUSED is situations(found)["us"]


def test_it_says_whether_there_is_room_for_what_was_asked_for_at_once() -> None:
    def eu(largest: int) -> Explained:
        return next(one for one in why({"eu": Need(10, largest=largest)}).regions if one.region == "eu")

    assert (80, 14, 76) == (eu(80).largest, eu(80).wants, eu(80).room)
    assert ["has room for one more request of 80, as was lately asked for at once"] == room_in_words(eu(80))
    assert eu(250).size < 260
    assert room_in_words(eu(250))[0].startswith("has no room for one more request of 250: the 246 beyond what it wants")
    assert [] == room_in_words(eu(4))


def test_a_region_that_nobody_knows_keeps_its_slice() -> None:
    known = allocation(300, gone=100)
    assert {"gone": Situation.UNKNOWN} == situations(explain(known, {}, {}, POLICY, ROUND_S))


def test_of_an_unlimited_quota_nothing_runs_out() -> None:
    known = unlimited(allocation(300, policy=QuotaPolicy(regions={"eu": RegionRules(floor=200)}), eu=100))
    found = explain(known, {"eu": Need(700, growth=3.0, seconds=5.0)}, REGIONS, POLICY, ROUND_S)
    assert {Situation.UNLIMITED} == set(situations(found).values())
    assert {None} == {lasts(one) for one in found.regions}
    assert [] == [said for one in found.regions for said in ruling_in_words(one)]


def test_scarcity_and_collection() -> None:
    scarce = {name: Need(90, growth=20.0, seconds=10.0) for name in REGIONS}
    assert {Situation.SCARCE} == set(situations(why(scarce)).values())
    over = {name: Need(150) for name in REGIONS}
    assert {Situation.COLLECTING} == set(situations(why(over)).values())


def test_a_limit_that_is_just_used_up_is_not_exceeded() -> None:
    all_of_it = {"eu": Need(150), "us": Need(100), "ap": Need(50)}
    assert {Situation.USED_UP} == set(situations(why(all_of_it)).values())


def test_how_long_it_lasts() -> None:
    eu, us, ap = sorted(
        why({"eu": Need(90, growth=2.0), "us": Need(60, growth=2.0)}).regions, key=lambda one: one.region != "eu"
    )
    assert 5.0 == lasts(eu)
    assert {None, 0.0} == {lasts(us), lasts(ap)}


def test_what_is_expected_and_what_the_pool_is_to_hold() -> None:
    found = why({"eu": Need(10, expected=0.01, deviation=9.0), "us": Need(10, deviation=12.0)})
    assert {"eu": 0.01, "us": 0.0, "ap": None} == {one.region: one.expected for one in found.regions}
    assert (13, 15.0) == (found.pool, found.scatters)
    assert (30, 0.0) == ((unlearnt := why({"eu": Need(10)})).pool, unlearnt.scatters)


def test_of_a_period_only_the_rest_counts() -> None:
    needs = {"eu": Need(10, expected=1.0, seconds=10.0), "us": Need(10)}
    whole, rest = (explain(KNOWN, needs, REGIONS, POLICY, ROUND_S, left) for left in (None, 60.0))
    assert [plan(KNOWN, needs, REGIONS, POLICY, ROUND_S, left) for left in (None, 60.0)] == [whole.next, rest.next]
    assert {one.region: one.size for one in whole.regions} != {one.region: one.size for one in rest.regions}


# -- rules of the quota for single regions --


def ruled(
    limit: int, needs: dict[str, Need], states: dict[str, RegionState], **rules: RegionRules
) -> dict[str, Explained]:
    known = allocation(limit, policy=QuotaPolicy(regions=rules))
    return {one.region: one for one in explain(known, needs, REGIONS | states, POLICY, ROUND_S).regions}


def test_a_rule_that_decides_the_size_is_named_with_what_it_would_be_without() -> None:
    needs = {"eu": Need(), "us": Need(), "ap": Need()}
    found = ruled(1000, needs, {}, eu=RegionRules(weight=200), us=RegionRules(cap=100), ap=RegionRules(floor=400))
    assert {"eu": 400, "us": 100, "ap": 400} == {name: one.size for name, one in found.items()}
    assert ["its cap 100 decides: without it 166"] == ruling_in_words(found["us"])
    assert ["its floor 400 decides: without it 266"] == ruling_in_words(found["ap"])
    assert [] == ruling_in_words(found["eu"])  # all that is left, whatever its weight
    found = ruled(1000, needs, {}, eu=RegionRules(weight=200))
    assert ((Ruling(Rule.WEIGHT, 200, 300),), 200) == (found["eu"].rulings, found["eu"].weight)


def test_a_floor_that_costs_an_idle_region_what_nobody_asked_for_is_told_as_that() -> None:
    (said,) = ruling_in_words(ruled(1000, {"eu": Need(5), "us": Need()}, {}, us=RegionRules(floor=60))["us"])
    assert said.startswith("it has a floor of 60 and uses nothing: so it is given no more than its share by weight")


def test_a_rule_that_makes_no_difference_is_not_named() -> None:
    needs = {"eu": Need(), "us": Need(), "ap": Need()}
    found = ruled(1000, needs, {}, eu=RegionRules(weight=100, floor=1, cap=900))
    assert [] == ruling_in_words(found["eu"])


def test_a_floor_of_a_region_that_has_said_nothing_is_what_it_gets() -> None:
    eu = ruled(100, {"us": Need(10)}, {}, eu=RegionRules(floor=30))["eu"]
    assert (Situation.SILENT_WITH_FLOOR, 30, (Ruling(Rule.FLOOR, 30, 0),)) == (eu.situation, eu.size, eu.rulings)


def test_a_floor_that_does_not_fit_is_said_to_be_so() -> None:
    needs = {"eu": Need(), "us": Need(90)}
    floor = RegionRules(floor=30)
    found = ruled(100, needs, {}, eu=floor)
    assert {Situation.FLOORS} == {one.situation for one in found.values() if one.size is not None}
    (said,) = ruling_in_words(found["eu"])
    assert said == (
        "its floor 30 is not met: there is room for 10 beside what the others use, or have as a floor; "
        "without it the next size is 0"
    )
    assert [] == ruling_in_words(ruled(100, needs, {"eu": RegionState(draining=True)}, eu=floor)["eu"])


def test_a_floor_above_the_limit_is_told_in_sentences_that_agree() -> None:
    """It decides, and is not met; and nobody's wants are what there is too little of."""
    found = ruled(30, {name: Need() for name in REGIONS}, {}, eu=RegionRules(floor=50))
    assert {Situation.FLOORS} == {one.situation for one in found.values()}
    assert {"eu": (0, 30), "us": (0, 0), "ap": (0, 0)} == {name: (one.wants, one.size) for name, one in found.items()}
    (said,) = ruling_in_words(found["eu"])
    assert said == (
        "its floor 50 is not met: only 30 of it count, as the floors of all regions are above the limit; "
        "without it the next size is 9"
    )


def test_a_floor_above_the_limit_beside_what_is_in_use_names_both_reasons() -> None:
    found = ruled(30, {"eu": Need(5), "us": Need(12), "ap": Need(3)}, {}, eu=RegionRules(floor=50))
    (said,) = ruling_in_words(found["eu"])
    assert said.startswith("its floor 50 is not met: only 30 of it count, as ")
    assert ", and there is room for 15 beside what the others use" in said


def test_of_floors_above_the_limit_each_counts_in_part() -> None:
    rules = {"eu": RegionRules(floor=50), "us": RegionRules(floor=10)}
    found = ruled(30, {name: Need() for name in REGIONS}, {}, **rules)
    assert {"eu": 25, "us": 5, "ap": 0} == {name: one.floor_in_force for name, one in found.items()}
    drained = ruled(30, {name: Need() for name in REGIONS}, {"eu": RegionState(draining=True)}, **rules)
    assert {"eu": 0, "us": 10, "ap": 0} == {name: one.floor_in_force for name, one in drained.items()}


def test_a_region_that_has_said_nothing_does_not_keep_what_it_has_if_it_lacks_a_floor() -> None:
    eu = ruled(30, {"us": Need(5)}, {}, eu=RegionRules(floor=50))["eu"]
    assert (Situation.SILENT_WITH_FLOOR, 25) == (eu.situation, eu.size)


def test_who_lacks_what_others_have_as_a_floor_is_not_told_that_weights_decide() -> None:
    found = ruled(30, {"eu": Need(), "us": Need(10, denied=1.0, seconds=5.0)}, {}, eu=RegionRules(floor=20))
    assert (Situation.FLOORS, 10) == (found["us"].situation, found["us"].size)
