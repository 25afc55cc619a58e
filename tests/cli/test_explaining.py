"""What regionquota explain says in words."""

from typing import Any

import pytest
from tests.core.builders import allocation

from regionquota.cli.explaining import denial_in_words, frozen_in_words, in_words, pool_in_words
from regionquota.core.allocation import Allocation
from regionquota.core.explaining import Explanation
from regionquota.core.rebalancing import NOTHING
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


@pytest.mark.parametrize(
    ("limit", "pool", "scatters", "says"),
    [
        (1000, 88, 101.3, "the pool is to hold 88 (9% of the limit): busy minutes ask 101 beyond the mean"),
        (1000, 100, 0.0, "the pool is to hold 100 (10% of the limit): nothing is learnt of bursts yet"),
        (0, 0, 0.0, "the pool is to hold 0: nothing is learnt of bursts yet"),
    ],
)
def test_what_the_pool_is_to_hold_and_why(limit: int, pool: int, scatters: float, says: str) -> None:
    found = Explanation((), NOTHING, pool, scatters)
    assert f"while the needs fit {says}" == pool_in_words(allocation(limit), found)
