"""What a region does to its own slice when it learns of an allocation (invariant B).

Pure half of the agent's `apply`: the store calls it inside one transaction that holds the counter's lock.
"""

from dataclasses import dataclass, replace

from regionquota.core import counter as counters
from regionquota.core.allocation import Allocation
from regionquota.core.counter import Counter
from regionquota.core.periods import Epoch, epoch_of
from regionquota.core.quota import Kind, QuotaKey, Region


@dataclass(frozen=True, slots=True)
class Holding:
    """What a region's database holds of one quota. `limit` is the last one heard of, for people only.

    `revision` is that of the newest allocation applied; an older one is refused (fence 1).
    """

    key: QuotaKey
    kind: Kind
    limit: int
    revision: int
    epoch: Epoch
    counter: Counter

    @property
    def slice(self) -> int:
        return self.counter.slice


def roll_over(holding: Holding, now: float) -> Holding:
    """Open a new accounting epoch if its time has come. An epoch never falls, whatever the clock says."""
    epoch = epoch_of(holding.kind, now)
    if epoch <= holding.epoch:
        return holding
    fresh = counters.open_counter(holding.counter.slice, holding.counter.debt)
    return replace(holding, epoch=epoch, counter=fresh)


def apply(
    holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, me: Region, now: float
) -> Holding | None:
    """The holding after the region has heard of `allocation` at `revision`; None if that is older than known.

    A decrease takes what is available and leaves the rest to a later step. An increase waits until this
    region's epoch has reached the allocation's (fence 3).
    """
    if holding is None:
        epoch = epoch_of(allocation.kind, now)
        holding = Holding(key, allocation.kind, allocation.limit, revision, epoch, Counter())
    if revision < holding.revision:
        return None
    holding = roll_over(holding, now)
    held = holding.counter
    target = max(0, allocation.slice_of(me) - sum(move.amount for move in allocation.moves_from(me)))
    slice_ = held.slice
    if held.slice > target:
        slice_ = max(target, held.slice - held.available)
    elif held.slice < target and holding.epoch >= allocation.epoch:
        slice_ = target
    return replace(holding, limit=allocation.limit, revision=revision, counter=counters.resize(held, slice_))
