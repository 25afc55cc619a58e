"""The planner: who should own how much, and the few moves that lead there.

Level-triggered: it looks at what is and needs no history. The sizes do not depend on who owns what now, so a plan
that was carried out in full leaves nothing to plan. All arithmetic on sizes is in integers; what does not divide
evenly stays in the pool, where small limits live altogether.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, TypeAlias

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.filling import Wish, fill
from regionquota.core.floors_and_caps import TakesPart
from regionquota.core.quota import MAX_AMOUNT, Region
from regionquota.core.region_rules import RegionRules
from regionquota.core.ruling import ruled, spread_within, with_floors


@dataclass(frozen=True, slots=True)
class Policy:
    """`pool_share` of the limit is kept for claims while the needs fit. Nothing below `smallest_move_share` of the
    limit is moved, but for a region that denies, drains, or has to give up a lowered limit; nothing below
    `idle_move_share` to a region that has what it needs, or a third of that once nobody asks for anything.

    A need is what is in use, `growth_rounds` rounds of growth, `variance` standard deviations of a Poisson
    arrival of that size, and what was denied in a round.
    """

    pool_share: float = 0.1
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


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """`believed` is as in `Move`."""

    source: Region
    target: Region | None
    amount: int
    believed: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    grants: Mapping[Region, int]
    moves: Sequence[PlannedMove]


NOTHING: Final = Plan({}, ())
_FEW_UNITS: Final = 10


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
    smallest = max(1, int(allocation.limit * policy.smallest_move_share))
    idle = max(1, int(allocation.limit * policy.idle_move_share))
    if all(need.growth == 0 and need.denied == 0 for need in needs.values()):
        idle = _idle_at_rest(idle)
    draining = {region for region in wishes if regions[region].draining}
    if allocation.policy.regions:  # what is above a cap goes like what drains, however little it is
        draining |= {region for region, wish in wishes.items() if allocation.slice_of(region) > wish.most}
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
    rules = allocation.policy.regions
    if rules:
        regions = weighed(regions, rules)
    known = [region for region in needs if region in regions and not regions[region].frozen]
    ahead_s = None if period_s is None or weigh_the_same(regions[region] for region in known) else period_s
    wishes = {
        region: wish_of(needs[region], regions[region], allocation.limit, policy, round_s, ahead_s) for region in known
    }
    if not rules:
        return wishes
    return ruled(wishes, allocation, {name: state.weight for name, state in regions.items() if state.takes_part})


def sizes(allocation: Allocation, wishes: Mapping[Region, Wish], policy: Policy) -> Mapping[Region, int]:
    """The size that each region with a wish should have."""
    kept = sum(size for region, size in allocation.slices.items() if region not in wishes)
    capacity = allocation.limit - allocation.retired_units - kept
    pool = int(allocation.limit * policy.pool_share)
    floors = sum(wish.floor for wish in wishes.values())
    rules = allocation.policy.regions
    raised = {region: wish.raised for region, wish in wishes.items()} if rules else wishes
    wants = sum(wish.want for wish in raised.values())
    if capacity <= floors:
        # Even what is in use does not fit, as after a cut: everybody gives up what is not used.
        return {region: min(allocation.slice_of(region), wish.floor) for region, wish in wishes.items()}
    if capacity <= wants:
        return fill(with_floors(raised, capacity) if rules else wishes, capacity)
    rest = max(0, capacity - pool - wants)
    return spread_within(wishes, rest) if rules else _spread(wishes, rest)


def weigh_the_same(regions: Iterable[RegionState]) -> bool:
    return len({region.weight for region in regions if not region.draining}) <= 1


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
    need: Need, state: RegionState, limit: int, policy: Policy, round_s: float, ahead_s: float | None = None
) -> Wish:
    """`ahead_s`: some weigh more than others, and want so long ahead what they are entitled to.

    By what is wanted of the next round alone, the others would be served first all the time.
    """
    if state.draining:
        return Wish(need.in_use, need.in_use, 0, urgent=False)
    ahead = min(round_s, need.seconds)  # no further than was looked back: a step is not a slope
    growth = max(0.0, need.growth) * ahead * policy.growth_rounds
    margin = policy.variance * math.sqrt(need.in_use)
    extra = math.ceil(growth + margin + need.denied * ahead)
    wanted = need.in_use + extra if ahead_s is None else max(need.in_use + extra, foreseen(need, ahead_s))
    return Wish(need.in_use, min(wanted, max(limit, need.in_use)), state.weight, need.denied > 0)


def _spread(wishes: Mapping[Region, Wish], rest: int) -> Mapping[Region, int]:
    """Everybody has what they want; the rest is spread by weight."""
    weights = sum(wish.weight for wish in wishes.values())
    return {region: wish.want + (rest * wish.weight // weights if weights else 0) for region, wish in wishes.items()}


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
            useful_from[region] = 1 if wish.urgent else idle if owned >= wish.want else smallest
        elif size < owned:
            gives[region] = owned - size
    pool = allocation.pool
    if pool >= 0 and not draining:
        # Most quotas of most rounds: nothing is worth a move.
        takes = {region: amount for region, amount in takes.items() if amount >= useful_from[region]}
        if not takes and all(amount < idle for amount in gives.values()):
            return NOTHING
    takes, gives = _largest_first(takes), _largest_first(gives)
    if allocation.policy.regions:  # what lacks of a floor goes before what others want
        takes = dict(sorted(takes.items(), key=lambda item: allocation.slice_of(item[0]) >= wishes[item[0]].least))

    def useful(amount: int, target: Region | None, donor: Region | None = None) -> bool:
        return donor in draining or amount >= useful_from[target]

    def all_of_it(donor: Region) -> bool:
        return pool < 0 or donor in draining

    back = _match(gives, {None: -pool} if pool < 0 else {}, lambda _amount, _target, _donor: True)
    granted = _match({None: pool} if pool > 0 else {}, takes, useful)
    moved = _match(gives, takes, useful)
    rest = _match(gives, {None: sum(gives.values())}, useful)
    to_pool = {donor: back.get((donor, None), 0) + rest.get((donor, None), 0) for donor in gives}
    moves = moved | {(donor, None): amount for donor, amount in to_pool.items() if amount}
    return Plan(
        {region: amount for (_, region), amount in granted.items() if region is not None},
        tuple(
            PlannedMove(
                donor, target, amount, 0 if all_of_it(donor) else allocation.slice_of(donor) - wishes[donor].floor
            )
            for (donor, target), amount in moves.items()
            if donor is not None
        ),
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
