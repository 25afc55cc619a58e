"""The planner's promises, whatever the numbers."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core import builders

from regionquota.core.allocation import Allocation, Move, VersionedLimit, grant, hand_over, request_moves
from regionquota.core.demand import Need
from regionquota.core.filling import Wish
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, Kind, Region
from regionquota.core.rebalancing import Plan, Policy, RegionState, plan, pool_target, wish_of, with_pool
from regionquota.core.rebalancing import sizes as planned_sizes
from regionquota.core.region_rules import RegionRules

REGIONS = ("ap", "eu", "sa", "us", "za")
POLICY = Policy()
ROUND_S = 10.0

sizes = st.integers(0, 1000) | st.integers(0, MAX_AMOUNT // 10)
needs = st.builds(
    Need,
    in_use=st.integers(0, 1000),
    growth=st.floats(-100, 100, width=32),
    denied=st.floats(0, 100, width=32),
    seconds=st.floats(0, 3600) | st.just(math.inf),
    denied_high=st.just(0.0),
    denied_low=st.just(0.0),
    expected=st.just(0.0) | st.floats(0, 1e18),
    deviation=st.just(0.0) | st.floats(0, 1e18),
    turnover=st.just(0.0) | st.floats(0, 200, width=32),
    largest=st.just(0) | st.integers(0, 500),
)
states = st.builds(
    RegionState, weight=st.sampled_from([0, 1, 100, 10_000_000]), frozen=st.booleans(), draining=st.booleans()
)
policies = st.builds(
    Policy, pool_share=st.floats(0, 1), smallest_move_share=st.floats(0, 0.2), idle_move_share=st.floats(0, 0.5)
)


def _rules(weight: int | None, floor: int, room: int | None) -> RegionRules:
    return RegionRules(weight, floor, None if room is None else floor + room)


rules = st.dictionaries(
    st.sampled_from(REGIONS),
    st.builds(
        _rules,
        st.sampled_from([None, 0, 1, 100, 10_000_000]),
        st.just(0) | st.integers(0, 100) | sizes,
        st.none() | st.just(0) | st.integers(0, 100) | sizes,
    ),
)


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    """Any split of any limit, also one that was lowered below what regions own, or below their floors."""
    slices = draw(st.dictionaries(st.sampled_from(REGIONS), sizes))
    pool = draw(st.integers(-1000, 1000) | sizes)
    limit = max(0, pool + sum(slices.values()))
    return Allocation(
        Kind.ALLOCATED,
        VersionedLimit(limit, 1),
        None,
        limit,
        limit - sum(slices.values()),
        slices=slices,
        policy=QuotaPolicy(regions=draw(st.just({}) | rules)),
    )


def carried_out(allocation: Allocation, planned: Plan, needs_: Mapping[Region, Need]) -> Allocation:
    """Every grant, and every move as far as the donor's use allows."""
    after = grant(allocation, planned.grants) if planned.grants else allocation
    moves = [Move(str(at), move.source, move.target, move.amount) for at, move in enumerate(planned.moves)]
    after = request_moves(after, moves)
    for donor in {move.source for move in moves}:
        given_up = sum(move.amount for move in moves if move.source == donor)
        after = hand_over(after, donor, after.slice_of(donor) - given_up, 0)
    return after


def split(limit: int, **slices: int) -> Allocation:
    pool = limit - sum(slices.values())
    return Allocation(Kind.ALLOCATED, VersionedLimit(limit, 1), None, limit, pool, slices=slices)


everybody = dict.fromkeys(REGIONS, RegionState())


@given(
    allocations(),
    st.dictionaries(st.sampled_from(REGIONS), needs),
    st.dictionaries(st.sampled_from(REGIONS), states),
    policies,
)
def test_a_plan_can_be_carried_out_and_never_asks_for_what_is_in_use(
    allocation: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState], policy: Policy
) -> None:
    planned = plan(allocation, wants, regions, policy, ROUND_S)

    after = carried_out(allocation, planned, wants)  # raises if it gives more than there is: invariant A
    for move in planned.moves:
        left = allocation.slice_of(move.source) - sum(m.amount for m in planned.moves if m.source == move.source)
        assert left >= min(wants[move.source].in_use, allocation.slice_of(move.source))
    assert after.limit == allocation.limit


