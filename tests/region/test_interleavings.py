"""The allocation protocol under an adversarial scheduler, and what each fence is for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.region.explorer import Violation, explore

from regionquota.adapters.memory import region_store
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import Allocation
from regionquota.core.periods import TIMELESS
from regionquota.core.quota import Kind
from regionquota.core.slice import Holding, apply

HONEST_SEEDS = 120
SEEDS_TO_FIND = 400
"""A fence that is removed must be missed within that many runs; each is missed within the first few dozen."""

Apply = Callable[..., Holding | None]


@pytest.mark.parametrize("kind", list(Kind))
def test_no_interleaving_breaks_an_invariant(kind: Kind) -> None:
    worlds = [explore(seed, kind=kind) for seed in range(HONEST_SEEDS)]
    # What was explored was worth exploring.
    assert sum(world.steps["crash"] for world in worlds) > HONEST_SEEDS
    assert sum(world.steps["limit"] for world in worlds) > HONEST_SEEDS / 2
    assert sum(len(rows) for world in worlds for rows in world.changes().values()) > 5 * HONEST_SEEDS
    if kind is Kind.CONSUMABLE:
        assert all(len(world._spent()) > 1 for world in worlds)


def missed(expected: str, kind: Kind = Kind.CONSUMABLE) -> int:
    """The first seed that shows `expected` (A, B or C) broken."""
    for seed in range(SEEDS_TO_FIND):
        try:
            explore(seed, kind=kind)
        except Violation as found:
            if str(found).startswith(f"{expected}:"):
                return seed
    raise AssertionError(f"nobody missed the fence in {SEEDS_TO_FIND} runs")


def applied_otherwise(monkeypatch: pytest.MonkeyPatch, otherwise: Apply) -> None:
    monkeypatch.setattr(region_store, "apply", otherwise)


def test_fence_1_is_missed_when_an_older_revision_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(holding: Holding | None, *rest: Any) -> Holding | None:
        return apply(None if holding is None else msgspec.structs.replace(holding, revision=0), *rest)

    applied_otherwise(monkeypatch, unfenced)
    missed("B")


def test_fence_2_is_missed_when_a_swap_does_not_compare_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    swap = MemoryCoordination.swap

    async def blind(self: MemoryCoordination, key: Any, _revision: int, allocation: Allocation) -> int | None:
        current, _ = await self.read(key)
        return await swap(self, key, current, allocation)

    monkeypatch.setattr(MemoryCoordination, "swap", blind)
    missed("B")


def test_fence_3_is_missed_when_the_epoch_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeless(holding: Holding | None, key: Any, allocation: Allocation, *rest: Any) -> Holding | None:
        return apply(holding, key, replace(allocation, epoch=TIMELESS), *rest)

    applied_otherwise(monkeypatch, timeless)
    missed("C")
