import pytest
from tests.core.builders import NOON, OTHER, QUOTA

from regionquota.core.demand import Demand, Need, needs


def test_a_regions_word_becomes_rates_per_second() -> None:
    said = Demand(QUOTA, slice=100, used=30, reserved=5, granted=50, freed=20, denied=8, seconds=4.0)
    assert {QUOTA: {"eu": Need(in_use=35, growth=7.5, denied=2.0, seconds=4.0, turnover=17.5)}} == needs([("eu", said)])


def test_rates_of_several_servers_add_up() -> None:
    one = Demand(QUOTA, slice=100, used=30, reserved=0, granted=10, denied=4, seconds=1.0)
    two = Demand(QUOTA, slice=100, used=30, reserved=0, granted=20, denied=4, seconds=2.0)
    need = needs([("eu", one), ("eu", two)])[QUOTA]["eu"]
    assert (20.0, 6.0, 20.0) == (need.growth, need.denied, need.turnover)


def test_balances_of_several_servers_come_out_of_one_database() -> None:
    older = Demand(QUOTA, slice=100, used=30, reserved=0, seconds=1.0)
    newer = Demand(QUOTA, slice=100, used=40, reserved=0, seconds=1.0)
    assert 40 == needs([("eu", newer), ("eu", older)])[QUOTA]["eu"].in_use


def test_regions_and_quotas_are_kept_apart() -> None:
    words = [
        ("eu", Demand(QUOTA, slice=0, used=1, reserved=0)),
        ("us", Demand(QUOTA, slice=0, used=2, reserved=0)),
        ("us", Demand(OTHER, slice=0, used=3, reserved=0)),
    ]
    found = {key: {region: need.in_use for region, need in of.items()} for key, of in needs(words).items()}
    assert {QUOTA: {"eu": 1, "us": 2}, OTHER: {"us": 3}} == found


def test_more_freed_than_granted_is_negative_growth() -> None:
    assert -5.0 == needs([("eu", Demand(QUOTA, 100, 30, 0, granted=5, freed=10, seconds=1.0))])[QUOTA]["eu"].growth


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_word_about_no_time_at_all_does_not_divide_by_zero(seconds: float) -> None:
    said = Demand(QUOTA, slice=1, used=0, reserved=0, denied=1, seconds=seconds)
    assert 1000.0 == pytest.approx(needs([("eu", said)])[QUOTA]["eu"].denied)


@pytest.mark.parametrize(
    ("since", "in_use"),
    [(0.0, 50), (2.0, 60), (-5.0, 50), (4.0, 70), (1000.0, 70)],
    ids=["now", "a while ago", "by a clock that is ahead", "a report ago", "by a clock that is behind"],
)
def test_what_was_said_a_while_ago_has_gone_on_growing(since: float, in_use: int) -> None:
    said = Demand(QUOTA, slice=100, used=30, reserved=20, granted=25, freed=5, seconds=4.0, at=NOON)
    assert in_use == needs([("eu", said)], NOON + since)[QUOTA]["eu"].in_use


def test_nobody_is_thought_to_use_more_than_the_slice_nor_less_than_was_said() -> None:
    grows = Demand(QUOTA, slice=60, used=50, reserved=0, granted=40, seconds=4.0, at=NOON)
    shrinks = Demand(QUOTA, slice=40, used=50, reserved=0, freed=40, seconds=4.0, at=NOON)
    assert [60, 50] == [needs([("eu", said)], NOON + 4)[QUOTA]["eu"].in_use for said in (grows, shrinks)]


def test_the_largest_request_of_any_server_counts() -> None:
    words = [("eu", Demand(QUOTA, 1, 0, 0, largest=largest)) for largest in (3, 7, 5)]
    assert 7 == needs(words)[QUOTA]["eu"].largest


def test_denials_of_a_priority_become_rates_too_and_never_more_than_all_denials() -> None:
    one = Demand(QUOTA, slice=100, used=30, reserved=0, denied=8, denied_high=4, denied_low=2, seconds=2.0)
    two = Demand(QUOTA, slice=100, used=30, reserved=0, denied=4, denied_high=9, denied_low=9, seconds=1.0)
    need = needs([("eu", one), ("eu", two)])[QUOTA]["eu"]
    assert (8.0, 6.0, 1.0) == (need.denied, need.denied_high, need.denied_low)
