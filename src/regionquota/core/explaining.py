"""Why each region has what it has, in words, and what the next plan would do."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.filling import Wish
from regionquota.core.floors_and_caps import floors_in_force
from regionquota.core.forecast import together
from regionquota.core.quota import Region
from regionquota.core.rebalancing import (
    Plan,
    Policy,
    RegionState,
    plan,
    pool_target,
    sizes,
    smallest_moves,
    taking_part,
    totals,
    weighed,
    wishes_of,
)
from regionquota.core.region_rules import NO_RULES, RegionRules


class Situation(StrEnum):
    """What the next plan goes by for one region."""

    FROZEN = "frozen: keeps what it has, until it shows a sign of life or an operator thaws it"
    UNKNOWN = "not a region that takes part: keeps what it has"
    UNLIMITED = "unlimited: everything is admitted, whatever the slice is"
    UNUSED = "owns nothing, and its last report asks for nothing: gets some as soon as somebody asks"
    SILENT = "has said nothing of this quota in its last report: keeps what it has"
    SILENT_WITH_FLOOR = (
        "has said nothing of this quota in its last report: keeps what it has, and gets more only towards its floor"
    )
    DRAINING = "draining: keeps what it uses, the rest goes to the others"
    COLLECTING = "even what is in use exceeds the limit: gives back what it does not use"
    USED_UP = "all that there is is in use: gets what others give back, as it is given back"
    FLOORS = "what is not in use goes to the floors that the quota has in regions, before anybody gets what is wanted"
    SCARCE = (
        "not everybody can have what they want: what is not in use is shared by weight, up to what each wants; what is "
        "wanted at high priority comes first, and at low priority last"
    )
    CONTENT = "gets what it wants, and its part of the rest by what is expected there, and by weight"


class Rule(StrEnum):
    """What a quota says of a region."""

    WEIGHT = "weight"
    FLOOR = "floor"
    CAP = "cap"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A rule that decides the size, and what the size would be `without` it."""

    rule: Rule
    value: int
    without: int


@dataclass(frozen=True, slots=True)
class Explained:
    """`wants` is what is in use and what is expected until the next round; `size` what the next plan aims at. `rulings`
    are those of the quota's rules for this region that make a difference.

    `expected` is learnt: units per second over the next hours, 0 if nothing is known of it. `rate` and the denied ones
    are of the last `seconds` that the region reported. `own_weight` is the quota's for the region, if it has one;
    `weight` what counts. Of `floor` so much counts as `floor_in_force`. `largest` was asked for at once: for
    one more of it `room` is needed beyond what is wanted, 0 if none is.
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
    floor: int = 0
    cap: int | None = None
    rulings: tuple[Ruling, ...] = ()
    denied_high: float | None = None
    denied_low: float | None = None
    expected: float | None = None
    seconds: float | None = None
    own_weight: int | None = None
    floor_in_force: int = 0
    largest: int | None = None
    room: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """`pool` is what the next plan would keep in the pool, where the needs fit; `scatters` the units that busy minutes
    ask beyond the mean, by which it is chosen, 0 if nothing is known of them. `smallest` and `idle` are as in
    `smallest_moves`.
    """

    regions: tuple[Explained, ...]
    next: Plan
    pool: int
    scatters: float
    smallest: int = 1
    idle: int = 1

    @property
    def left_alone(self) -> tuple[Region, ...]:
        """Whose size differs from what they own, and whom the next plan neither gives nor asks anything."""
        touched = {*self.next.grants, *(region for move in self.next.moves for region in (move.source, move.target))}
        differing = (one.region for one in self.regions if one.size is not None and one.size != one.slice)
        return tuple(region for region in differing if region not in touched)


def explain(
    allocation: Allocation,
    needs: Mapping[Region, Need],
    regions: Mapping[Region, RegionState],
    policy: Policy,
    round_s: float,
    period_s: float | None = None,
) -> Explanation:
    """By the planner's own functions: it says what a round would do with this demand, not what one has done."""

    def rulings(region: Region) -> Iterator[Ruling]:
        for rule, value, less in _each_less(allocation, region):
            aims_without = sizes(less, wishes_of(less, needs, regions, policy, round_s, period_s), policy)
            without = aims_without.get(region, allocation.slice_of(region))
            if region in aims and without != aims[region]:
                yield Ruling(rule, value, without)

    wishes = wishes_of(allocation, needs, regions, policy, round_s, period_s)
    aims = sizes(allocation, wishes, policy)
    pool = pool_target(allocation.limit, wishes.values(), policy)
    shared = _shared(allocation, wishes, pool)
    states = weighed(regions, allocation.policy.regions)
    floors = floors_in_force(allocation, taking_part(states))
    found = []
    for region in sorted({*allocation.slices, *regions}):
        state, need, wish = states.get(region), needs.get(region), wishes.get(region)
        rules = allocation.policy.regions.get(region, NO_RULES)
        found.append(
            Explained(
                region=region,
                situation=_situation(state, need, shared, wish, allocation.slice_of(region)),
                slice=allocation.slice_of(region),
                weight=0 if state is None else state.weight,
                in_use=None if need is None else need.in_use,
                rate=None if need is None else need.growth,
                denied=None if need is None else need.denied,
                wants=None if wish is None else wish.want,
                size=aims.get(region),
                floor=rules.floor,
                cap=rules.cap,
                rulings=tuple(rulings(region)),
                denied_high=None if need is None else need.denied_high,
                denied_low=None if need is None else need.denied_low,
                expected=None if need is None else need.expected,
                seconds=None if need is None else need.seconds,
                own_weight=rules.weight,
                floor_in_force=floors.get(region, 0),
                largest=None if need is None else need.largest,
                room=0 if wish is None else wish.room,
            )
        )
    return Explanation(
        tuple(found),
        plan(allocation, needs, regions, policy, round_s, period_s),
        pool,
        together([wish.deviation for wish in wishes.values()]),
        *smallest_moves(allocation.limit, needs, policy),
    )