@given(
    allocations(),
    st.dictionaries(st.sampled_from(REGIONS), needs),
    st.dictionaries(st.sampled_from(REGIONS), states),
    policies,
)
def test_a_plan_carried_out_in_full_leaves_nothing_to_plan(
    allocation: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState], policy: Policy
) -> None:
    after = carried_out(allocation, plan(allocation, wants, regions, policy, ROUND_S), wants)

    again = plan(after, wants, regions, policy, ROUND_S)

    assert ({}, ()) == (dict(again.grants), tuple(again.moves))


@given(
    allocations(), st.dictionaries(st.sampled_from(REGIONS), needs), st.dictionaries(st.sampled_from(REGIONS), states)
)
def test_frozen_unknown_and_silent_regions_are_left_alone(
    allocation: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState]
) -> None:
    planned = plan(allocation, wants, regions, POLICY, ROUND_S)
    silent = {
        region: max(0, rules.floor - allocation.slice_of(region))
        for region, rules in allocation.policy.regions.items()
        if region in regions and region not in wants and not regions[region].frozen and not regions[region].draining
    }
    for region, lacking in silent.items():
        given_ = planned.grants.get(region, 0) + sum(m.amount for m in planned.moves if m.target == region)
        assert given_ <= lacking

    named = set(planned.grants) | {move.source for move in planned.moves} | {move.target for move in planned.moves}
    heard = {region for region in wants if region in regions and not regions[region].frozen}
    assert named <= heard | silent.keys() | {None}
    assert {move.source for move in planned.moves} <= heard


@given(
    st.integers(1, 10_000),
    st.lists(st.integers(0, 500), min_size=3, max_size=3),
    st.sampled_from([0, 1, 2]),
    st.integers(1, 500),
    rules,
    st.booleans(),
)
def test_more_demand_never_means_less(
    limit: int, in_use: list[int], who: int, more: int, rules: dict[Region, RegionRules], used: bool
) -> None:
    regions = REGIONS[:3]
    policy = Policy(smallest_move_share=0)
    empty = builders.allocation(limit, policy=QuotaPolicy(regions=rules))
    used = used and sum(in_use) + more < limit  # who uses more than there is gets nothing more

    def size(extra: int) -> int:
        wants = {region: Need(in_use=units, growth=10.0) for region, units in zip(regions, in_use, strict=True)}
        more_used, more_asked = (extra, 0) if used else (0, extra)
        wants[regions[who]] = Need(in_use=in_use[who] + more_used, growth=10.0 + more_asked)
        return carried_out(empty, plan(empty, wants, everybody, policy, ROUND_S), wants).slice_of(regions[who])

    assert size(more) >= size(0)


@given(
    st.integers(1, 10_000),
    st.lists(st.floats(0, 10), min_size=3, max_size=3),
    st.sampled_from([0, 1, 2]),
    st.floats(0, 10),
)
def test_more_that_is_expected_never_means_less(limit: int, expected: list[float], who: int, more: float) -> None:
    regions = REGIONS[:3]

    def size(extra: float) -> int:
        foreseen = [rate + extra * (who == at) for at, rate in enumerate(expected)]
        wants = {region: Need(growth=0.1, expected=rate) for region, rate in zip(regions, foreseen, strict=True)}
        return plan(
            split(limit), wants, everybody, Policy(smallest_move_share=0, idle_move_share=0), ROUND_S
        ).grants.get(regions[who], 0)

    assert size(more) >= size(0)


