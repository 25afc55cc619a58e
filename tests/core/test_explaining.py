"""Why each region has what it has, by the planner's own functions."""

from tests.core.builders import allocation

from regionquota.core.demand import Need
from regionquota.core.explaining import Explanation, Situation, explain, lasts
from regionquota.core.rebalancing import Policy, RegionState, plan

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


def test_everybody_has_a_reason() -> None:
    found = why({"eu": Need(10), "us": Need(10)}, us=RegionState(frozen=True))
    assert {"eu": Situation.CONTENT, "us": Situation.FROZEN, "ap": Situation.SILENT} == situations(found)


def test_a_draining_region() -> None:
    assert Situation.DRAINING is situations(why({"eu": Need(10)}, eu=RegionState(draining=True)))["eu"]


def test_a_region_that_nobody_knows_keeps_its_slice() -> None:
    known = allocation(300, gone=100)
    assert {"gone": Situation.UNKNOWN} == situations(explain(known, {}, {}, POLICY, ROUND_S))


def test_scarcity_and_collection() -> None:
    scarce = {name: Need(90, growth=20.0, seconds=10.0) for name in REGIONS}
    assert {Situation.SCARCE} == set(situations(why(scarce)).values())
    over = {name: Need(150) for name in REGIONS}
    assert {Situation.COLLECTING} == set(situations(why(over)).values())


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