def _each_less(allocation: Allocation, region: Region) -> Iterator[tuple[Rule, int, Allocation]]:
    """Each rule for the region, its value, and the document without it."""
    quota = allocation.policy
    rules = quota.regions.get(region, NO_RULES)
    for rule, value, less in (
        (Rule.WEIGHT, rules.weight, RegionRules(None, rules.floor, rules.cap)),
        (Rule.FLOOR, rules.floor or None, RegionRules(rules.weight, 0, rules.cap)),
        (Rule.CAP, rules.cap, RegionRules(rules.weight, rules.floor, None)),
    ):
        if value is not None:
            policy = replace(quota, regions={**quota.regions, region: less})
            yield rule, value, msgspec.structs.replace(allocation, policy=policy)


def ruling_in_words(one: Explained) -> list[str]:
    """Which rules of the quota decide the size, and whether the floor is met."""
    if one.situation is Situation.UNLIMITED:
        return []
    bound = one.situation not in (Situation.DRAINING, Situation.FROZEN)
    unmet = bound and one.size is not None and one.size < one.floor
    said = [_in_words(ruling, one) for ruling in one.rulings if not (unmet and ruling.rule is Rule.FLOOR)]
    if unmet:
        said.append(_unmet_in_words(one))
    return said


def room_in_words(one: Explained) -> list[str]:
    """Whether the size has room for one more of its largest requests; nothing to say where that is wanted anyhow."""
    if not one.room or one.size is None or one.wants is None:
        return []
    if one.size >= one.wants + one.room:
        return [f"has room for one more request of {one.largest:,}, as was lately asked for at once"]
    lacks = f"the {one.room:,} beyond what it wants are not there, once others have what they want"
    return [f"has no room for one more request of {one.largest:,}: {lacks}"]


def _in_words(ruling: Ruling, one: Explained) -> str:
    if ruling.rule is Rule.FLOOR and one.size is not None and ruling.without > one.size:
        return (
            f"it has a floor of {ruling.value:,} and uses nothing: so it is given no more than its share by weight; "
            f"without the floor {ruling.without:,}, as others have not asked for it"
        )
    return f"its {ruling.rule} {ruling.value:,} decides: without it {ruling.without:,}"


def _unmet_in_words(one: Explained) -> str:
    reasons = []
    if one.floor_in_force < one.floor:
        reasons.append(f"only {one.floor_in_force:,} of it count, as the floors of all regions are above the limit")
    if one.size is not None and one.size < one.floor_in_force:
        reasons.append(f"there is room for {one.size:,} beside what the others use, or have as a floor")
    without = [ruling.without for ruling in one.rulings if ruling.rule is Rule.FLOOR]
    what_if = f"; without it the next size is {without[0]:,}" if without else ""
    return f"its floor {one.floor:,} is not met: {', and '.join(reasons)}{what_if}"


def _shared(allocation: Allocation, wishes: Mapping[Region, Wish], pool: int) -> Situation:
    """Of whoever takes part."""
    if allocation.unlimited:
        return Situation.UNLIMITED
    total = totals(allocation, {region: wish.raised for region, wish in wishes.items()})
    if total.capacity <= total.floors:
        return Situation.USED_UP if total.capacity == total.floors else Situation.COLLECTING
    if total.capacity <= sum(max(wish.floor, wish.least) for wish in wishes.values()):
        return Situation.FLOORS
    # Where priorities matter the pool is left to claims before all have what they want.
    kept = pool if any(wish.tiers for wish in wishes.values()) else 0
    return Situation.SCARCE if total.capacity <= total.wants + kept else Situation.CONTENT


def _situation(
    state: RegionState | None, need: Need | None, shared: Situation, wish: Wish | None, owned: int
) -> Situation:
    if state is None:
        return Situation.UNKNOWN
    if state.frozen:
        return Situation.FROZEN
    if state.draining:
        return Situation.DRAINING
    if need is not None or shared is Situation.UNLIMITED:
        return shared
    if wish is not None:
        return Situation.SILENT_WITH_FLOOR
    return Situation.SILENT if owned else Situation.UNUSED


def lasts(one: Explained) -> float | None:
    """Seconds until the region runs out, at the rate at which it is asked; None where it does not."""
    asked = (one.rate or 0.0) + (one.denied or 0.0)
    if one.in_use is None or asked <= 0 or one.situation is Situation.UNLIMITED:
        return None
    return max(0, one.slice - one.in_use) / asked if math.isfinite(asked) else 0.0
