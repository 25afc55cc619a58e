"""Which capacity changed hands between two revisions of one allocation."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from regionquota.core.allocation import Allocation
from regionquota.core.quota import Region


@dataclass(frozen=True, slots=True)
class Transfer:
    """`units` from one owner to another. None is the pool."""

    source: Region | None
    target: Region | None
    units: int


def describe(before: Allocation, after: Allocation) -> tuple[Transfer, ...]:
    """The fewest transfers that explain the difference, the donors in order of name.

    A change of the limit is none: the pool takes it. Nor is what an eviction retired.
    """
    gains: dict[Region | None, int] = {
        region: after.slice_of(region) - before.slice_of(region)
        for region in sorted(before.slices.keys() | after.slices.keys())
    }
    gains[None] = (after.pool - after.limit) - (before.pool - before.limit)
    wanting = {owner: gain for owner, gain in gains.items() if gain > 0}
    transfers = []
    for donor, gain in gains.items():
        left = max(0, -gain)
        for receiver in list(wanting):
            units = min(left, wanting[receiver])
            if units:
                transfers.append(Transfer(donor, receiver, units))
                left -= units
                wanting[receiver] -= units
    return tuple(transfers)


@dataclass(frozen=True, slots=True)
class Movement:
    """`hand_overs`: given up by a region, to another or to the pool. `claims`: out of the pool, granted or taken."""

    hand_overs: int = 0
    hand_over_units: int = 0
    claims: int = 0
    claim_units: int = 0


def sum_up(history: Iterable[Allocation]) -> Movement:
    given = [transfer for pair in pairwise(history) for transfer in describe(*pair)]
    hand_overs = [transfer.units for transfer in given if transfer.source is not None]
    claims = [transfer.units for transfer in given if transfer.source is None]
    return Movement(len(hand_overs), sum(hand_overs), len(claims), sum(claims))
