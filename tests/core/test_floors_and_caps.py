"""What the planner makes of a quota's rules for single regions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import allocation
from tests.core.test_rebalancing import POLICY, REGIONS, ROUND_S, allocations, carried_out, everybody, needs, states

from regionquota.core.allocation import Allocation, Retired
from regionquota.core.demand import Need
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Policy, RegionState, plan
from regionquota.core.region_rules import RegionRules

IDLE = dict.fromkeys(REGIONS, Need())
GREEDY = Need(denied=1000.0)
EXACT = Policy(pool_share=0, smallest_move_share=0, idle_move_share=0, variance=0)


def ruled(limit: int, slices: dict[Region, int] | None = None, **rules: RegionRules) -> Allocation:
    return allocation(limit, policy=QuotaPolicy(regions=rules), **(slices or {}))


def sizes_after(
    known: Allocation,
    wants: dict[Region, Need],
    regions: dict[Region, RegionState] | None = None,
    policy: Policy = POLICY,
) -> dict[Region, int]:
    return dict(carried_out(known, plan(known, wants, regions or everybody, policy, ROUND_S), wants).slices)


# -- whatever the numbers --


@given(
    allocations(), st.dictionaries(st.sampled_from(REGIONS), needs), st.dictionaries(st.sampled_from(REGIONS), states)
)
def test_caps_hold_but_for_what_is_in_use(
    known: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState]
) -> None:
    after = carried_out(known, plan(known, wants, regions, POLICY, ROUND_S), wants)
    for region, rule in known.policy.regions.items():
        if rule.cap is not None and region in wants and region in regions and not regions[region].frozen:
            if regions[region].draining:
                assert after.slice_of(region) <= max(known.slice_of(region), wants[region].in_use)
            else:
                assert after.slice_of(region) <= max(rule.cap, wants[region].in_use)


@given(allocations(), st.dictionaries(st.sampled_from(REGIONS), needs))
def test_floors_hold_where_they_fit_beside_what_is_in_use(known: Allocation, wants: dict[Region, Need]) -> None:
    """Of regions that have said nothing all that they own may be in use."""
    rules = known.policy.regions
    in_use = {name: wants[name].in_use if name in wants else known.slice_of(name) for name in REGIONS}
    least = {name: max(in_use[name], rules[name].floor if name in rules else 0) for name in REGIONS}
    after = carried_out(known, plan(known, wants, everybody, POLICY, ROUND_S), wants)
    if sum(least.values()) <= known.limit:
        assert all(after.slice_of(name) >= rule.floor for name, rule in rules.items())


@given(
    st.integers(1, 1000), st.dictionaries(st.sampled_from(REGIONS), st.integers(1, 1000), min_size=1), st.integers(0, 3)
)
def test_floors_that_do_not_fit_are_scaled_down_alike(limit: int, floors: dict[Region, int], scale: int) -> None:
    known = ruled(limit, **{region: RegionRules(floor=floor * 10**scale) for region, floor in floors.items()})
    total = sum(rule.floor for rule in known.policy.regions.values())
    if total > limit:
        expected = {name: limit * rule.floor // total for name, rule in known.policy.regions.items()}
        after = sizes_after(known, IDLE)
        assert all(size <= after.get(name, 0) for name, size in expected.items())
        assert limit - sum(expected.values()) >= sum(after.values()) - sum(expected.values())


# -- weights --


def test_the_quotas_own_weight_goes_before_the_regions() -> None:
    regions = {"eu": RegionState(weight=100), "us": RegionState(weight=100)}
    known = ruled(1000, eu=RegionRules(weight=300))
    assert {"eu": 675, "us": 225} == sizes_after(known, {"eu": Need(), "us": Need()}, regions)


def test_a_weight_of_nought_with_a_floor_owns_just_the_floor() -> None:
    known = ruled(1000, eu=RegionRules(weight=0, floor=50))
    assert {"eu": 50, "us": 850} == sizes_after(known, {"eu": Need(), "us": Need()})


# -- floors --


THREE = dict.fromkeys(("eu", "us", "ap"), RegionState())


def test_a_floor_is_no_demand_beside_which_the_rest_is_spread() -> None:
    known = ruled(1000, ap=RegionRules(floor=400), us=RegionRules(floor=100))
    wants = {"eu": Need(), "us": Need(), "ap": Need()}
    assert {"eu": 300, "us": 300, "ap": 400} == sizes_after(known, wants, THREE, EXACT)


def test_who_owns_a_floor_and_uses_nothing_gets_no_more_than_its_share_among_all() -> None:
    """Else a floor in a region that never uses the quota would draw all of the pool there, as no other has reported."""
    known = ruled(900, {"us": 400}, us=RegionRules(floor=400))
    assert {"us": 400} == sizes_after(known, {"us": Need()}, THREE)
    assert {"us": 400, "eu": 410} == sizes_after(known, {"us": Need(), "eu": Need(5)}, THREE)
    assert 400 < sizes_after(known, {"us": Need(5)}, THREE)["us"]
    known = ruled(900, {"us": 100}, us=RegionRules(floor=100))
    assert {"us": 300} == sizes_after(known, {"us": Need()}, THREE)


def test_a_floor_goes_before_what_others_want_and_after_what_they_use() -> None:
    known = ruled(100, {"us": 100}, eu=RegionRules(floor=40))
    assert {"eu": 40, "us": 60} == sizes_after(known, {"eu": Need(), "us": Need(10, denied=100.0)})
    assert {"eu": 10, "us": 90} == sizes_after(known, {"eu": Need(), "us": Need(90, denied=100.0)})


def test_what_a_floor_lacks_is_moved_however_little_it_is() -> None:
    known = ruled(1000, {"eu": 49, "us": 951}, eu=RegionRules(floor=50))
    assert 50 == sizes_after(known, {"eu": Need(), "us": Need(940)})["eu"]


def test_the_pool_serves_floors_before_what_others_want() -> None:
    known = ruled(1000, {"us": 400, "ap": 570}, eu=RegionRules(floor=30))
    planned = plan(known, {"eu": Need(), "us": Need(400, denied=100.0), "ap": Need()}, everybody, POLICY, ROUND_S)
    assert {"eu": 30} == planned.grants


def test_a_region_that_never_used_the_quota_gets_its_floor() -> None:
    known = ruled(100, {"us": 80}, eu=RegionRules(floor=30))
    assert {"eu": 30, "us": 70} == sizes_after(known, {"us": Need(10, denied=50.0)})


def test_what_a_region_owns_that_has_said_nothing_may_be_in_use() -> None:
    known = ruled(100, {"eu": 80, "us": 10}, us=RegionRules(floor=50))
    assert {"eu": 80, "us": 20} == sizes_after(known, {"us": Need()})


def test_of_a_lowered_limit_floors_get_the_same_part_each() -> None:
    known = ruled(
        60, {"eu": 60, "us": 40}, eu=RegionRules(floor=60), us=RegionRules(floor=40), ap=RegionRules(floor=20)
    )
    assert {"eu": 30, "us": 20, "ap": 10} == sizes_after(known, {"eu": Need(), "us": Need(), "ap": Need()})
    assert {"eu": 50, "us": 6, "ap": 3} == sizes_after(
        known, {"eu": Need(50), "us": Need(), "ap": Need()}, policy=EXACT
    )


def test_what_is_in_use_above_a_lowered_limit_leaves_no_floor() -> None:
    known = ruled(50, {"eu": 60, "us": 40}, us=RegionRules(floor=40))
    assert {"eu": 60, "us": 0} == sizes_after(known, {"eu": Need(60), "us": Need()})


@pytest.mark.parametrize("state", [RegionState(draining=True), RegionState(frozen=True)])
def test_a_region_that_drains_or_is_frozen_gets_no_floor(state: RegionState) -> None:
    known = ruled(100, {"us": 90}, eu=RegionRules(floor=50))
    for eu in ({}, {"eu": Need()}):
        after = sizes_after(known, {"us": Need(50, denied=100.0), **eu}, {**everybody, "eu": state})
        assert {"us": 100} == {name: size for name, size in after.items() if size}


def test_a_draining_region_gives_up_its_floor() -> None:
    known = ruled(100, {"eu": 60, "us": 40}, eu=RegionRules(floor=50))
    after = sizes_after(known, {"eu": Need(7), "us": Need()}, {**everybody, "eu": RegionState(draining=True)})
    assert 7 == after["eu"]


def test_an_evicted_region_and_one_that_is_gone_get_no_floor() -> None:
    known = allocation(100, policy=QuotaPolicy(regions={"gone": RegionRules(floor=50)}), retired=20, us=80)
    for regions in (everybody, everybody | {"gone": RegionState(frozen=True)}):
        assert {"us": 80} == sizes_after(known, {"us": Need(80, denied=10.0)}, regions)
    assert known.retired == {"gone": Retired(20)}


# -- caps --


def test_a_cap_bounds_what_is_wanted_and_what_is_spread() -> None:
    known = ruled(1000, eu=RegionRules(cap=100))
    assert {"eu": 100, "us": 800} == sizes_after(known, {"eu": Need(), "us": Need()})
    assert {"eu": 100, "us": 800} == sizes_after(known, {"eu": GREEDY, "us": Need()})


def test_what_is_owned_above_a_cap_and_not_used_is_asked_back_however_little_it_is() -> None:
    known = ruled(1000, {"eu": 101, "us": 800}, eu=RegionRules(cap=100))
    assert {"eu": 100, "us": 800} == sizes_after(known, {"eu": Need(), "us": Need()})
    known = ruled(1000, {"eu": 900, "us": 100}, eu=RegionRules(cap=100))
    assert 500 == sizes_after(known, {"eu": Need(500), "us": Need()})["eu"]
    assert 500 == sizes_after(known, {"eu": Need(500, denied=10.0), "us": GREEDY})["eu"]


def test_what_no_region_has_room_for_stays_in_the_pool() -> None:
    known = ruled(1000, eu=RegionRules(cap=100), us=RegionRules(cap=200))
    assert {"eu": 100, "us": 200} == sizes_after(known, {"eu": GREEDY, "us": GREEDY})


def test_a_cap_of_nought_closes_a_region_as_it_gives_back() -> None:
    known = ruled(100, {"eu": 50, "us": 50}, eu=RegionRules(cap=0))
    assert 20 == sizes_after(known, {"eu": Need(20, denied=5.0), "us": Need()})["eu"]
    assert 0 == sizes_after(known, {"eu": Need(0, denied=5.0), "us": Need()})["eu"]


def test_what_one_has_no_room_for_is_spread_over_the_others_by_weight() -> None:
    known = ruled(700, eu=RegionRules(cap=100), us=RegionRules(weight=200))
    assert {"eu": 100, "us": 400, "ap": 200} == sizes_after(
        known, {"eu": Need(), "us": Need(), "ap": Need()}, policy=EXACT
    )


# -- small limits --


def test_a_limit_of_3_over_5_regions_works_with_rules() -> None:
    known = ruled(3, eu=RegionRules(floor=1), us=RegionRules(cap=1), ap=RegionRules(cap=0))
    assert {"eu": 1} == sizes_after(known, IDLE)
    after = sizes_after(known, dict.fromkeys(REGIONS, GREEDY))
    assert after["eu"] >= 1
    assert after.get("us", 0) <= 1
    assert 0 == after.get("ap", 0)


def test_five_floors_of_one_in_a_limit_of_three_stay_in_the_pool_to_be_claimed() -> None:
    known = ruled(3, **dict.fromkeys(REGIONS, RegionRules(floor=1)))
    assert {} == sizes_after(known, IDLE)
