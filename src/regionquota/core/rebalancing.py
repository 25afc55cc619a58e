"""The planner: who should own how much, and the few moves that lead there.

Level-triggered: it looks at what is and needs no history. The sizes do not depend on who owns what now, so a plan
that was carried out in full leaves nothing to plan. All arithmetic on sizes is in integers; what does not divide
evenly stays in the pool, where small limits live altogether.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.filling import Wish, fill, with_expected, with_rooms
from regionquota.core.floors_and_caps import TakesPart
from regionquota.core.forecast import HOURS_AHEAD, together
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, Region
from regionquota.core.region_rules import RegionRules
from regionquota.core.ruling import ruled, spread_within, with_floors
from regionquota.core.turns import fill_in_turn, in_turn, without_low


@dataclass(frozen=True, slots=True)
class Policy:
    """`pool_share` of the limit is kept for claims while the needs fit; once regions have learnt how much their demand
    scatters, what that calls for, from `smallest_pool_share` to `largest_pool_share`.

    Nothing below `smallest_move_share` of the limit is moved, but for a region that denies, drains, or has to give up
    a lowered limit; nothing below `idle_move_share` to a region that has what it needs and is expected to need, or
    a third of that once nobody asks for anything.

    A need is what is in use, `growth_rounds` rounds of growth, `variance` standard deviations of what comes and goes in
    that time (Poisson), and what was denied in a round. Where the needs fit, there is room beside that for as much as
    was lately asked for at once, so that a caller that was denied, helped, and comes back as it was told finds what it
    was helped to.
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

    @property
    def takes_part(self) -> bool:
        return not self.frozen and not self.draining


class PlannedMove(msgspec.Struct, frozen=True, gc=False):
    """`believed` is as in `Move`."""

    source: Region
    target: Region | None
    amount: int
    believed: int = 0


class Plan(msgspec.Struct, frozen=True, gc=False):
    grants: Mapping[Region, int]
    moves: Sequence[PlannedMove]


NOTHING: Final = Plan({}, ())
_FEW_UNITS: Final = 10
_FEW_REQUESTS: Final = 3
"""More or less of them come by chance where hardly any were seen."""
_POOL_STEP: Final = math.sqrt(2)
FORESEEN_S: Final = 3600.0 * HOURS_AHEAD


def plan(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None = None,
) -> Plan:
    """Plan one quota. Regions that are frozen, unknown, or have not reported keep what they have; one that has not
    reported is given what it lacks of its floor.

    `period_s` is left of the accounting period, None if it has no end.
    """
    wishes = wishes_of(allocation, needs, regions, policy, round_s, period_s)
    wanted = sizes(allocation, wishes, policy)
    smallest, idle = smallest_moves(allocation.limit, needs, policy)
    draining = {region for region, wish in wishes.items() if not wish.weight and regions[region].draining}
    if allocation.policy.regions:  # what is above a cap goes like what drains, however little it is
        draining |= {region for region, wish in wishes.items() if allocation.slice_of(region) > wish.most}
    return _emit(allocation, wanted, wishes, draining, smallest, idle)


def smallest_moves(limit: int, needs: Mapping[Region, Need], policy: Policy) -> tuple[int, int]:
    """Units that are worth a move to a region that lacks what it wants, and to one that does not, or to the pool."""
    idle = max(1, int(limit * policy.idle_move_share))
    return smallest_move(limit, policy), _idle_at_rest(idle) if _is_at_rest(needs) else idle


def smallest_move(limit: int, policy: Policy) -> int:
    return max(1, int(limit * policy.smallest_move_share))


def wishes_of(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None,
) -> Mapping[Region, Wish]:
    """Of those that take part: arguments are those of `plan`."""
    limit, quota = allocation.limit, allocation.policy
    rules = quota.regions
    if rules:
        regions = weighed(regions, rules)
    foreseen_s = FORESEEN_S if period_s is None else min(FORESEEN_S, period_s)
    if period_s is not None and weigh_the_same(regions[region] for region in needs if region in regions):
        period_s = None
    wishes: dict[Region, Wish] = {}
    for region, need in needs.items():
        state = regions.get(region)
        if state is not None and not state.frozen:
            wishes[region] = wish_of(need, state, limit, policy, round_s, period_s, quota, foreseen_s)
    if not rules:
        return wishes
    return ruled(wishes, allocation, {name: state.weight for name, state in regions.items() if state.takes_part})


