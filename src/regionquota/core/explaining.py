"""Why each region has what it has, in words, and what the next plan would do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.forecast import together
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Plan, Policy, RegionState, plan, pool_target, sizes, wishes_of


class Situation(StrEnum):
    """What the next plan goes by for one region."""

    FROZEN = "frozen: keeps what it has, until it shows a sign of life or an operator thaws it"
    UNKNOWN = "not a region that takes part: keeps what it has"
    SILENT = "has reported nothing of this quota: keeps what it has"
    DRAINING = "draining: keeps what it uses, the rest goes to the others"
    COLLECTING = "even what is in use exceeds the limit: gives back what it does not use"
    SCARCE = "not everybody can have what they want: what is not in use is shared by weight, up to what each wants"
    CONTENT = "gets what it wants, and its part of the rest by what is expected there, and by weight"


@dataclass(frozen=True, slots=True)
class Explained:
    """`wants` is what is in use and what is expected until the next round; `size` what the next plan aims at.

    `expected` is learnt: units per second over the next hour, 0 if nothing is known of it.
    """

    region: Region
    situation: Situation
    slice: int
    weight: int
    in_use: int | None = None
    rate: float | None = None
    denied: float | None = None
    wants: int | None = None
    size: int | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`pool` is what the next plan would keep in the pool, where the needs fit; `scatters` the units that busy minutes
    ask beyond the mean, by which it is chosen, 0 if nothing is known of them.
    """

    regions: tuple[Explained, ...]
    next: Plan
    pool: int
    scatters: float


def explain(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None = None,
) -> Explanation:
    """By the planner's own functions: it says what a round would do with this demand, not what one has done."""
    wishes = wishes_of(allocation, needs, regions, policy, round_s, period_s)
    aims = sizes(allocation, wishes, policy)
    shared = _shared(
        allocation, sum(wish.floor for wish in wishes.values()), sum(w.want for w in wishes.values()), wishes
    )
    found = []
    for region in sorted({*allocation.slices, *regions}):
        state, need, wish = regions.get(region), needs.get(region), wishes.get(region)
        found.append(
            Explained(
                region=region,
                situation=_situation(state, need, shared),
                slice=allocation.slice_of(region),
                weight=0 if state is None else state.weight,
                in_use=None if need is None else need.in_use,
                rate=None if need is None else need.growth,
                denied=None if need is None else need.denied,
                wants=None if wish is None else wish.want,
                size=aims.get(region),
                expected=None if need is None else need.expected,
            )
        )
    return Explanation(
        tuple(found),
        plan(allocation, needs, regions, policy, round_s, period_s),
        pool_target(allocation.limit, wishes.values(), policy),
        together([wish.deviation for wish in wishes.values()]),
    )


def _shared(allocation: Allocation, floors: int, wants: int, wishes: Mapping[Region, object]) -> Situation:
    kept = sum(size for region, size in allocation.slices.items() if region not in wishes)
    capacity = allocation.limit - allocation.retired_units - kept
    if capacity <= floors:
        return Situation.COLLECTING
    return Situation.SCARCE if capacity <= wants else Situation.CONTENT


def _situation(state: RegionState | None, need: Need | None, shared: Situation) -> Situation:
    if state is None:
        return Situation.UNKNOWN
    if state.frozen:
        return Situation.FROZEN
    if need is None:
        return Situation.SILENT
    return Situation.DRAINING if state.draining else shared


def lasts(one: Explained) -> float | None:
    """Seconds until the region runs out, at the rate at which it is asked; None where it does not."""
    asked = (one.rate or 0.0) + (one.denied or 0.0)
    if one.in_use is None or asked <= 0:
        return None
    return max(0, one.slice - one.in_use) / asked if math.isfinite(asked) else 0.0
