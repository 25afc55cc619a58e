"""A quota's floors and caps, and what they leave of its pool to each region."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from regionquota.core.allocation import Allocation
from regionquota.core.quota import MAX_AMOUNT, Region

TakesPart: TypeAlias = Callable[[Region], bool]
"""Whether anything can be given to a region. The floor of one that is frozen, drains or is gone binds nobody."""


def floors_in_force(allocation: Allocation, takes_part: TakesPart = lambda _: True) -> Mapping[Region, int]:
    """If the limit was lowered below their sum, each gets the same part of its floor."""
    rules = allocation.policy.regions
    floors = {region: rule.floor for region, rule in rules.items() if rule.floor and takes_part(region)}
    total, limit = sum(floors.values()), allocation.limit
    return floors if total <= limit else {region: limit * floor // total for region, floor in floors.items()}


def below_floor(allocation: Allocation, takes_part: TakesPart = lambda _: True) -> frozenset[Region]:
    """The regions that own less than their floor."""
    floors = floors_in_force(allocation, takes_part)
    return frozenset(region for region, floor in floors.items() if allocation.slice_of(region) < floor)


def within_reach(allocation: Allocation, region: Region, takes_part: TakesPart) -> int:
    """What of the pool `region` may take: what is free for it, up to its cap."""
    free = free_for(allocation, region, takes_part)
    return min(free, room_below_cap(allocation, region)) if free else 0


def free_for(allocation: Allocation, region: Region, takes_part: TakesPart) -> int:
    """What of the pool is not kept for others, who lack it of their floors.

    What it lacks of its own floor it may take in any case: who comes first is served first.
    """
    pool = max(0, allocation.pool)
    if not pool or not allocation.policy.regions:
        return pool
    floors = floors_in_force(allocation, takes_part)
    lacking = {name: max(0, floor - allocation.slice_of(name)) for name, floor in floors.items()}
    own = lacking.pop(region, 0)
    return min(max(own, pool - sum(lacking.values())), pool)


def room_below_cap(allocation: Allocation, region: Region) -> int:
    """What is on its way to the region counts as its own."""
    rules = allocation.policy.regions.get(region)
    if rules is None or rules.cap is None:
        return MAX_AMOUNT
    coming = sum(move.amount for move in allocation.moves if move.target == region)
    return max(0, rules.cap - allocation.slice_of(region) - coming)