def sizes(allocation: Allocation, wishes: Mapping[Region, Wish], policy: Policy) -> Mapping[Region, int]:
    """The size that each region with a wish should have."""
    rules = allocation.policy.regions
    raised = {region: wish.raised for region, wish in wishes.items()} if rules else wishes
    total = totals(allocation, raised)
    capacity = total.capacity
    if capacity <= total.floors:
        # Even what is in use does not fit, as after a cut: everybody gives up what is not used.
        return {region: min(allocation.slice_of(region), wish.floor) for region, wish in wishes.items()}
    if total.plain:
        pool = int(allocation.limit * policy.pool_share)
    else:
        pool = pool_target(allocation.limit, wishes.values(), policy)
    by_priority = not total.plain and any(wish.tiers for wish in wishes.values())
    if capacity - (pool if by_priority else 0) <= total.wants:
        bounded = with_floors(raised, capacity) if rules else wishes
        return fill_in_turn(bounded, capacity, pool) if by_priority else fill(bounded, capacity)
    rest = capacity - total.wants
    if total.rooms:
        wishes, rooms = with_rooms(wishes, rest - (pool if by_priority else 0))
        rest -= rooms
    rest = max(0, rest - pool)
    if not total.plain:
        wishes, rest = with_expected(wishes, rest)
    return spread_within(wishes, rest) if rules else _spread(wishes, rest, total.weights)


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


class Totals(msgspec.Struct, frozen=True, gc=False):
    """`capacity` is what those with a wish share. `plain`: nothing is learnt of any, and no priorities matter.
    `rooms`: of any it is known how much was asked for at once.
    """

    capacity: int
    floors: int
    wants: int
    weights: int
    plain: bool
    rooms: bool


def totals(allocation: Allocation, wishes: Mapping[Region, Wish]) -> Totals:
    """In one pass: most of a round is this, for quotas that need nothing."""
    capacity, floors, wants, weights, plain, rooms = allocation.pool, 0, 0, 0, True, False
    owned = allocation.slices
    for region, wish in wishes.items():
        capacity += owned.get(region, 0)
        floors += wish.floor
        wants += wish.want
        weights += wish.weight
        if wish.tiers or wish.learnt or wish.deviation:
            plain = False
        if wish.room:
            rooms = True
    return Totals(capacity, floors, wants, weights, plain, rooms)


def weigh_the_same(regions: Iterable[RegionState]) -> bool:
    """Those that take part."""
    return len({region.weight for region in regions if not region.draining and not region.frozen}) <= 1


def taking_part(regions: Mapping[Region, RegionState]) -> TakesPart:
    return lambda region: region in regions and regions[region].takes_part


def weighed(regions: Mapping[Region, RegionState], rules: Mapping[Region, RegionRules]) -> Mapping[Region, RegionState]:
    """With the weights that the quota has of its own."""
    own = {region: rule.weight for region, rule in rules.items() if rule.weight is not None and region in regions}
    return {**regions, **{region: replace(regions[region], weight=weight) for region, weight in own.items()}}


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
    quota: QuotaPolicy = DEFAULT_POLICY,
    foreseen_s: float = FORESEEN_S,
) -> Wish:
    """`ahead_s`: some weigh more than others, and want so long ahead what they are entitled to. `foreseen_s`: so long
    ahead counts what is learnt.

    By what is wanted of the next round alone, the others would be served first all the time.
    """
    if state.draining:
        return Wish(need.in_use, need.in_use, 0, urgent=False)
    want = _wanted(need, limit, policy, round_s, ahead_s)
    wish = Wish(need.in_use, want, state.weight, need.denied > need.denied_low)
    if need.expected or need.deviation:
        learnt = max(0, min(need.in_use + int(min(need.expected * foreseen_s, MAX_AMOUNT)), limit) - want)
        wish = msgspec.structs.replace(wish, learnt=learnt, deviation=need.deviation)
    if quota.low_fill_percent != 100 or need.denied_high or need.denied_low:
        usual = _wanted(without_low(need, quota), limit, policy, round_s, ahead_s)
        wish = in_turn(wish, need, usual, min(round_s, need.seconds), quota, max(limit, need.in_use))
    if need.largest > 1 and wish.want < (asked := need.in_use + need.largest) <= limit:  # single units are claimed
        wish = msgspec.structs.replace(wish, room=asked - wish.want)
    return wish


def _wanted(need: Need, limit: int, policy: Policy, round_s: float, ahead_s: float | None) -> int:
    in_use = need.in_use
    ahead = round_s if round_s < need.seconds else need.seconds  # no further than was looked back: a step is no slope
    horizon = ahead * policy.growth_rounds
    growth = need.growth * horizon if need.growth > 0 else 0.0
    scattered = need.turnover * horizon + _FEW_REQUESTS
    margin = policy.variance * math.sqrt(scattered if scattered < in_use else in_use)
    wanted = in_use + math.ceil(growth + margin + need.denied * ahead)
    if ahead_s is not None:
        wanted = max(wanted, foreseen(need, ahead_s))
    return max(limit, in_use) if wanted > limit else wanted


