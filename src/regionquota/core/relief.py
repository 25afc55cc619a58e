"""What is done at once for a region that runs short while the pool is empty: one move, from where most is idle."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Plan, PlannedMove, RegionState, foreseen

_IDLE: Final = 1e-3
"""Units per second at least, so that an idle region has some time left and not endless."""
_FEW: Final = 4.0
"""Units more or less are no difference between two rates: as many are added to what each was asked for."""


@dataclass(frozen=True, slots=True)
class _Side:
    """`left` units of headroom, asked for at `rate` per second (times the weight), up to `size` at once."""

    left: int
    rate: float
    size: int


def relieve(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    short: Collection[Region],
    regions: Mapping[Region, RegionState],
    smallest: int,
    period_s: float | None = None,
) -> Plan:
    """For each region of `short`: the pool, and if that is not enough a move from the region that can spare most.

    So much that both have the same time left until they run out, at the rate at which they are asked now; from several
    regions if one has not got what is asked for at once. Nothing below `smallest` units moves, but to a region that
    cannot serve a single request; and nothing that a donor which weighs more will need of its share of the limit in the
    `period_s` that are left of the accounting period. A move that was requested before still stands, unless its donor runs short itself.
    """
    grants: dict[Region, int] = {}
    standing = [move for move in allocation.moves if move.source not in short]
    moves = [PlannedMove(move.source, move.target, move.amount) for move in standing]
    pool = max(0, allocation.pool)
    sides = {
        region: _side(allocation.slice_of(region), need, regions[region].weight)
        for region, need in needs.items()
        if region in regions and not regions[region].frozen
    }
    weights = sum(regions[region].weight for region in sides if not regions[region].draining)

    def keeps(donor: Region, taker: Region) -> int:
        if period_s is None or regions[donor].draining or regions[donor].weight <= regions[taker].weight:
            return 0
        entitled = allocation.limit * regions[donor].weight // weights
        return max(0, min(entitled, foreseen(needs[donor], period_s)) - needs[donor].in_use)

    busy = {move.target for move in standing} | {move.source for move in standing}
    for region in sorted(short):
        if region not in sides or regions[region].draining or region in busy:
            continue
        taker = sides[region]
        if pool:
            grants[region] = pool
            taker = replace(taker, left=taker.left + pool)
            pool = 0
            if taker.left >= taker.size:
                continue
        donors = {
            other: replace(side, left=max(0, side.left - keeps(other, region)))
            for other, side in sides.items()
            if other not in {region, *busy, *short}
        }
        given = _given(taker, donors, smallest)
        moves += [PlannedMove(donor, region, amount) for donor, amount in given.items()]
        if given:
            busy |= {region, *given}
    return Plan(grants, tuple(moves))


def _side(slice_: int, need: Need, weight: int) -> _Side:
    """A rate counts by its weight, so that under scarcity who weighs more has more time left."""
    rate = need.growth + need.denied + _FEW / max(1.0, need.seconds)
    return _Side(max(0, slice_ - need.in_use), max(_IDLE, rate * weight), max(1, need.largest))


def _given(taker: _Side, donors: Mapping[Region, _Side], smallest: int) -> Mapping[Region, int]:
    spared = {name: _spared(donor, taker) for name, donor in donors.items()}
    best = max(sorted(spared), key=lambda name: spared[name], default=None)
    if best is None:
        return {}
    if taker.left + spared[best] >= taker.size:
        return {best: spared[best]} if spared[best] >= (1 if taker.left < taker.size else smallest) else {}
    return _collected(taker.size - taker.left, donors)


def _collected(missing: int, donors: Mapping[Region, _Side]) -> Mapping[Region, int]:
    """So much, from as few as have it; all that there is if that is less, as crumbs are of no use to anybody."""
    found: dict[Region, int] = {}
    spare = {name: donor.left if donor.left < donor.size else donor.left - donor.size for name, donor in donors.items()}
    for name in sorted(spare, key=lambda name: (-spare[name], name)):
        amount = min(spare[name], missing - sum(found.values()))
        if amount > 0:
            found[name] = amount
    return found


def _spared(donor: _Side, taker: _Side) -> int:
    return int((donor.left * taker.rate - taker.left * donor.rate) / (donor.rate + taker.rate))
