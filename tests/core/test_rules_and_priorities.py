"""Rules for regions hold whatever is denied at which priority."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.core.test_priority_planning import FILLS, graded
from tests.core.test_rebalancing import POLICY, REGIONS, ROUND_S, allocations, carried_out, everybody, states

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.quota import Region
from regionquota.core.rebalancing import RegionState, plan


@st.composite
def ruled_and_filled(draw: st.DrawFn) -> Allocation:
    known, (normal, low) = draw(allocations()), draw(FILLS)
    return structs.replace(known, policy=replace(known.policy, normal_fill_percent=normal, low_fill_percent=low))


wanted = st.dictionaries(st.sampled_from(REGIONS), graded())


@given(ruled_and_filled(), wanted, st.dictionaries(st.sampled_from(REGIONS), states))
def test_a_plan_can_be_carried_out_keeps_to_caps_and_leaves_nothing_to_plan(
    known: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState]
) -> None:
    after = carried_out(known, plan(known, wants, regions, POLICY, ROUND_S), wants)
    for region, rule in known.policy.regions.items():
        if rule.cap is not None and region in wants and region in regions and regions[region].takes_part:
            assert after.slice_of(region) <= max(rule.cap, wants[region].in_use)
    again = plan(after, wants, regions, POLICY, ROUND_S)
    assert ({}, ()) == (dict(again.grants), tuple(again.moves))


@given(ruled_and_filled(), wanted)
def test_floors_hold_where_they_fit_beside_what_is_in_use(known: Allocation, wants: dict[Region, Need]) -> None:
    rules = known.policy.regions
    in_use = {name: wants[name].in_use if name in wants else known.slice_of(name) for name in REGIONS}
    least = {name: max(in_use[name], rules[name].floor if name in rules else 0) for name in REGIONS}
    after = carried_out(known, plan(known, wants, everybody, POLICY, ROUND_S), wants)
    if sum(least.values()) <= known.limit:
        assert all(after.slice_of(name) >= rule.floor for name, rule in rules.items())
