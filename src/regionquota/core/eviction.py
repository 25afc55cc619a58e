"""What becomes of the capacity of a region that will not come back, or comes back after all.

An operator attests that it spends no more. What it may have spent stays counted, as `retired`, until there is
evidence of what it did spend: the end of the accounting period, or its own database. Invariant A holds throughout.
"""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from regionquota.core.allocation import Allocation, Retired
from regionquota.core.periods import Epoch, epoch_of
from regionquota.core.quota import Kind, Region

CLOCK_MARGIN_S: Final = 3600.0
"""How far an evicted region's clock may have been ahead of ours: so much longer its capacity counts as spent."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An operator's word that a region is fenced: it spends no more, and gives all slices up before it serves again.

    `number` counts those of this region; its database remembers the last that it has obeyed. `at` is in seconds since
    1970. A `blind` one was declared while nobody could know what the region owned: see `core.recovery`.
    """

    number: int
    at: float
    attestation: str
    blind: bool = False


def evict(allocation: Allocation, region: Region, now: float) -> Allocation:
    """Retire what `region` owns; no move names it any more. The very same object if it has no part in this quota."""
    if region not in allocation.slices and not allocation.moves_naming(region):
        return allocation
    owned = allocation.slice_of(region)
    retired = dict(allocation.retired)
    if owned:
        known = retired.get(region, Retired(0))
        epoch = epoch_of(allocation.kind, now + CLOCK_MARGIN_S, allocation.policy.calendar)
        retired[region] = Retired(known.units + owned, max(known.epoch, epoch), known.unknown)
    return replace(
        allocation,
        slices={name: size for name, size in allocation.slices.items() if name != region},
        moves=tuple(move for move in allocation.moves if region not in (move.source, move.target)),
        retired=retired,
    )


def release_ended(allocation: Allocation, now: float) -> Allocation:
    """Return to the pool what was retired in periods that are over; the very same object if there is none.

    A region that still lives in an older period may not spend it there: see `Allocation.epoch`.
    """
    if allocation.kind is not Kind.CONSUMABLE or not allocation.retired:
        return allocation
    epoch = epoch_of(allocation.kind, now, allocation.policy.calendar)
    kept = {region: gone for region, gone in allocation.retired.items() if gone.epoch >= epoch}
    if len(kept) == len(allocation.retired):
        return allocation
    return _with_retired(allocation, kept, epoch)


def disclaim(allocation: Allocation, region: Region) -> Allocation:
    """Whatever is retired of `region`, the database that could tell of it is lost."""
    gone = allocation.retired.get(region)
    if gone is None or gone.unknown == gone.units:
        return allocation
    return replace(allocation, retired={**allocation.retired, region: replace(gone, unknown=gone.units)})


def readmit(
    allocation: Allocation, region: Region, in_use: int, epoch: Epoch, *, with_unknown: bool = False
) -> Allocation:
    """Return what was retired of `region`, given evidence of what it has `in_use` in its accounting epoch `epoch`.

    That much it owns again; the rest goes to the pool, but for what is unknown, unless somebody has given his word
    for that, too. Usage of a period that is over counts no more.
    """
    gone = allocation.retired.get(region)
    if gone is None:
        return allocation
    over = allocation.kind is Kind.CONSUMABLE and epoch > gone.epoch
    left = 0 if over or with_unknown else gone.unknown
    if left == gone.units:
        return allocation
    kept = 0 if over else min(gone.units - left, in_use)
    others = {name: one for name, one in allocation.retired.items() if name != region}
    if left:
        others[region] = replace(gone, units=left, unknown=left)
    returned = _with_retired(allocation, others, epoch)
    if not kept:
        return returned
    slices = {**returned.slices, region: returned.slice_of(region) + kept}
    return replace(returned, slices=slices, pool=returned.pool - kept)


def _with_retired(allocation: Allocation, retired: dict[Region, Retired], epoch: Epoch) -> Allocation:
    freed = allocation.retired_units - sum(one.units for one in retired.values())
    return replace(allocation, retired=retired, pool=allocation.pool + freed, epoch=max(allocation.epoch, epoch))
