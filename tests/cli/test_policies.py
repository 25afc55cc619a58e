"""Rules of a quota in words."""

import json
from collections.abc import Mapping

import pytest
from tests.core.builders import QUOTA, allocation

from regionquota.cli.policies import as_option, in_words, rules_of
from regionquota.cli.quotas import show_set
from regionquota.core.allocation import LimitSource
from regionquota.core.policy import QuotaPolicy, amend
from regionquota.core.quota import Kind
from regionquota.core.region_rules import RegionRules
from regionquota.errors import InvalidRequest
from regionquota.ports import Stored


def test_rules_for_regions_are_shown_region_by_region() -> None:
    rules = {"eu": RegionRules(300, 50, 2000), "us": RegionRules(cap=0)}
    known = allocation(100, policy=QuotaPolicy(regions=rules))
    assert [("in eu", "weight 300, floor 50, cap 2,000"), ("in us", "cap 0")] == in_words(known)[1:]
    assert [("generation", 1)] == in_words(allocation(100))


def test_options_are_gathered_by_region() -> None:
    said = rules_of(weight=["eu=300"], floor=["eu=50", "us=few"], cap=["us=none", "a=b=1"])
    assert {
        "regions": {"eu": {"weight": 300, "floor": 50}, "us": {"floor": "few", "cap": None}, "a=b": {"cap": 1}}
    } == said
    assert {} == rules_of(weight=None, floor=[], cap=None)


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        (
            Kind.ALLOCATED,
            {"normal_fill_percent": 50},
            "--normal-fill must not be below --low-fill 100, got 50: set both",
        ),
        (
            Kind.ALLOCATED,
            {"normal_fill_percent": 50, "low_fill_percent": 80},
            "--low-fill must not be above --normal-fill 50, got 80: set both",
        ),
        (Kind.ALLOCATED, {"min_ttl_s": 60, "max_ttl_s": 30}, "--min-ttl 60 is above --max-ttl 30"),
        (Kind.RATE, {}, "--refill is missing: a rate quota needs units per time, such as 100 in 60 s"),
    ],
)
def test_a_rule_that_does_not_fit_is_told_in_options_only(kind: Kind, changes: Mapping[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        amend(None, kind, 10, changes)
    assert says == str(as_option(refused.value))


def test_a_limit_below_the_floors_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    known = allocation(100, policy=QuotaPolicy(regions={"eu": RegionRules(floor=80), "us": RegionRules(floor=30)}))
    show_set(Stored(QUOTA, 7, known), LimitSource.PLAN, json=False)
    assert f"warning: {QUOTA}: the floors of the regions add up to 110, above the limit 100" in capsys.readouterr().err
    show_set(Stored(QUOTA, 7, known), LimitSource.PLAN, json=True)
    assert 1 == len(json.loads(capsys.readouterr().out)["warnings"])
    show_set(Stored(QUOTA, 7, allocation(100)), LimitSource.PLAN, json=True)
    assert [] == json.loads(capsys.readouterr().out)["warnings"]
