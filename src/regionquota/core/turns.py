"""Priorities of requests, as the planner sees them: in which turn units that are not in use are given out."""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from msgspec.structs import replace

from regionquota.core.demand import LAST_TURN, Need, turn_of
from regionquota.core.filling import Wish, fill
from regionquota.core.policy import Priority, QuotaPolicy
from regionquota.core.quota import Region

_TIERS: Final = 5
_KEPT_TIERS: Final = (1, 3)
_FROM_POOL: Final = 3
"""From this tier on nobody gets what is kept for claims."""


def without_low(need: Need, quota: QuotaPolicy) -> Need:
    """What is denied at low alone leaves the others the room that is kept for them, if any is: then nothing that grows
    presses.
    """
    is_room_kept = quota.low_fill_percent < quota.normal_fill_percent
    growth, turnover = need.growth, need.turnover
    if is_room_kept and turn_of(need) == LAST_TURN:
        growth = turnover = 0.0
    return replace(need, growth=growth, turnover=turnover, denied=max(0.0, need.denied - need.denied_low))


def in_turn(wish: Wish, need: Need, usual: int, ahead: float, quota: QuotaPolicy, most: int) -> Wish:
    """`wish` in tiers of at most `most`. `usual` is what is wanted but for low priority; denials go on for `ahead`
    seconds.
    """
    reached = (
        min(usual, need.in_use + math.ceil(need.denied_high * ahead)),
        quota.slice_for(need.in_use, Priority.NORMAL),
        quota.slice_for(usual, Priority.NORMAL),
        quota.slice_for(need.in_use, Priority.LOW),
        max(wish.want, quota.slice_for(need.in_use + math.ceil(need.denied_low * ahead), Priority.LOW)),
    )
    tiers = tuple(accumulate((min(size, most) for size in reached), max))
    return replace(wish, want=tiers[-1], tiers=tiers)


def fill_in_turn(wishes: Mapping[Region, Wish], capacity: int, pool: int) -> Mapping[Region, int]:
    """What is not in use goes first to what was denied at high priority; then to what normal ones leave to these, and
    to what they want; then to what low ones leave to both, and last to what these want.
    """
    tiers = {region: _tiers(wish) for region, wish in wishes.items()}
    for tier in range(_TIERS):
        tops = {region: reached[tier] for region, reached in tiers.items()}
        if tier == _FROM_POOL:
            capacity = max(capacity - pool, sum(wish.floor for wish in wishes.values()))
        if capacity <= sum(tops.values()):
            break
        wishes = {region: replace(wish, floor=tops[region]) for region, wish in wishes.items()}
    bounded = {region: replace(wish, want=tops[region]) for region, wish in wishes.items()}
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
    """Within floor and want, which rules may have changed since. Who weighs nothing gets nothing but what is in use."""
    if not wish.weight:
        return (*[wish.floor] * (_TIERS - 1), wish.want)
    *reached, _ = wish.tiers or (wish.floor, wish.floor, wish.want, wish.want, wish.want)
    return (*(min(max(size, wish.floor), wish.want) for size in reached), wish.want)
