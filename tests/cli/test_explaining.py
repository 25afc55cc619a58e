"""What regionquota explain says in words."""

from typing import Any

import pytest
from tests.core.builders import allocation

from regionquota.cli.explaining import denial_in_words, frozen_in_words, in_words
from regionquota.core.allocation import Allocation
from regionquota.core.policy import QuotaPolicy
from regionquota.core.region_rules import RegionRules
from regionquota.ports import Frozen, FrozenBy


def denied(amount: int, pool: int | None = 0, reason: str = "OVER_LIMIT") -> dict[str, Any]:
    return {"at": "2026-06-15T03:00:00Z", "reason": reason, "amount": amount, "available": 7, "slice": 9, "pool": pool}


@pytest.mark.parametrize(
    ("denial", "is_frozen", "says"),
    [
        (denied(8), False, "8 did not fit into 7 of a slice of 9, and the pool held 0"),
        (denied(8, pool=None), False, "8 did not fit into 7 of a slice of 9"),
        (denied(8, pool=17), False, "8 did not fit into 7 of a slice of 9, and the pool held 17"),
        (denied(8, pool=17), True, "and the pool's 17 are out of reach while the region is frozen"),
        (denied(101, pool=17), True, "; it is more than the whole limit 100, so no region can grant it"),
        (denied(8, reason="IN_DEBT"), False, "the region owes what was used beyond its slice"),
    ],
)
def test_a_denial_says_what_stood_in_the_way(denial: dict[str, Any], is_frozen: bool, says: str) -> None:
    said = denial_in_words("us", denial, allocation(100, us=9), is_frozen=is_frozen)
    assert said.startswith("us last denied at 2026-06-15T03:00:00Z: ")
    assert says in said


def test_a_denial_at_the_cap_says_so() -> None:
    capped = allocation(100, policy=QuotaPolicy(regions={"us": RegionRules(cap=9)}), us=9)
    said = denial_in_words("us", denied(8, pool=50), capped, is_frozen=False)
    assert said.endswith("8 did not fit into 7 of a slice of 9, which is all that its cap 9 lets it own")


def test_a_denial_beside_a_pool_that_is_kept_for_floors_says_so() -> None:
    kept = allocation(100, policy=QuotaPolicy(regions={"eu": RegionRules(floor=50), "us": RegionRules(floor=20)}), us=9)
    said = denial_in_words("us", denied(8, pool=50), kept, is_frozen=False)
    assert said.endswith("and the pool held 50, of which is kept what eu still lacks of a floor")


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (allocation(100, eu=60), "limit 100, 40 in the pool"),
        (allocation(40, eu=60), "limit 40, 20 above it still to be given back"),
    ],
)
def test_a_limit_that_was_cut_says_what_is_still_owned_above_it(known: Allocation, says: str) -> None:
    assert says == in_words(known)


def test_a_freeze_says_since_when_and_why() -> None:
    said = frozen_in_words(Frozen(FrozenBy.LIVENESS, 1_781_492_400.0, "no sign of life from any of its servers"))
    assert "by liveness since 2026-06-15T03:00:00.000Z: no sign of life from any of its servers" == said