def _spread(wishes: Mapping[Region, Wish], rest: int, weights: int) -> Mapping[Region, int]:
    """Everybody has what they want; the rest is spread by weight, of which there is `weights` in all."""
    weights = weights or 1
    return {region: wish.want + rest * wish.weight // weights for region, wish in wishes.items()}


def _emit(
    allocation: Allocation,
    wanted: Mapping[Region, int],
    wishes: Mapping[Region, Wish],
    draining: set[Region],
    smallest: int,
    idle: int,
) -> Plan:
    """Pool grants first, then moves, largest first."""
    takers: list[_Taker] = []
    givers: list[tuple[int, Region]] = []
    slices = allocation.slices
    is_pressed = False
    for region, size in wanted.items():
        owned = slices.get(region, 0)
        if size > owned:
            wish = wishes[region]
            useful_from = 1 if wish.urgent else smallest if wish.lacks(owned, size) else idle
            if size - owned >= useful_from or draining:
                takers.append((owned - size, region, useful_from))
                is_pressed = is_pressed or wish.presses
        elif size < owned:
            givers.append((size - owned, region))
    if not takers and not draining and allocation.pool >= 0 and all(-amount < idle for amount, _ in givers):
        return NOTHING  # most quotas of most rounds
    takers.sort()
    if is_pressed:
        takers.sort(key=lambda taker: not wishes[taker[1]].presses)
    if allocation.policy.regions:  # what lacks of a floor goes before what others want
        takers.sort(key=lambda taker: slices.get(taker[1], 0) >= wishes[taker[1]].least)
    givers.sort()
    pool = allocation.pool

    def believed(giver: Region) -> int:
        """0 of whom all there is is asked for."""
        return 0 if pool < 0 or giver in draining else slices[giver] - wishes[giver].floor

    return _matched(pool, takers, {region: -amount for amount, region in givers}, believed, draining, idle)


_Taker: TypeAlias = "tuple[int, Region, int]"
"""Minus what it lacks, so that they sort largest first; the region; the least that is of use to it."""


def _matched(
    pool: int,
    takers: Sequence[_Taker],
    gives: dict[Region, int],
    believed: Callable[[Region], int],
    draining: Collection[Region],
    idle: int,
) -> Plan:
    """Takers are served from the pool, then from givers, in the order of both; what is left goes to the pool.

    A pool below zero is filled before anything else, and its moves come first. What a draining region gives is useful
    whatever it is.
    """
    filled = _fill_up(pool, gives) if pool < 0 else {}
    grants: dict[Region, int] = {}
    moves: list[PlannedMove] = []
    for lacking, taker, useful_from in takers:
        amount = -lacking
        granted = min(amount, pool)
        if granted >= useful_from:
            grants[taker] = granted
            pool -= granted
            amount -= granted
        for giver, left in gives.items():
            moved = min(amount, left)
            if moved >= useful_from or (moved and giver in draining):
                moves.append(PlannedMove(giver, taker, moved, believed(giver)))
                gives[giver] = left - moved
                amount -= moved
    returned: list[PlannedMove] = []
    for giver, left in gives.items():
        to_pool = filled.get(giver, 0) + (left if left >= idle or giver in draining else 0)
        if to_pool:
            returned.append(PlannedMove(giver, None, to_pool, believed(giver)))
    # Donors give in the order of their moves: what they have less than was thought is not to be the pool's lack.
    return Plan(grants, (*returned, *moves) if filled else (*moves, *returned))


def _fill_up(pool: int, gives: dict[Region, int]) -> Mapping[Region, int]:
    """What each has to give until the pool is at zero; taken off `gives`."""
    filled: dict[Region, int] = {}
    for giver, left in gives.items():
        filled[giver] = min(left, -pool)
        gives[giver] = left - filled[giver]
        pool += filled[giver]
    return filled


def _is_at_rest(needs: Mapping[Region, Need]) -> bool:
    for need in needs.values():  # not any(): this is asked of every quota of every round  # noqa: SIM110
        if need.growth or need.denied:
            return False
    return True


def _idle_at_rest(idle: int) -> int:
    """No noise has to be damped when nothing is asked for, so that weights can be followed more closely.

    But not to the unit: single reserves would be followed by moves of their own.
    """
    return max(idle // 3, min(idle, _FEW_UNITS))
