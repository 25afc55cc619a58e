"""Rules of a quota in words."""

from tests.core.builders import allocation

from regionquota.cli.policies import in_words, rules_of
from regionquota.core.policy import QuotaPolicy
from regionquota.core.region_rules import RegionRules


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
