"""What a row holds of a policy."""

from regionquota.adapters.postgres.rows import _policy, policy_text
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.region_rules import RegionRules


def test_a_row_holds_of_a_policy_only_what_is_not_the_default() -> None:
    assert "{}" == policy_text(DEFAULT_POLICY)
    assert DEFAULT_POLICY == _policy("{}")


def test_rules_for_regions_come_back_from_a_row() -> None:
    ruled = QuotaPolicy(regions={"eu": RegionRules(300, 50, 200), "us": RegionRules(cap=0)})
    assert '{"regions":{"eu":{"weight":300,"floor":50,"cap":200},"us":{"cap":0}}}' == policy_text(ruled)
    assert ruled == _policy(policy_text(ruled))
