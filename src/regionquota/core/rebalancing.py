"""The planner: who should own how much, and the few moves that lead there.

Level-triggered: it looks at what is and needs no history. The sizes do not depend on who owns what now, so a plan
that was carried out in full leaves nothing to plan. All arithmetic on sizes is in integers; what does not divide
evenly stays in the pool, where small limits live altogether.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.forecast import HOURS_AHEAD, together
from regionquota.core.quota import MAX_AMOUNT, Region


@dataclass(frozen=True, slots=True)
class Policy:
    """`pool_share` of the limit is kept for claims while the needs fit; once regions have learnt how much their demand
    scatters, what that calls for, from `smallest_pool_share` to `largest_pool_share`.

    Nothing below `smallest_move_share` of the limit is moved, but for a region that denies, drains, or has to give up
    a lowered limit; nothing below `idle_move_share` to a region that has what it needs and is expected to need, or
    a third of that once nobody asks for anything.

    A need is what is in use, `growth_rounds` rounds of growth, `variance` standard deviations of a Poisson
    arrival of that size, and what was denied in a round.
    """

    pool_share: float = 0.1
    smallest_pool_share: float = 0.02
    largest_pool_share: float = 0.1
    smallest_move_share: float = 0.01
    idle_move_share: float = 0.1
    growth_rounds: float = 1.5
    variance: float = 2.0


@dataclass(frozen=True, slots=True)
class RegionState:
    """`weight` 0 .. 10^7. A frozen region keeps what it has; a draining one keeps what it uses."""

    weight: int = 100
    frozen: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True)
class PlannedMove:
    source: Region
    target: Region | None
    amount: int


@dataclass(frozen=True, slots=True)
class Plan:
    grants: Mapping[Region, int]
    moves: Sequence[PlannedMove]


NOTHING: Final = Plan({}, ())
_FEW_UNITS: Final = 10
_POOL_STEP: Final = math.sqrt(2)
FORESEEN_S: Final = 3600.0 * HOURS_AHEAD


class Wish(NamedTuple):
    """`floor` is in use and never asked for; `want` is at least that. `learnt` is what the next hours, or the rest of
    the period, are expected to ask beyond it; for `deviation` see `Need`.
    """

    floor: int
    want: int
    weight: int
    urgent: bool
    learnt: int = 0
    deviation: float = 0.0


def plan(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None = None,
) -> Plan:
    """Plan one quota. Regions that are frozen, unknown, or have not reported keep what they have.

    `period_s` is left of the accounting period, None if it has no end.
    """
    wishes = wishes_of(allocation, needs, regions, policy, round_s, period_s)
    wanted = sizes(allocation, wishes, policy)
    smallest = max(1, int(allocation.limit * policy.smallest_move_share))
    idle = max(1, int(allocation.limit * policy.idle_move_share))
    if all(need.growth == 0 and need.denied == 0 for need in needs.values()):
        idle = _idle_at_rest(idle)
    draining = {region for region in wishes if regions[region].draining}
    return _emit(allocation, wanted, wishes, draining, smallest, idle)


def wishes_of(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None = None,
) -> Mapping[Region, Wish]:
    """Of the regions that are planned for, see `plan`."""
    known = [region for region in needs if region in regions and not regions[region].frozen]
    ahead_s = None if period_s is None or weigh_the_same(regions[region] for region in known) else period_s
    foreseen_s = FORESEEN_S if period_s is None else min(FORESEEN_S, period_s)
    return {
        region: wish_of(needs[region], regions[region], allocation.limit, policy, round_s, ahead_s, foreseen_s)
        for region in known
    }


def sizes(allocation: Allocation, wishes: Mapping[Region, Wish], policy: Policy) -> Mapping[Region, int]:
    """The size that each region with a wish should have."""
    kept = sum(size for region, size in allocation.slices.items() if region not in wishes)
    capacity = allocation.limit - allocation.retired_units - kept
    floors = sum(wish.floor for wish in wishes.values())
    wants = sum(wish.want for wish in wishes.values())
    if capacity <= floors:
        # Even what is in use does not fit, as after a cut: everybody gives up what is not used.
        return {region: min(allocation.slice_of(region), wish.floor) for region, wish in wishes.items()}
    if capacity <= wants:
        return _fill(wishes, capacity)
    pool = pool_target(allocation.limit, wishes.values(), policy)
    return _spread(wishes, max(0, capacity - pool - wants))


def pool_target(limit: int, wishes: Iterable[Wish], policy: Policy) -> int:
    """Units to keep in the pool while the needs fit: what the regions' busy minutes ask beyond the mean.

    In steps, so that what is learnt anew moves nothing as long as it is about the same.
    """
    deviations = [wish.deviation for wish in wishes if wish.deviation]
    if not deviations or not limit:
        return int(limit * policy.pool_share)
    deviation = together(deviations)
    smallest, largest = policy.smallest_pool_share, policy.largest_pool_share
    share = min(max(deviation / limit, smallest), largest)
    if smallest < share < largest:
        share = _POOL_STEP ** math.floor(math.log(share, _POOL_STEP))
    return int(limit * min(max(share, smallest), largest))


def with_pool(policy: Policy, fixed: float | None, smallest: float, largest: float) -> Policy:
    """Shares of the limit: `fixed`, whatever is learnt, or None."""
    if fixed is not None:
        return replace(policy, pool_share=fixed, smallest_pool_share=fixed, largest_pool_share=fixed)
    unlearnt = min(max(policy.pool_share, smallest), largest)
    return replace(policy, pool_share=unlearnt, smallest_pool_share=smallest, largest_pool_share=largest)


def weigh_the_same(regions: Iterable[RegionState]) -> bool:
    return len({region.weight for region in regions if not region.draining}) <= 1


def foreseen(need: Need, seconds: float) -> int:
    """Units in use after so long, if it goes on like this."""
    return need.in_use + int(min((max(0.0, need.growth) + need.denied) * seconds, MAX_AMOUNT))


def wish_of(
    need: Need,
    state: RegionState,
    limit: int,
    policy: Policy,
    round_s: float,
    ahead_s: float | None = None,
    foreseen_s: float = FORESEEN_S,
) -> Wish:
    """`ahead_s`: some weigh more than others, and want so long ahead what they are entitled to. `foreseen_s`: so long
    ahead counts what is learnt.

    By what is wanted of the next round alone, the others would be served first all the time.
    """
    if state.draining:
        return Wish(need.in_use, need.in_use, 0, urgent=False)
    ahead = min(round_s, need.seconds)  # no further than was looked back: a step is not a slope
    growth = max(0.0, need.growth) * ahead * policy.growth_rounds
    margin = policy.variance * math.sqrt(need.in_use)
    extra = math.ceil(growth + margin + need.denied * ahead)
    wanted = need.in_use + extra if ahead_s is None else max(need.in_use + extra, foreseen(need, ahead_s))
    want = min(wanted, max(limit, need.in_use))
    if not need.expected and not need.deviation:
        return Wish(need.in_use, want, state.weight, need.denied > 0)
    learnt = max(0, min(need.in_use + int(min(need.expected * foreseen_s, MAX_AMOUNT)), limit) - want)
    return Wish(need.in_use, want, state.weight, need.denied > 0, learnt, need.deviation)


def _spread(wishes: Mapping[Region, Wish], rest: int) -> Mapping[Region, int]:
    """Everybody has what they want; of the rest, up to nine tenths go where more is expected, the others by weight.

    By what is expected alone, a region without a past could be left with nothing.
    """
    weights = expected = learnt = 0
    for wish in wishes.values():
        weights += wish.weight
        if wish.learnt and wish.weight:
            expected += wish.learnt
    if not weights:
        return {region: wish.want for region, wish in wishes.items()}
    if expected:
        learnt = min(expected, rest - rest // 10)
        rest -= learnt
    found = {region: wish.want + rest * wish.weight // weights for region, wish in wishes.items()}
    if not learnt:
        return found
    return {
        region: size + (learnt * wishes[region].learnt // expected if wishes[region].weight else 0)
        for region, size in found.items()
    }


def _fill(wishes: Mapping[Region, Wish], capacity: int) -> Mapping[Region, int]:
    """Weighted max-min (water-filling) of `capacity`, nobody below the floor or above the want.

    Exact, in as many steps as there are regions (Bitran and Hax, 1981): where the bounds are, the worse violated side
    is fixed, and what is left is shared among the others again.
    """
    filled = {region: wish.floor for region, wish in wishes.items()}
    open_ = {region: wish for region, wish in wishes.items() if wish.weight > 0}
    rest = capacity - sum(wish.floor for region, wish in wishes.items() if region not in open_)
    while open_:
        weights = sum(wish.weight for wish in open_.values())
        below = {region: wish.floor * weights - rest * wish.weight for region, wish in open_.items()}
        above = {region: rest * wish.weight - wish.want * weights for region, wish in open_.items()}
        lacking, idle = (sum(max(0, amount) for amount in side.values()) for side in (below, above))
        if lacking == idle == 0:
            return filled | {region: rest * wish.weight // weights for region, wish in open_.items()}
        for region, amount in (below if lacking >= idle else above).items():
            if amount > 0:
                wish = open_.pop(region)
                filled[region] = wish.floor if lacking >= idle else wish.want
                rest -= filled[region]
    return filled


def _emit(
    allocation: Allocation,
    wanted: Mapping[Region, int],
    wishes: Mapping[Region, Wish],
    draining: set[Region],
    smallest: int,
    idle: int,
) -> Plan:
    """Pool grants first, then moves, largest first."""
    takes, gives = {}, {}
    useful_from: dict[Region | None, int] = {None: idle}
    for region, size in wanted.items():
        owned, wish = allocation.slice_of(region), wishes[region]
        if size > owned:
            takes[region] = size - owned
            useful_from[region] = 1 if wish.urgent else idle if owned >= wish.want + wish.learnt else smallest
        elif size < owned:
            gives[region] = owned - size
    pool = allocation.pool
    if pool >= 0 and not draining:
        # Most quotas of most rounds: nothing is worth a move.
        takes = {region: amount for region, amount in takes.items() if amount >= useful_from[region]}
        if not takes and all(amount < idle for amount in gives.values()):
            return NOTHING
    takes, gives = _largest_first(takes), _largest_first(gives)

    def useful(amount: int, target: Region | None, donor: Region | None = None) -> bool:
        return donor in draining or amount >= useful_from[target]

    back = _match(gives, {None: -pool} if pool < 0 else {}, lambda _amount, _target, _donor: True)
    granted = _match({None: pool} if pool > 0 else {}, takes, useful)
    moved = _match(gives, takes, useful)
    rest = _match(gives, {None: sum(gives.values())}, useful)
    to_pool = {donor: back.get((donor, None), 0) + rest.get((donor, None), 0) for donor in gives}
    moves = moved | {(donor, None): amount for donor, amount in to_pool.items() if amount}
    return Plan(
        {region: amount for (_, region), amount in granted.items() if region is not None},
        tuple(PlannedMove(donor, target, amount) for (donor, target), amount in moves.items() if donor is not None),
    )


_Ends: TypeAlias = "tuple[Region | None, Region | None]"


def _match(
    gives: dict[Any, int], takes: dict[Any, int], useful: Callable[[int, Region | None, Region | None], bool]
) -> dict[_Ends, int]:
    """Pair givers with takers in the order given, and take what was paired off both. None stands for the pool."""
    if not takes or not gives:
        return {}
    pairs: dict[_Ends, int] = {}
    for taker, giver in product(takes, gives):
        amount = min(gives[giver], takes[taker])
        if amount and useful(amount, taker, giver):
            pairs[giver, taker] = amount
            gives[giver] -= amount
            takes[taker] -= amount
    return pairs


def _idle_at_rest(idle: int) -> int:
    """No noise has to be damped when nothing is asked for, so that weights can be followed more closely.

    But not to the unit: single reserves would be followed by moves of their own.
    """
    return max(idle // 3, min(idle, _FEW_UNITS))


def _largest_first(amounts: Mapping[Region, int]) -> dict[Region, int]:
    if len(amounts) < 2:
        return dict(amounts)
    return dict(sorted(amounts.items(), key=lambda item: (-item[1], item[0])))
