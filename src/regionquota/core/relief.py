"""What is done at once for a region that runs short while the pool is empty: one move, from where most is idle."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Plan, PlannedMove, RegionState

_IDLE: Final = 1e-3
"""Units per second at least, so that an idle region has some time left and not endless."""


@dataclass(frozen=True, slots=True)
class _Side:
    left: int
    rate: float


def relieve(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    short: Collection[Region],
    regions: Mapping[Region, RegionState],
    smallest: int,
) -> Plan:
    """For each region of `short`: the pool, or one move from the region that can spare most.

    So much that both have the same time left until they run out, at the rate at which they are asked now. Nothing below
    `smallest` units moves, but to a region that has nothing left. A move that was requested before still stands,
    unless its donor runs short itself, or it names a region that is frozen by now. While a lowered limit is being
    collected nobody is relieved: what is given back would be in use again before it is collected.
    """
    thawed = [
        move for move in allocation.moves if not any(_is_frozen(one, regions) for one in (move.source, move.target))
    ]
    if allocation.pool < 0:
        return Plan({}, tuple(PlannedMove(move.source, move.target, move.amount) for move in thawed))
    grants: dict[Region, int] = {}
    standing = [move for move in thawed if move.source not in short]
    moves = [PlannedMove(move.source, move.target, move.amount) for move in standing]
    pool = max(0, allocation.pool)
    sides = {
        region: _side(allocation, region, need)
        for region, need in needs.items()
        if region in regions and not regions[region].frozen
    }
    busy = {move.target for move in standing} | {move.source for move in standing}
    for region in sorted(short):
        if region not in sides or regions[region].draining or region in busy:
            continue
        if pool:
            grants[region] = pool
            pool = 0
            continue
        donors = {
            other: _spared(side, sides[region]) for other, side in sides.items() if other not in {region, *busy, *short}
        }
        donor = max(sorted(donors), key=lambda other: donors[other], default=None)
        if donor is None or donors[donor] < (1 if sides[region].left <= 0 else smallest):
            continue
        moves.append(PlannedMove(donor, region, donors[donor]))
        busy |= {donor, region}
    return Plan(grants, tuple(moves))


def _is_frozen(region: Region | None, regions: Mapping[Region, RegionState]) -> bool:
    return region is not None and region in regions and regions[region].frozen


def _side(allocation: Allocation, region: Region, need: Need) -> _Side:
    return _Side(max(0, allocation.slice_of(region) - need.in_use), max(_IDLE, need.growth + need.denied))


def _spared(donor: _Side, taker: _Side) -> int:
    return int((donor.left * taker.rate - taker.left * donor.rate) / (donor.rate + taker.rate))
