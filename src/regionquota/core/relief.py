"""What is done at once for a region that runs short: it gets the pool, or a move from where most is idle, or both."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regionquota.core.allocation import Allocation, grant, request_moves
from regionquota.core.demand import LAST_TURN, Need, turn_of
from regionquota.core.floors_and_caps import floors_in_force, room_below_cap, within_reach
from regionquota.core.policy import Priority
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Plan, PlannedMove, RegionState, foreseen, taking_part, weighed

_IDLE: Final = 1e-3
"""Units per second at least, so that an idle region has some time left and not endless."""
_FEW: Final = 4.0
"""Requests more or less are no difference between two rates: as many are added to what each was asked for."""


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
    """For each region of `short`: the pool, and if that is less than was denied or than is asked for at once, a move
    from the region that can spare most.

    So much that both have the same time left until they run out, at the rate at which they are asked now; from several
    regions if one has not got what is asked for at once, and if all together have not got that, crumbs and half of what
    the richest has more. Who denies at high priority is served first. Who does so at low alone is served last, and with
    what others neither keep nor need: what is denied so is no rate. Nothing below `smallest` units moves, but to a
    region that cannot serve a single request; and nothing that a donor which weighs more will need of its share of the
    limit in the `period_s` that are left of the accounting period. Nobody gets what others lack of their floors, nor is
    brought above its cap, and no donor is asked for its floor. A move that was requested before still stands, unless
    its donor runs short itself (not at low priority alone: that one may give, too), or it names a region that is frozen
    by now. While a lowered limit is being collected nobody is relieved: what is given back would be in use again before
    it is collected.
    """
    thawed = [
        move for move in allocation.moves if not any(_is_frozen(one, regions) for one in (move.source, move.target))
    ]
    if allocation.pool < 0:
        return Plan({}, tuple(PlannedMove(move.source, move.target, move.amount) for move in thawed))
    grants: dict[Region, int] = {}
    turns = {region: turn_of(needs.get(region, Need())) for region in short}
    pressed = {region for region, turn in turns.items() if turn < LAST_TURN}
    standing = [move for move in thawed if move.source not in pressed]
    moves = [PlannedMove(move.source, move.target, move.amount) for move in standing]
    regions = weighed(regions, allocation.policy.regions)
    takes_part = taking_part(regions)
    floors = floors_in_force(allocation, takes_part)
    known = request_moves(allocation, standing)
    sides = {
        region: _side(allocation.slice_of(region), need, regions[region].weight)
        for region, need in needs.items()
        if region in regions and not regions[region].frozen
    }
    entitled = _entitled(allocation.limit, {region: regions[region] for region in sides})
    busy = {move.target for move in standing} | {move.source for move in standing}
    for region in sorted(short, key=lambda name: (turns[name], name)):
        if region not in sides or regions[region].draining or region in busy:
            continue
        seen = _seen_at(turns[region], sides, allocation, needs)
        taker = replace(seen[region], size=max(1, sides[region].size))
        free = within_reach(known, region, takes_part)
        if free:
            grants[region], known = free, grant(known, {region: free})
            taker = replace(taker, left=taker.left + grants[region])
            if taker.left >= taker.size and grants[region] >= _denied_units(needs[region]):
                continue
        donors = {}
        for other in sides.keys() - {region, *busy, *(short if turns[region] == LAST_TURN else pressed)}:
            donors[other] = seen[other]
            if period_s is not None and regions[other].weight > regions[region].weight:
                donors[other] = _beyond(entitled[other], seen[other], needs[other], period_s)
            donors[other] = _above(floors.get(other, 0), donors[other], allocation.slice_of(other))
        given = _at_most(room_below_cap(known, region), _given(taker, donors, smallest))
        moves += [PlannedMove(donor, region, amount, donors[donor].left) for donor, amount in given.items()]
        if given:
            busy |= {region, *given}
    return Plan(grants, tuple(moves))


def _entitled(limit: int, regions: Mapping[Region, RegionState]) -> Mapping[Region, int]:
    weights = {region: 0 if state.draining else state.weight for region, state in regions.items()}
    total = max(1, sum(weights.values()))
    return {region: limit * weight // total for region, weight in weights.items()}


def _beyond(entitled: int, donor: _Side, need: Need, period_s: float) -> _Side:
    """Without what the donor will need of what it is entitled to."""
    kept = max(0, min(entitled, foreseen(need, period_s)) - need.in_use)
    return replace(donor, left=max(0, donor.left - kept))


def _above(floor: int, donor: _Side, slice_: int) -> _Side:
    return replace(donor, left=max(0, min(donor.left, slice_ - floor))) if floor else donor


def _at_most(room: int, given: Mapping[Region, int]) -> Mapping[Region, int]:
    fitting: dict[Region, int] = {}
    for donor, amount in given.items():
        fits = min(amount, room - sum(fitting.values()))
        if fits > 0:
            fitting[donor] = fits
    return fitting


def _seen_at(
    turn: int, sides: Mapping[Region, _Side], allocation: Allocation, needs: Mapping[Region, Need]
) -> Mapping[Region, _Side]:
    """Who denies at low priority alone gets nothing that is kept for higher ones, here or where it comes from."""
    if turn != LAST_TURN:
        return sides

    def left(region: Region) -> int:
        return max(0, allocation.slice_of(region) - allocation.policy.slice_for(needs[region].in_use, Priority.LOW))

    return {region: replace(side, left=min(side.left, left(region))) for region, side in sides.items()}


def _side(slice_: int, need: Need, weight: int) -> _Side:
    """A rate counts by its weight, so that under scarcity who weighs more has more time left."""
    rate = need.growth + need.denied - need.denied_low + _FEW * max(1, need.largest) / max(1.0, need.seconds)
    return _Side(max(0, slice_ - need.in_use), max(_IDLE, rate * weight), need.largest)


def _given(taker: _Side, donors: Mapping[Region, _Side], smallest: int) -> Mapping[Region, int]:
    spared = {name: _spared(donor, taker) for name, donor in donors.items()}
    best = max(sorted(spared), key=lambda name: spared[name], default=None)
    if best is None:
        return {}
    if taker.left + spared[best] >= taker.size:
        return {best: spared[best]} if spared[best] >= (1 if taker.left < taker.size else smallest) else {}
    missing = taker.size - taker.left
    spare = {name: donor.left if donor.left < donor.size else donor.left - donor.size for name, donor in donors.items()}
    return _collected(missing, spare) if sum(spare.values()) >= missing else _in_vain(taker, donors, smallest)


def _in_vain(taker: _Side, donors: Mapping[Region, _Side], smallest: int) -> Mapping[Region, int]:
    """Its largest request is denied whatever it gets. It is given crumbs, which serve nobody where they are, and half
    of what the richest has more, for its smaller requests.
    """
    given = {name: donor.left for name, donor in donors.items() if 0 < donor.left < donor.size}
    richest = max(sorted(donors.keys() - given.keys()), key=lambda name: donors[name].left, default=None)
    if richest is not None:
        left = taker.left + sum(given.values())
        half = min((donors[richest].left - left) // 2, donors[richest].left - donors[richest].size)
        if half >= (smallest if left else 1):
            given[richest] = half
    return given


def _collected(missing: int, spare: Mapping[Region, int]) -> Mapping[Region, int]:
    """So much, from as few as have it."""
    found: dict[Region, int] = {}
    for name in sorted(spare, key=lambda name: (-spare[name], name)):
        amount = min(spare[name], missing - sum(found.values()))
        if amount > 0:
            found[name] = amount
    return found


def _denied_units(need: Need) -> int:
    return round(need.denied * need.seconds) if need.denied else 0


def _is_frozen(region: Region | None, regions: Mapping[Region, RegionState]) -> bool:
    return region is not None and region in regions and regions[region].frozen


def _spared(donor: _Side, taker: _Side) -> int:
    spared = int((donor.left * taker.rate - taker.left * donor.rate) / (donor.rate + taker.rate))
    return min(spared, donor.left)  # a float may round a large slice up