@given(allocations(), st.dictionaries(st.sampled_from(REGIONS), needs), policies)
def test_what_is_expected_takes_from_nobody_what_is_wanted_now(
    allocation: Allocation, wants: dict[Region, Need], policy: Policy
) -> None:
    wishes = {region: wish_of(need, RegionState(), allocation.limit, policy, ROUND_S) for region, need in wants.items()}
    found, unlearnt = (
        planned_sizes(allocation, some, policy)
        for some in (wishes, {region: replace(wish, learnt=0, deviation=0.0) for region, wish in wishes.items()})
    )
    assert all(found[region] >= min(wish.want, unlearnt[region]) for region, wish in wishes.items())


def test_where_more_is_expected_more_of_the_rest_lies() -> None:
    wants = {"eu": Need(100, expected=0.05), "us": Need(100, expected=0.01)}
    policy = Policy(variance=0, idle_move_share=0)
    after = carried_out(split(1000), plan(split(1000), wants, everybody, policy, ROUND_S), wants)
    assert {"eu": 100 + 360 + 134, "us": 100 + 72 + 134} == after.slices


def test_of_a_period_that_ends_sooner_only_the_rest_is_expected() -> None:
    wants = {"eu": Need(100, expected=0.1), "us": Need(100, expected=0.02)}
    policy = Policy(variance=0, idle_move_share=0)
    after = carried_out(split(1000), plan(split(1000), wants, everybody, policy, ROUND_S, 600.0), wants)
    assert {"eu": 100 + 60 + 314, "us": 100 + 12 + 314} == after.slices


def test_a_region_without_a_past_is_left_a_part() -> None:
    wants = {"eu": Need(expected=10.0), "us": Need()}
    assert {"eu": 855, "us": 45} == plan(split(1000), wants, everybody, POLICY, ROUND_S).grants


def test_the_pools_share_goes_with_how_much_demand_scatters() -> None:
    def share(*deviations: float, policy: Policy = POLICY) -> int:
        return pool_target(1000, [Wish(0, 0, 100, urgent=False, deviation=one) for one in deviations], policy)

    assert 100 == share(0.0, 0.0)
    assert [20, 44, 62, 100] == [share(one) for one in (1.0, 50.0, 70.0, 300.0)]
    assert share(50.0) == share(30.0, 40.0)
    assert 300 == share(70.0, policy=with_pool(POLICY, 0.3, 0.02, 0.2))
    assert 50 == share(0.0, policy=with_pool(POLICY, None, 0.01, 0.05))


@given(st.integers(1, 10**12), st.floats(1e-6, 1e12), st.floats(0, 1), st.floats(0, 1))
def test_the_pools_share_stays_between_its_bounds(limit: int, deviation: float, one: float, other: float) -> None:
    smallest, largest = sorted((one, other))
    policy = with_pool(POLICY, None, smallest, largest)
    target = pool_target(limit, [Wish(0, 0, 100, urgent=False, deviation=deviation)], policy)
    assert int(limit * smallest) <= target <= int(limit * largest)


@given(st.floats(20, 100))
def test_what_scatters_a_little_more_hardly_ever_changes_the_pools_share(deviation: float) -> None:
    """There are less than ten steps: of a hundred values in a row, each 3 % above the one before it, most are alike."""
    found = [
        pool_target(1000, [Wish(0, 0, 100, urgent=False, deviation=deviation * 1.03**step)], POLICY)
        for step in range(-50, 50)
    ]
    assert len(set(found)) < 10


def test_what_nobody_needs_is_spread_by_weight_beside_the_pools_share() -> None:
    regions = {"eu": RegionState(weight=300), "us": RegionState(weight=100)}
    planned = plan(split(1000), {"eu": Need(), "us": Need()}, regions, POLICY, ROUND_S)
    assert {"eu": 675, "us": 225} == planned.grants


def test_scarcity_is_shared_by_weight_between_what_is_in_use_and_what_is_wanted() -> None:
    wants = {"eu": Need(in_use=40, denied=100), "us": Need(in_use=40, denied=100)}
    after = carried_out(split(100), plan(split(100), wants, everybody, POLICY, ROUND_S), wants)
    assert {"eu": 50, "us": 50} == after.slices


