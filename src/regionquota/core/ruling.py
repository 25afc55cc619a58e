"""What floors and caps of a quota make of the sizes that the planner aims at."""

from collections.abc import Mapping

from msgspec.structs import replace

from regionquota.core.allocation import Allocation
from regionquota.core.filling import Wish, fill
from regionquota.core.floors_and_caps import floors_in_force
from regionquota.core.quota import MAX_AMOUNT, Region


def ruled(
    wishes: Mapping[Region, Wish], allocation: Allocation, weights: Mapping[Region, int]
) -> Mapping[Region, Wish]:
    """`wishes` within floors and caps. `weights` are those of the regions that take part: to others the rules mean
    nothing.

    Of a region that has said nothing it is only certain that what it owns may be in use.
    """
    floors, bound = floors_in_force(allocation, weights.__contains__), dict(wishes)
    total = max(1, sum(weights.values()))
    for region, rules in allocation.policy.regions.items():
        floor, owned = floors.get(region, 0), allocation.slice_of(region)
        if region in wishes and region in weights:
            share = max(floor, allocation.limit * weights[region] // total)
            bound[region] = _within(wishes[region], floor, rules.cap, owned, share)
        elif owned < floor:
            bound[region] = _within(Wish(owned, owned, 0, urgent=False), floor, rules.cap, owned, floor)
    return bound


def _within(wish: Wish, floor: int, cap: int | None, owned: int, share: int) -> Wish:
    most = MAX_AMOUNT if cap is None else max(wish.floor, cap)
    if floor and wish.want == 0 and owned <= share:
        # It may own its floor and have no use for the quota: that is no reason to be given what others never asked for.
        most = min(most, share)
    least, want = max(wish.floor, floor), min(wish.want, most)
    room = wish.room if want + wish.room <= most else 0
    return replace(wish, want=want, urgent=wish.urgent or owned < floor, least=least, most=most, room=room)


def spread_within(wishes: Mapping[Region, Wish], rest: int) -> Mapping[Region, int]:
    """`rest` is left once everybody has what they want, or their floor. It is spread beside what is wanted; so who has
    a floor gets more than that only if its weight gives it more.

    What one has no room for below its cap is spread over the others; the pool keeps what nobody has.
    """
    lacking = {region: max(0, wish.least - wish.want) for region, wish in wishes.items()}
    shared = rest + sum(lacking.values())
    more = fill(
        {
            region: Wish(
                lacking[region],
                min(shared, wish.most - wish.want) if wish.weight else lacking[region],
                wish.weight,
                urgent=False,
            )
            for region, wish in wishes.items()
        },
        shared,
    )
    return {region: wish.want + more[region] for region, wish in wishes.items()}


def with_floors(wishes: Mapping[Region, Wish], capacity: int) -> Mapping[Region, Wish]:
    """A floor binds as what is in use does. If not all fit beside that, each gets the same part of its floor."""
    floors = {region: max(wish.floor, wish.least) for region, wish in wishes.items()}
    if sum(floors.values()) <= capacity:
        return {region: replace(wish, floor=floors[region]) for region, wish in wishes.items()}
    return {region: Wish(wish.floor, floors[region], floors[region], False) for region, wish in wishes.items()}
