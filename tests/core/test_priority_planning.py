"""What the planner makes of denials at high and low priority, and that without any it plans what it always did."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced
from tests.core.builders import allocation as owned
from tests.core.test_rebalancing import (
    POLICY,
    REGIONS,
    ROUND_S,
    allocations,
    carried_out,
    everybody,
    needs,
    policies,
    split,
    states,
)

from regionquota.core import rebalancing
from regionquota.core.allocation import Allocation, Move
from regionquota.core.demand import Need
from regionquota.core.filling import Wish, fill
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Region
from regionquota.core.rebalancing import (
    Plan,
    PlannedMove,
    Policy,
    RegionState,
    foreseen,
    plan,
    sizes,
    totals,
    wish_of,
    wishes_of,
)
from regionquota.core.relief import relieve
from regionquota.core.ruling import spread_within, with_floors


@st.composite
def graded(draw: st.DrawFn) -> Need:
    """Some of what is denied was asked for at high, some at low priority."""
    need = draw(needs)
    high, low = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    return replaced(need, denied_high=need.denied * high, denied_low=need.denied * (1 - high) * low)


def aims(limit: int, policy: Policy = POLICY, /, **needed: Need) -> Mapping[Region, int]:
    wishes = {name: wish_of(need, RegionState(), limit, policy, ROUND_S) for name, need in needed.items()}
    return sizes(split(limit), wishes, policy)


FILLS = st.sampled_from([(100, 100), (100, 80), (95, 60), (50, 50), (100, 0), (1, 1), (0, 0)])
quotas = FILLS.map(lambda fills: QuotaPolicy(normal_fill_percent=fills[0], low_fill_percent=fills[1]))


@given(graded(), states, st.integers(0, 10**6), policies, st.none() | st.floats(0, 1e6), quotas)
def test_tiers_rise_from_what_is_in_use_to_what_is_wanted(
    need: Need, state: RegionState, limit: int, policy: Policy, ahead_s: float | None, quota: QuotaPolicy
) -> None:
    wish = wish_of(need, state, limit, policy, ROUND_S, ahead_s, quota)
    assert sorted(wish.tiers) == list(wish.tiers)
    plain = wish_of(replaced(need, denied_high=0.0, denied_low=0.0), state, limit, policy, ROUND_S, ahead_s)
    assert not plain.tiers
    assert (plain.floor, plain.weight) == (wish.floor, wish.weight)
    assert plain.want <= wish.want <= max(limit, wish.floor)
    if wish.tiers:
        assert wish.floor <= wish.tiers[0]
        assert wish.tiers[-1] == wish.want


@given(
    allocations(),
    st.dictionaries(st.sampled_from(REGIONS), graded()),
    st.dictionaries(st.sampled_from(REGIONS), states),
    policies,
    quotas,
)
def test_a_plan_by_priority_can_be_carried_out_leaves_nothing_to_plan_and_takes_nothing_that_is_in_use(
    known: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState], policy: Policy, quota: QuotaPolicy
) -> None:
    known = replaced(
        known,
        policy=replace(
            known.policy,
            normal_fill_percent=quota.normal_fill_percent,
            low_fill_percent=quota.low_fill_percent,
        ),
    )
    planned = plan(known, wants, regions, policy, ROUND_S)
    after = carried_out(known, planned, wants)
    for move in planned.moves:
        left = known.slice_of(move.source) - sum(m.amount for m in planned.moves if m.source == move.source)
        assert left >= min(wants[move.source].in_use, known.slice_of(move.source))
    again = plan(after, wants, regions, policy, ROUND_S)
    assert ({}, ()) == (dict(again.grants), tuple(again.moves))


@given(
    allocations(),
    st.dictionaries(st.sampled_from(REGIONS), graded()),
    st.dictionaries(st.sampled_from(REGIONS), states),
    policies,
    quotas,
)
def test_rules_of_regions_bind_whatever_is_denied_at_which_priority(
    known: Allocation, wants: dict[Region, Need], regions: dict[Region, RegionState], policy: Policy, quota: QuotaPolicy
) -> None:
    fills = {name: getattr(quota, name) for name in ("normal_fill_percent", "low_fill_percent")}
    known = replaced(known, policy=replace(known.policy, **fills))
    wishes = wishes_of(known, wants, regions, policy, ROUND_S, None)
    total = totals(known, wishes)
    capacity, in_use = total.capacity, total.floors
    floors = sum(max(wish.floor, wish.least) for wish in wishes.values())
    found = sizes(known, wishes, policy)
    assert sum(found.values()) <= max(capacity, in_use)
    for region, size in found.items():
        wish = wishes[region]
        assert size <= max(wish.most, wish.least, wish.floor)
        if in_use < capacity >= floors:
            assert size >= max(wish.floor, wish.least)


@given(
    st.integers(0, 5000),
    st.lists(graded(), min_size=len(REGIONS), max_size=len(REGIONS)),
    st.lists(st.sampled_from([0, 1, 100, 10_000_000]), min_size=len(REGIONS), max_size=len(REGIONS)),
    st.integers(0, len(REGIONS) - 1),
    st.floats(0, 200),
    quotas,
)
def test_more_demand_of_high_priority_never_means_less(
    limit: int, asked: list[Need], weights: list[int], who: int, more: float, quota: QuotaPolicy
) -> None:
    """But for what the fillings before and after round down, a unit for each region."""
    policy = Policy(pool_share=0.0)

    def size(needed: list[Need]) -> int:
        wishes = {
            name: wish_of(need, RegionState(weight), limit, policy, ROUND_S, quota=quota)
            for name, need, weight in zip(REGIONS, needed, weights, strict=True)
        }
        return sizes(split(limit), wishes, policy)[REGIONS[who]]

    one = asked[who]
    raised = replaced(one, denied=one.denied + more, denied_high=one.denied_high + more)
    if sum(need.in_use for need in asked) < limit and weights[who]:
        assert size([*asked[:who], raised, *asked[who + 1 :]]) >= size(asked) - len(REGIONS)


def _wish_without_priorities(
    need: Need,
    state: RegionState,
    limit: int,
    policy: Policy,
    round_s: float,
    ahead_s: float | None,
    _quota: QuotaPolicy,
    _foreseen_s: float,
) -> Wish:
    """As it was before there were any."""
    if state.draining:
        return Wish(need.in_use, need.in_use, 0, urgent=False)
    ahead = min(round_s, need.seconds)
    horizon = ahead * policy.growth_rounds
    growth = max(0.0, need.growth) * horizon
    margin = policy.variance * math.sqrt(min(need.in_use, need.turnover * horizon + 3))
    extra = math.ceil(growth + margin + need.denied * ahead)
    wanted = need.in_use + extra if ahead_s is None else max(need.in_use + extra, foreseen(need, ahead_s))
    return Wish(need.in_use, min(wanted, max(limit, need.in_use)), state.weight, need.denied > 0)


def _sizes_without_priorities(known: Allocation, wishes: Mapping[Region, Wish], policy: Policy) -> Mapping[Region, int]:
    rules = known.policy.regions
    raised = {region: wish.raised for region, wish in wishes.items()} if rules else wishes
    total = rebalancing.totals(known, raised)
    if total.capacity <= total.floors:
        return {region: min(known.slice_of(region), wish.floor) for region, wish in wishes.items()}
    if total.capacity <= total.wants:
        return fill(with_floors(raised, total.capacity) if rules else wishes, total.capacity)
    rest = max(0, total.capacity - int(known.limit * policy.pool_share) - total.wants)
    return spread_within(wishes, rest) if rules else rebalancing._spread(wishes, rest, total.weights)


@given(
    allocations(),
    st.dictionaries(
        st.sampled_from(REGIONS), needs.map(lambda need: replaced(need, expected=0.0, deviation=0.0, largest=0))
    ),
    st.dictionaries(st.sampled_from(REGIONS), states),
    policies,
    st.none() | st.floats(0, 1e6),
)
def test_without_priorities_everything_is_planned_as_by_one_filling(
    known: Allocation,
    wants: dict[Region, Need],
    regions: dict[Region, RegionState],
    policy: Policy,
    period_s: float | None,
) -> None:
    planned = plan(known, wants, regions, policy, ROUND_S, period_s)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rebalancing, "wish_of", _wish_without_priorities)
        patched.setattr(rebalancing, "sizes", _sizes_without_priorities)
        assert planned == plan(known, wants, regions, policy, ROUND_S, period_s)


def test_under_scarcity_high_priority_is_served_before_the_rest_and_low_after_it() -> None:
    policy = Policy(pool_share=0.0, variance=0.0)
    denies = Need(20, denied=6.0, seconds=ROUND_S)
    asked = {
        "eu": replaced(denies, denied_high=6.0),
        "us": denies,
        "ap": replaced(denies, denied_low=6.0),
    }
    assert {"eu": 80, "us": 80, "ap": 80} == aims(240, policy, **asked)
    assert {"eu": 80, "us": 80, "ap": 40} == aims(200, policy, **asked)
    assert {"eu": 80, "us": 50, "ap": 20} == aims(150, policy, **asked)
    assert {"eu": 70, "us": 20, "ap": 20} == aims(110, policy, **asked)


def test_within_one_priority_it_is_shared_by_weight() -> None:
    tiers = (100,) * 5
    wishes = {"eu": Wish(0, 100, 100, urgent=True, tiers=tiers), "us": Wish(0, 100, 300, urgent=True, tiers=tiers)}
    assert {"eu": 20, "us": 60} == sizes(split(80), wishes, Policy(pool_share=0.0))


def test_low_priority_takes_nothing_that_another_region_wants_for_a_higher_one() -> None:
    storm = Need(50, denied=1000.0, denied_low=1000.0, seconds=ROUND_S)
    usual = Need(60, denied=2.0, seconds=ROUND_S)
    found = aims(200, Policy(pool_share=0.0, variance=0.0), eu=storm, us=usual)
    assert {"eu": 120, "us": 80} == found


KEPT = QuotaPolicy(low_fill_percent=80)


@pytest.mark.parametrize("denied", [40.0, 0.0])  # as it is told at first, and for some seconds more
def test_who_asked_for_much_at_once_at_low_priority_takes_nothing_that_is_wanted_elsewhere(denied: float) -> None:
    def size(largest: int) -> int:
        needs = {
            "eu": Need(100, denied=denied, denied_low=denied, seconds=10.0, largest=largest),
            "us": Need(100, denied=60.0, seconds=10.0),
        }
        known = owned(1000, policy=QuotaPolicy(low_fill_percent=80))
        return sizes(known, wishes_of(known, needs, everybody, POLICY, ROUND_S, None), POLICY)["us"]

    assert size(0) == size(800) == size(890)


def test_low_priority_draws_nothing_that_another_region_keeps_for_higher_ones() -> None:
    """Whatever it is denied and however it has grown: in all regions together it fills four fifths, too."""
    policy = Policy(pool_share=0.0)
    storm = Need(80_000, growth=900.0, denied=5000.0, denied_low=5000.0, seconds=ROUND_S)
    calm = Need(60_000, seconds=ROUND_S)
    wishes = {
        name: wish_of(need, RegionState(), 200_000, policy, ROUND_S, quota=KEPT)
        for name, need in (("eu", storm), ("us", calm))
    }
    assert {"eu": 125_000, "us": 75_000} == sizes(split(200_000), wishes, policy)
    asked = replaced(calm, denied=1000.0, seconds=ROUND_S)
    wishes["us"] = wish_of(asked, RegionState(), 200_000, policy, ROUND_S, quota=KEPT)
    assert 200_000 - 100_000 <= sizes(split(200_000), wishes, policy)["eu"] <= 200_000 - 70_000


def test_what_is_kept_for_claims_is_not_for_low_priority_nor_for_what_regions_keep() -> None:
    policy = Policy(pool_share=0.1, variance=0.0)
    low = Need(50, denied=9.0, denied_low=9.0, seconds=ROUND_S)
    assert 180 == sum(aims(200, policy, eu=low, us=low).values())
    assert 200 == sum(aims(200, policy, eu=replaced(low, denied_low=0.0), us=replaced(low, denied_low=0.0)).values())
    wishes = {name: wish_of(Need(80), RegionState(), 200, policy, ROUND_S, quota=KEPT) for name in ("eu", "us")}
    assert {"eu": 90, "us": 90} == sizes(split(200), wishes, policy)


def test_what_is_kept_is_no_reason_to_deny_normal_ones_elsewhere() -> None:
    policy = Policy(pool_share=0.0, variance=0.0)
    asked = {"eu": Need(80, denied=3.0, seconds=ROUND_S), "us": Need(80, seconds=ROUND_S)}
    wishes = {name: wish_of(need, RegionState(), 200, policy, ROUND_S, quota=KEPT) for name, need in asked.items()}
    assert {"eu": 110, "us": 90} == sizes(split(200), wishes, policy)


def test_what_is_denied_at_low_priority_alone_does_not_move_single_units() -> None:
    known, us = split(10_000, eu=5000, us=5000), Need(4985, seconds=ROUND_S)
    for low, moved in ((1.0, []), (0.5, [12])):
        eu = Need(5000, denied=1.0, denied_low=low, seconds=ROUND_S)
        planned = plan(known, {"eu": eu, "us": us}, everybody, Policy(pool_share=0.0, variance=0.0), ROUND_S)
        assert moved == [move.amount for move in planned.moves]


def test_the_pool_is_granted_to_high_priority_first() -> None:
    known = split(300, eu=120, us=50, ap=100)
    asked = {
        "eu": Need(120, denied=5.0, seconds=ROUND_S),
        "us": Need(50, denied=3.0, denied_high=3.0, seconds=ROUND_S),
        "ap": Need(10, seconds=ROUND_S),
    }
    planned = plan(known, asked, everybody, Policy(pool_share=0.0), ROUND_S)
    assert {"us": 30} == dict(planned.grants)


# -- at once --

SHORT = {name: RegionState() for name in ("eu", "us", "ap")}


def denying(in_use: int, high: float = 0.0, normal: float = 0.0, low: float = 0.0) -> Need:
    return Need(in_use, denied=high + normal + low, denied_high=high, denied_low=low, seconds=5.0, largest=1)


def relief(known: Allocation, **asked: Need) -> Plan:
    return relieve(known, asked, {name for name, need in asked.items() if need.denied}, SHORT, 3)


@pytest.mark.parametrize(
    ("eu", "us", "first"),
    [
        (denying(100, normal=9.0), denying(100, high=1.0), "us"),
        (denying(100, low=9.0), denying(100, normal=1.0), "us"),
        (denying(100, low=9.0), denying(100, low=1.0, high=1.0), "us"),
        (denying(100, normal=9.0), denying(100, normal=1.0), "eu"),
    ],
)
def test_of_several_that_run_short_the_higher_priority_gets_the_pool_and_the_donor(
    eu: Need, us: Need, first: Region
) -> None:
    ap = Need(20, seconds=5.0)
    assert {first: 10} == dict(relief(owned(310, eu=100, us=100, ap=100), eu=eu, us=us, ap=ap).grants)
    without_pool = relief(owned(300, eu=100, us=100, ap=100), eu=eu, us=us, ap=ap)
    assert [first] == [move.target for move in without_pool.moves]


def test_low_priority_does_not_draw_what_another_is_asked_for() -> None:
    """`eu` has 20 left for higher ones, and nobody who asks for them; `us` is asked for a unit a second."""
    known, us = owned(200, eu=100, us=100), Need(50, growth=1.0, seconds=5.0)
    assert () == relief(known, eu=denying(80, low=1000.0), us=us).moves
    (shared,) = relief(known, eu=denying(80, low=1000.0), us=replaced(us, growth=0.0)).moves
    assert 15 == shared.amount, "what nobody is asked for is shared evenly"
    (urgent,) = relief(known, eu=denying(80, normal=1000.0), us=us).moves
    assert 49 == urgent.amount


def test_low_priority_draws_at_once_only_what_no_region_keeps() -> None:
    for in_use, given_ in ((80, 0), (40, 25)):
        known = replaced(owned(200, eu=100, us=100), policy=KEPT)
        asked = {"eu": denying(80, low=50.0), "us": Need(in_use, seconds=5.0, largest=1)}
        assert given_ == sum(move.amount for move in relieve(known, asked, {"eu"}, SHORT, 3).moves)


def test_who_runs_short_at_low_priority_alone_gives_to_one_that_is_asked_for_more() -> None:
    known = owned(200, eu=100, us=100)
    asked = {"eu": denying(100, high=1.0), "us": denying(80, low=50.0)}
    (move,) = relief(known, **asked).moves
    assert ("us", "eu") == (move.source, move.target)
    assert 0 < move.amount <= 20
    requested = owned(200, eu=100, us=100, moves=[Move("1", "us", "eu", 7)])
    assert (PlannedMove("us", "eu", 7),) == relieve(requested, asked, {"us"}, SHORT, 3).moves
    assert () == relieve(requested, asked | {"us": denying(100, normal=1.0)}, {"us"}, SHORT, 3).moves


def test_a_denial_at_low_priority_costs_nobody_its_growth_where_nothing_is_kept() -> None:
    both = {"eu": Need(400, growth=20.0, seconds=10.0), "us": Need(400, growth=20.0, seconds=10.0)}
    alike = aims(1000, **both)
    denied = aims(1000, **{**both, "eu": replaced(both["eu"], denied=0.1, denied_low=0.1)})
    assert denied["eu"] >= alike["eu"] - 1