def test_under_scarcity_the_whole_is_shared_and_not_what_is_left() -> None:
    """Who has used less is served first, by weight and up to what it wants."""
    wants = {"eu": Need(in_use=10, denied=100), "us": Need(in_use=40, denied=100), "ap": Need(in_use=5)}
    regions = everybody | {"eu": RegionState(weight=200)}
    after = carried_out(split(100), plan(split(100), wants, regions, Policy(variance=0), ROUND_S), wants)
    assert {"eu": 55, "us": 40, "ap": 5} == after.slices


def test_who_weighs_nothing_gets_what_is_left_once_the_others_have_what_they_want() -> None:
    """So that wanting more never means less: a moment before, everybody had got what they wanted."""
    regions = everybody | {"us": RegionState(weight=0)}
    wants = {"eu": Need(growth=10.0), "us": Need(growth=11.0)}
    assert {"eu": 150, "us": 150} == carried_out(
        split(300), plan(split(300), wants, regions, POLICY, ROUND_S), wants
    ).slices


def test_who_weighs_more_is_left_what_it_will_need_of_the_period() -> None:
    allocation = split(300, eu=150, us=75, ap=75)
    wants = {"eu": Need(30, growth=3.0), "us": Need(70, growth=3.0), "ap": Need(70, growth=3.0)}
    heavy = everybody | {"eu": RegionState(weight=300)}
    soon, later = (plan(allocation, wants, heavy, POLICY, ROUND_S, left) for left in (None, 50.0))
    assert {"eu"} == {move.source for move in soon.moves}
    assert {"eu": 160, "us": 70, "ap": 70} == carried_out(allocation, later, wants).slices


def test_a_region_that_denies_is_served_from_one_that_idles() -> None:
    allocation = split(100, eu=10, us=90)
    planned = plan(allocation, {"eu": Need(in_use=10, denied=5), "us": Need()}, everybody, POLICY, ROUND_S)
    assert ("us", "eu") in {(move.source, move.target) for move in planned.moves}


def test_a_lowered_limit_is_collected_from_what_is_free_and_nothing_is_granted_meanwhile() -> None:
    allocation = split(20, eu=60, us=40)
    planned = plan(allocation, {"eu": Need(in_use=50), "us": Need(in_use=10)}, everybody, POLICY, ROUND_S)
    assert ({}, {("us", None): 30, ("eu", None): 10}) == (
        planned.grants,
        {(move.source, move.target): move.amount for move in planned.moves},
    )


def test_a_donor_that_has_less_than_was_thought_fills_up_a_lowered_limit_first() -> None:
    allocation = split(800, eu=600, us=400)
    wants = {"eu": Need(in_use=100), "us": Need(in_use=390, growth=5.0, denied=4.0, seconds=5.0)}
    planned = plan(allocation, wants, everybody, POLICY, ROUND_S)
    assert {"us", None} == {move.target for move in planned.moves}
    moves = [Move(str(at), move.source, move.target, move.amount) for at, move in enumerate(planned.moves)]
    assert -50 == hand_over(request_moves(allocation, moves), "eu", 450, 0).pool


def test_a_draining_region_keeps_only_what_it_uses() -> None:
    regions = everybody | {"us": RegionState(draining=True)}
    allocation = split(100, eu=50, us=50)
    wants = {"eu": Need(in_use=20), "us": Need(in_use=7)}
    assert 7 == carried_out(allocation, plan(allocation, wants, regions, POLICY, ROUND_S), wants).slice_of("us")


