"""Rules of a quota for single regions: how they are set, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy, amend
from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT, Kind
from regionquota.core.region_rules import MAX_RULED_REGIONS, RegionRules
from regionquota.errors import InvalidRequest

KNOWN = QuotaPolicy(regions={"eu": RegionRules(300, 50, 200), "us": RegionRules(cap=10)})


def amended(said: Any, policy: QuotaPolicy | None = KNOWN, limit: int | None = 1000) -> Mapping[str, RegionRules]:
    return amend(policy, Kind.ALLOCATED, limit, {"regions": said}).regions


def test_what_is_left_out_stays() -> None:
    assert {"eu": RegionRules(300, 60, 200), "us": RegionRules(cap=10)} == amended({"eu": {"floor": 60}})
    assert KNOWN.regions == amend(KNOWN, Kind.ALLOCATED, 1000, {"max_single": 3}).regions
    assert KNOWN.regions == amended({})


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"eu": {"weight": None}}, {"eu": RegionRules(None, 50, 200), "us": RegionRules(cap=10)}),
        ({"eu": {"floor": None, "cap": None}}, {"eu": RegionRules(300), "us": RegionRules(cap=10)}),
        ({"us": {"cap": None}}, {"eu": RegionRules(300, 50, 200)}),
        ({"eu": None}, {"us": RegionRules(cap=10)}),
        ({"eu": None, "us": None, "ap": None}, {}),
        (None, {}),
    ],
)
def test_null_takes_away_a_rule_or_all_of_a_region_or_all(said: Any, left: Mapping[str, RegionRules]) -> None:
    assert left == amended(said)


def test_taking_back_all_rules_leaves_the_policy_as_it_was() -> None:
    assert DEFAULT_POLICY == amend(KNOWN, Kind.ALLOCATED, 1000, {"regions": None})


def test_the_order_in_which_they_are_said_makes_no_other_policy() -> None:
    one, other = (amended({name: {"floor": 1} for name in names}, None) for names in (("eu", "us"), ("us", "eu")))
    assert list(one.items()) == list(other.items())


@pytest.mark.parametrize(
    ("said", "limit", "field", "message"),
    [
        ({"eu": {"floor": 201}}, 1000, "regions.eu.floor", "the floor 201 must not be above the cap 200"),
        ({"eu": {"cap": 49}}, 1000, "regions.eu.cap", "the floor 50 must not be above the cap 49"),
        ({"ap": {"floor": 951}}, 1000, "regions.ap.floor", "the floors add up to 1001, above the limit 1000"),
        ({"ap": {"weight": 1}, "eu": {"floor": 51}}, 50, "regions.eu.floor", "add up to 51, above the limit 50"),
        ({f"r{n}": {"cap": 1} for n in range(MAX_RULED_REGIONS)}, 1000, "regions", "up to 64 regions, got 66"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(said: Any, limit: int, field: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        amended(said, limit=limit)
    assert field == refused.value.field
    assert message in str(refused.value)


def test_floors_that_fill_the_limit_are_fine_and_so_are_any_of_an_unlimited_quota() -> None:
    assert 950 == amended({"ap": {"floor": 950}})["ap"].floor
    assert MAX_AMOUNT == amended({"ap": {"floor": MAX_AMOUNT}}, limit=None)["ap"].floor


def test_a_limit_that_is_lowered_below_the_floors_is_no_error() -> None:
    assert KNOWN.regions == amend(KNOWN, Kind.ALLOCATED, 10, {}).regions
    assert 20 == amended({"us": {"cap": 20}}, limit=10)["us"].cap


@pytest.mark.parametrize(
    "rules", [{"weight": -1}, {"weight": MAX_WEIGHT + 1}, {"floor": -1}, {"cap": -1}, {"cap": MAX_AMOUNT + 1}]
)
def test_what_nobody_could_reckon_with_cannot_exist(rules: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"weight is|out of range"):
        RegionRules(**rules)


def test_a_policy_names_a_bounded_number_of_regions() -> None:
    with pytest.raises(ValueError, match="rules of 65 regions"):
        QuotaPolicy(regions={f"r{number}": RegionRules(floor=1) for number in range(MAX_RULED_REGIONS + 1)})
