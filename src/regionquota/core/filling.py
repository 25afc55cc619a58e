"""Sharing units out by weight, between what each must have and what each may have at most."""

from collections.abc import Mapping

import msgspec

from regionquota.core.quota import MAX_AMOUNT, Region


class Wish(msgspec.Struct, frozen=True, gc=False):
    """`floor` is in use and never asked for; `want` is at least that. Where the quota has rules for the region, it gets
    `least` before others get what they want, and `most` at the most, which `want` is not above. Where priorities
    matter, `tiers` are sizes that rise to `want`, each of which everybody has before anybody gets more. `learnt` is
    what the next hours, or the rest of the period, are expected to ask beyond it; for `deviation` see `Need`. `room`
    is what it lacks beyond `want` to admit as much as was lately asked for at once: of use as a whole only.
    """

    floor: int
    want: int
    weight: int
    urgent: bool
    least: int = 0
    most: int = MAX_AMOUNT
    tiers: tuple[int, ...] = ()
    learnt: int = 0
    deviation: float = 0.0
    room: int = 0

    @property
    def presses(self) -> bool:
        """Something is denied at high priority."""
        return bool(self.tiers) and self.tiers[0] > self.floor

    def lacks(self, owned: int, size: int) -> bool:
        """Who owns so much, and is to own `size`, lacks what it wants or expects, or a room that it is to have."""
        return owned < self.want + self.learnt or owned < self.want + self.room <= size

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


def with_rooms(wishes: Mapping[Region, Wish], rest: int) -> tuple[Mapping[Region, Wish], int]:
    """Everybody has what they want, and there is a `rest`: of the rooms as many as fit, the smallest first. The wishes
    as if these were wanted, too, and how much that is.

    A part of a room admits nobody; shared out by weight, as what is wanted is, the rest would be parts of that kind.
    """
    raised, left = dict(wishes), rest
    lacking = [(not wish.weight, wish.room - max(0, wish.least - wish.want), region) for region, wish in wishes.items()]
    for _, lacks, region in sorted(lacking):
        if 0 < lacks <= left:
            wish, left = wishes[region], left - lacks
            raised[region] = msgspec.structs.replace(
                wish, want=wish.want + wish.room, learnt=max(0, wish.learnt - wish.room)
            )
    return raised, rest - left


def with_expected(wishes: Mapping[Region, Wish], rest: int) -> tuple[Mapping[Region, Wish], int]:
    """Everybody has what they want, and there is a `rest`: up to nine tenths go where more is expected. The wishes as
    if that was wanted, too, and what is left to be spread by weight.

    By what is expected alone, a region without a past could be left with nothing.
    """
    expected = sum(wish.learnt for wish in wishes.values() if wish.weight)
    if not expected:
        return wishes, rest
    given = min(expected, rest - rest // 10)
    raised = {
        region: msgspec.structs.replace(wish, want=min(wish.want + given * wish.learnt // expected, wish.most))
        if wish.weight
        else wish
        for region, wish in wishes.items()
    }
    return raised, rest - sum(raised[region].want - wish.want for region, wish in wishes.items())