def test_who_is_hardly_asked_is_not_given_the_last_of_who_is_asked_all_the_time() -> None:
    """However much both have used by then: late in a long period that says nothing of the next seconds."""
    needs = {
        "eu": Need(in_use=400, growth=0.4, turnover=0.4, seconds=5.0),
        "us": Need(in_use=580, growth=0.2, turnover=0.2, seconds=5.0),
    }
    planned = plan(split(1000, eu=410, us=590), needs, everybody, POLICY, ROUND_S)
    assert ({}, ()) == (dict(planned.grants), tuple(planned.moves))


def test_a_region_that_was_helped_keeps_room_for_the_caller_that_was_denied() -> None:
    """Until it comes back as it was told: idle headroom is spread by weight beside that."""
    needs = {"eu": Need(in_use=5), "us": Need(largest=300)}
    regions = {"eu": RegionState(), "us": RegionState()}
    allocation = split(500, eu=7, us=493)
    planned = plan(allocation, needs, regions, POLICY, ROUND_S)
    given = sum(move.amount for move in planned.moves if move.source == "us")
    assert 300 <= 493 - given < 493


def test_what_comes_and_goes_without_growth_is_left_a_margin() -> None:
    calm, lively = Need(in_use=100, seconds=5.0), Need(in_use=100, turnover=10.0, seconds=5.0)
    regions = {name: RegionState(weight=0) for name in REGIONS}
    planned = plan(split(1000), {"eu": calm, "us": lively}, regions, POLICY, ROUND_S)
    assert {"eu": 104, "us": 118} == planned.grants


def test_a_step_of_demand_is_not_taken_for_a_slope() -> None:
    """200 units within half a second are a step: in the next ten seconds nobody expects 4,000."""
    allocation = split(1000, eu=450, us=450)
    wants = {"eu": Need(in_use=300), "us": Need(in_use=200, growth=400.0, seconds=0.5)}
    after = carried_out(allocation, plan(allocation, wants, everybody, POLICY, ROUND_S), wants)
    assert after.slice_of("eu") >= 300 + 2 * 300**0.5


def test_nothing_below_the_smallest_useful_size_is_moved() -> None:
    allocation = split(1000, eu=455, us=445)
    planned = plan(allocation, {"eu": Need(), "us": Need()}, everybody, POLICY, ROUND_S)
    assert ({}, ()) == (dict(planned.grants), tuple(planned.moves))


def test_at_rest_weights_are_followed_more_closely_than_while_anybody_asks() -> None:
    allocation = split(1000, eu=500, us=400)
    regions = {"eu": RegionState(weight=160), "us": RegionState(weight=100)}
    resting, asking = (
        plan(allocation, {"eu": Need(), "us": Need(growth=growth)}, regions, POLICY, ROUND_S) for growth in (0, 0.01)
    )
    assert {"eu": 553, "us": 346} == carried_out(allocation, resting, {}).slices
    assert ({}, ()) == (dict(asking.grants), tuple(asking.moves))


def test_a_few_units_at_rest_are_not_followed() -> None:
    allocation = split(50, eu=24, us=21)
    regions = {"eu": RegionState(weight=100), "us": RegionState(weight=110)}
    planned = plan(allocation, {"eu": Need(in_use=1), "us": Need(in_use=1)}, regions, POLICY, ROUND_S)
    assert ({}, ()) == (dict(planned.grants), tuple(planned.moves))


def test_a_limit_of_3_over_5_regions_lives_in_the_pool_until_it_is_needed() -> None:
    idle = dict.fromkeys(REGIONS, Need())
    assert {} == plan(split(3), idle, everybody, POLICY, ROUND_S).grants
    short = idle | {"za": Need(denied=0.1)}
    assert 1 <= plan(split(3), short, everybody, POLICY, ROUND_S).grants["za"]


def test_weights_of_nought_everywhere_leave_what_nobody_needs_in_the_pool() -> None:
    regions = dict.fromkeys(REGIONS, RegionState(weight=0))
    assert {"eu": 8} == plan(
        split(100), {"eu": Need(in_use=5), "us": Need()}, regions, Policy(variance=1.5), ROUND_S
    ).grants
