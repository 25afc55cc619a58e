"""Sharing units out by weight, between what each must have and what each may have at most."""

from collections.abc import Mapping
from typing import Final

import msgspec

from regionquota.core.quota import MAX_AMOUNT, Region

_TIERS: Final = 5
_KEPT_TIERS: Final = (1, 3)
_FROM_POOL: Final = 3
"""From this tier on nobody gets what is kept for claims."""


class Wish(msgspec.Struct, frozen=True, gc=False):
    """`floor` is in use and never asked for; `want` is at least that. Where the quota has rules for the region, it gets
    `least` before others get what they want, and `most` at the most, which `want` is not above. `tiers`, if there are
    any, are sizes that rise up to `want`, each of which everybody has before anybody gets more.
    """

    floor: int
    want: int
    weight: int
    urgent: bool
    least: int = 0
    most: int = MAX_AMOUNT
    tiers: tuple[int, ...] = ()

    @property
    def presses(self) -> bool:
        """Something is denied at high priority."""
        return bool(self.tiers) and self.tiers[0] > self.floor

    @property
    def raised(self) -> "Wish":
        """As if the floor of the quota was wanted."""
        return msgspec.structs.replace(self, want=max(self.want, self.least))


def fill(wishes: Mapping[Region, Wish], capacity: int) -> Mapping[Region, int]:
    """Weighted max-min (water-filling) of `capacity`, nobody below the floor or above the want; who weighs nothing gets
    what the others do not want.

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
    last = {region: msgspec.structs.replace(wish, weight=1) for region, wish in wishes.items() if wish.weight == 0}
    return {**filled, **fill(last, rest + sum(wish.floor for wish in last.values()))} if last else filled


def fill_in_turn(wishes: Mapping[Region, Wish], capacity: int, pool: int) -> Mapping[Region, int]:
    """As `fill`, one tier after the other.

    What is not in use goes first to what was denied at high priority; then to what normal ones leave to these, and to
    what they want; then to what low ones leave to both, and last to what these want: but for the last two, `pool` units
    stay in the pool.
    """
    tiers = {region: _tiers(wish) for region, wish in wishes.items()}
    for tier in range(_TIERS):
        tops = {region: reached[tier] for region, reached in tiers.items()}
        if tier == _FROM_POOL:
            capacity = max(capacity - pool, sum(wish.floor for wish in wishes.values()))
        if capacity <= sum(tops.values()):
            break
        wishes = {region: msgspec.structs.replace(wish, floor=tops[region]) for region, wish in wishes.items()}
    bounded = {region: msgspec.structs.replace(wish, want=tops[region]) for region, wish in wishes.items()}
    return _keep_alike(bounded, capacity) if tier in _KEPT_TIERS else fill(bounded, capacity)


def _keep_alike(wishes: Mapping[Region, Wish], capacity: int) -> Mapping[Region, int]:
    """Everybody keeps the same part of what is to be kept: by sizes alone the largest would keep nothing."""
    rest = capacity - sum(wish.floor for wish in wishes.values())
    parts = {
        region: Wish(0, wish.want - wish.floor, wish.weight * (wish.want - wish.floor), urgent=False)
        for region, wish in wishes.items()
    }
    return {region: wishes[region].floor + part for region, part in fill(parts, rest).items()}


def _tiers(wish: Wish) -> tuple[int, ...]:
    """Who weighs nothing gets only what the others do not want."""
    if not wish.weight:
        return (*[wish.floor] * (_TIERS - 1), wish.want)
    if not wish.tiers:
        return (wish.floor, wish.floor, wish.want, wish.want, wish.want)
    return (*(max(wish.floor, min(size, wish.want)) for size in wish.tiers[:-1]), wish.want)
