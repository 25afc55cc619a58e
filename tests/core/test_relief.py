"""One move at once for a region that runs short."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import allocation

from regionquota.core.allocation import Allocation, Move
from regionquota.core.demand import Need
from regionquota.core.floors_and_caps import floors_in_force
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT
from regionquota.core.rebalancing import Plan, PlannedMove, RegionState
from regionquota.core.region_rules import RegionRules
from regionquota.core.relief import relieve

REGIONS = {name: RegionState() for name in ("eu", "us", "ap")}


def uses(in_use: int, rate: float = 1.0, largest: int = 1) -> Need:
    return Need(in_use, growth=rate, largest=largest)


def plan(
    known: Allocation,
    short: Collection[str],
    needs: dict[str, Need],
    smallest: int = 3,
    period_s: float | None = None,
    **states: RegionState,
) -> Plan:
    return relieve(known, needs, short, REGIONS | states, smallest, period_s)


def test_the_one_that_can_spare_most_gives() -> None:
    needs = {"eu": uses(100), "us": uses(60), "ap": uses(20)}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu"], needs)
    assert Plan({}, (PlannedMove("ap", "eu", 40, 80),)) == made


def test_both_have_the_same_time_left_afterwards() -> None:
    needs = {"eu": uses(100, 30.0), "us": uses(60, 10.0)}
    (move,) = plan(allocation(200, eu=100, us=100), ["eu"], needs).moves
    assert 30 == move.amount  # 30 units at 30/s, and 10 at 10/s


def test_what_is_free_is_collected_first_after_the_limit_was_lowered() -> None:
    needs = {"eu": uses(100), "us": uses(0)}
    assert Plan({}, ()) == plan(allocation(150, eu=100, us=100), ["eu"], needs)
    asked = Move("1", "us", None, 50)
    assert (PlannedMove("us", None, 50),) == plan(allocation(150, eu=100, us=100, moves=[asked]), ["us"], needs).moves


def test_a_move_that_names_a_region_that_is_frozen_by_now_is_withdrawn() -> None:
    asked = [Move("1", "us", "ap", 5), Move("2", "ap", None, 5)]
    frozen = RegionState(frozen=True)
    for limit in (300, 150):
        made = plan(allocation(limit, eu=100, us=100, ap=100, moves=asked), ["eu"], {"eu": uses(100)}, ap=frozen)
        assert () == made.moves


def test_the_pool_comes_first() -> None:
    made = plan(allocation(300, eu=100, us=100), ["eu"], {"eu": uses(100), "us": uses(0)})
    assert Plan({"eu": 100}, ()) == made


def test_what_the_pool_cannot_serve_is_moved_at_once() -> None:
    known = allocation(300, eu=100, us=150)
    few, many = (Need(100, growth=0.0, denied=denied, seconds=5.0) for denied in (10.0, 20.0))
    assert Plan({"eu": 50}, ()) == plan(known, ["eu"], {"eu": few, "us": uses(0, 0.0)})
    made = plan(known, ["eu"], {"eu": many, "us": uses(0, 0.0)})
    assert ({"eu": 50}, [("us", "eu")]) == (made.grants, [(move.source, move.target) for move in made.moves])


def test_little_is_moved_only_to_who_has_nothing_left() -> None:
    known = allocation(200, eu=100, us=100)
    assert () == plan(known, ["eu"], {"eu": uses(99), "us": uses(96)}).moves
    assert 2 == plan(known, ["eu"], {"eu": uses(100), "us": uses(96)}).moves[0].amount


def test_nothing_is_left_anywhere() -> None:
    assert Plan({}, ()) == plan(allocation(200, eu=100, us=100), ["eu"], {"eu": uses(100), "us": uses(100)})


def test_who_runs_short_does_not_give() -> None:
    needs = {"eu": uses(100), "us": uses(90), "ap": uses(100)}
    assert () == plan(allocation(300, eu=100, us=100, ap=100), ["eu", "us"], needs).moves


def test_a_donor_gives_to_one_at_a_time() -> None:
    needs = {"eu": uses(100), "us": uses(100), "ap": uses(0)}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu", "us"], needs)
    assert ["ap"] == [move.source for move in made.moves]


def test_a_move_that_was_requested_before_still_stands() -> None:
    known = allocation(300, eu=100, us=100, ap=100, moves=[Move("1", "ap", "us", 10)])
    made = plan(known, ["eu"], {"eu": uses(100), "us": uses(50), "ap": uses(0)})
    assert (PlannedMove("ap", "us", 10),) == made.moves


def test_a_donor_that_runs_short_itself_is_asked_no_more() -> None:
    known = allocation(300, eu=100, us=100, ap=100, moves=[Move("1", "us", "eu", 10)])
    made = plan(known, ["eu", "us"], {"eu": uses(100), "us": uses(100), "ap": uses(0)})
    assert {"ap"} == {move.source for move in made.moves}


def test_frozen_draining_and_unknown_regions_are_left_alone() -> None:
    needs = {"eu": uses(100), "us": uses(0), "nowhere": uses(0)}
    known = allocation(300, eu=100, us=100, nowhere=100)
    assert Plan({}, ()) == plan(known, ["eu"], needs, us=RegionState(frozen=True))
    assert Plan({}, ()) == plan(known, ["eu"], needs, eu=RegionState(draining=True))
    assert Plan({}, ()) == plan(known, ["nowhere"], needs)


def test_a_few_requests_more_or_less_make_no_difference() -> None:
    needs = {"eu": Need(100, growth=0.4, seconds=5.0), "us": Need(0, growth=0.0, seconds=5.0)}
    (move,) = plan(allocation(200, eu=100, us=100), ["eu"], needs).moves
    assert 60 == move.amount  # not all: 6 in five seconds beside 4


def test_one_large_request_more_or_less_makes_as_little() -> None:
    needs = {
        "eu": Need(100, growth=20.0, seconds=5.0, largest=100),
        "us": Need(0, growth=0.0, seconds=5.0, largest=100),
    }
    (move,) = plan(allocation(1100, eu=100, us=1000), ["eu"], needs).moves
    assert 555 == move.amount  # 500 in five seconds beside four of 100


def test_several_give_what_one_has_not_got() -> None:
    needs = {"eu": uses(100, largest=60), "us": uses(60, largest=0), "ap": uses(70, largest=0)}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu"], needs)
    assert (PlannedMove("us", "eu", 40, 40), PlannedMove("ap", "eu", 20, 30)) == made.moves


def test_the_pool_and_a_move_together_serve_a_large_request() -> None:
    needs = {"eu": uses(100, largest=60), "us": uses(0, largest=0)}
    made = plan(allocation(220, eu=100, us=100), ["eu"], needs)
    assert Plan({"eu": 20}, (PlannedMove("us", "eu", 40, 100),)) == made


def test_who_can_serve_its_own_requests_goes_on_doing_so() -> None:
    needs = {"eu": uses(100, largest=60), "us": uses(20, largest=50)}
    assert 30 == plan(allocation(200, eu=100, us=100), ["eu"], needs).moves[0].amount


def test_crumbs_are_swept_together() -> None:
    needs = {"eu": uses(90, largest=60), "us": uses(80, largest=50), "ap": uses(90, largest=40)}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu"], needs)
    assert {"us": 20, "ap": 10} == {move.source: move.amount for move in made.moves}


def test_what_all_together_cannot_serve_costs_nobody_its_headroom() -> None:
    """One caller that asks for the whole limit, again and again, left each of the others room for one request."""
    donors = {"us": uses(10), "ap": uses(20)}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu"], {"eu": uses(100, largest=300)} | donors)
    assert {"us": 45} == {move.source: move.amount for move in made.moves}
    made = plan(allocation(300, eu=100, us=100, ap=100), ["eu"], {"eu": uses(12, largest=300)} | donors)
    assert () == made.moves


def test_the_last_unit_of_a_region_that_nobody_asks_is_moved() -> None:
    made = plan(allocation(1, us=1), ["eu"], {"eu": uses(0), "us": uses(0, 0.0, largest=0)})
    assert (PlannedMove("us", "eu", 1, 1),) == made.moves


def test_who_weighs_more_keeps_what_it_will_need_of_its_share() -> None:
    known = allocation(400, eu=100, us=300)
    needs = {"eu": uses(100), "us": uses(0, 2.0)}
    heavy = {"us": RegionState(weight=300)}
    assert 42 == plan(known, ["eu"], needs, **heavy).moves[0].amount  # of 300, a seventh
    assert 15 == plan(known, ["eu"], needs, period_s=95.0, **heavy).moves[0].amount  # of the 110 beyond 190
    assert () == plan(known, ["eu"], needs, period_s=1000.0, **heavy).moves


@given(
    st.dictionaries(st.sampled_from(["eu", "us", "ap"]), st.integers(0, 100), min_size=1),
    st.dictionaries(
        st.sampled_from(["eu", "us", "ap"]),
        st.builds(uses, st.integers(0, 120), st.floats(0, 100), st.integers(0, 200)),
    ),
    st.sets(st.sampled_from(["eu", "us", "ap"])),
    st.integers(0, 50),
)  # fmt: skip
def test_nobody_is_asked_for_what_it_uses_and_nothing_is_granted_twice(
    slices: dict[str, int], needs: dict[str, Need], short: set[str], pool: int
) -> None:
    made = plan(allocation(sum(slices.values()) + pool, **slices), short, needs, 1)
    assert sum(made.grants.values()) <= pool
    for move in made.moves:
        assert 0 < move.amount <= slices.get(move.source, 0) - needs[move.source].in_use
    assert len({move.source for move in made.moves}) == len(made.moves)


# -- floors and caps --


def ruled(limit: int, slices: dict[str, int], **rules: RegionRules) -> Allocation:
    return allocation(limit, policy=QuotaPolicy(regions=rules), **slices)


def test_a_donor_keeps_its_floor() -> None:
    needs = {"eu": uses(100), "us": uses(0, 0.0)}
    known = ruled(200, {"eu": 100, "us": 100}, us=RegionRules(floor=90))
    assert (PlannedMove("us", "eu", 9, 10),) == plan(known, ["eu"], needs, smallest=1).moves
    drained = plan(known, ["eu"], needs, smallest=1, us=RegionState(draining=True)).moves
    assert drained[0].amount > 90


def test_nobody_is_brought_above_its_cap() -> None:
    needs = {"eu": uses(100), "us": uses(0, 0.0)}
    known = ruled(250, {"eu": 100, "us": 100}, eu=RegionRules(cap=120))
    assert Plan({"eu": 20}, ()) == plan(known, ["eu"], needs)
    known = ruled(200, {"eu": 100, "us": 100}, eu=RegionRules(cap=120))
    assert (PlannedMove("us", "eu", 20, 100),) == plan(known, ["eu"], needs).moves
    known = ruled(300, {"eu": 100, "us": 100}, eu=RegionRules(cap=100))
    assert Plan({}, ()) == plan(known, ["eu"], needs)


def test_what_is_on_its_way_counts_below_the_cap() -> None:
    standing = [Move("1", "us", "eu", 15)]
    known = allocation(
        300, policy=QuotaPolicy(regions={"eu": RegionRules(cap=120)}), moves=standing, eu=100, us=100, ap=100
    )
    assert (PlannedMove("us", "eu", 15),) == plan(known, ["eu"], {"eu": uses(100), "ap": uses(0)}).moves


def test_the_pool_keeps_what_others_lack_of_their_floors() -> None:
    needs = {"eu": uses(100), "us": uses(90)}
    known = ruled(300, {"eu": 100, "us": 100}, us=RegionRules(floor=150), ap=RegionRules(floor=20))
    assert {"eu": 30} == plan(known, ["eu"], needs).grants
    assert {"eu": 50} == plan(known, ["eu"], needs, ap=RegionState(frozen=True)).grants
    assert {"eu": 30, "us": 50} == plan(known, ["eu", "us"], needs).grants


@given(
    st.fixed_dictionaries({name: st.integers(0, 200) for name in REGIONS}),
    st.integers(0, 300),
    st.fixed_dictionaries({name: st.builds(uses, st.integers(0, 200), largest=st.integers(0, 50)) for name in REGIONS}),
    st.lists(st.sampled_from(sorted(REGIONS)), unique=True),
    st.dictionaries(
        st.sampled_from(sorted(REGIONS)),
        st.tuples(st.integers(0, 200), st.none() | st.integers(0, 100)).map(
            lambda pair: RegionRules(floor=pair[0], cap=None if pair[1] is None else pair[0] + pair[1])
        ),
    ),
)
def test_floors_and_caps_hold(
    slices: dict[str, int], pool: int, needs: dict[str, Need], short: list[str], rules: dict[str, RegionRules]
) -> None:
    known = ruled(sum(slices.values()) + pool, slices, **rules)
    made = plan(known, short, needs)
    for region, size in slices.items():
        rule = rules.get(region, RegionRules())
        got = made.grants.get(region, 0) + sum(move.amount for move in made.moves if move.target == region)
        gave = sum(move.amount for move in made.moves if move.source == region)
        assert not gave or size - gave >= floors_in_force(known).get(region, 0)
        assert not got or rule.cap is None or size + got <= rule.cap
    assert sum(made.grants.values()) <= pool


def test_of_sizes_that_no_float_holds_a_donor_is_asked_for_no_more_than_it_can_spare() -> None:
    floor = 2**62 + 1
    ruled = QuotaPolicy(regions={"us": RegionRules(floor=floor)})
    known = allocation(MAX_AMOUNT, policy=ruled, us=MAX_AMOUNT)
    (move,) = plan(known, ["eu"], {"eu": Need(denied=1e18, seconds=5.0), "us": Need(seconds=5.0)}).moves
    assert move.amount <= MAX_AMOUNT - floor
