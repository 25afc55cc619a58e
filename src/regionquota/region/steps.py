"""The region agent's steps. Each is idempotent: safe to repeat, to interleave, and to abandon at any await.

They await ports and nothing else; timers, queues and logging are in `agent`.
"""

import math
from dataclasses import dataclass, replace

from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    VersionedLimit,
    grant,
    hand_over,
    new_allocation,
)
from regionquota.core.commands import Pledge
from regionquota.core.floors_and_caps import TakesPart, free_for, room_below_cap
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import WentBackwards
from regionquota.ports import AllocationStore, RegionStore, Stored


@dataclass(frozen=True, slots=True)
class Step:
    """`held` None: an older revision than this database has seen, someone is ahead of us.

    `settled` False: the slice is not yet what the allocation asks for; try again when usage has fallen, or
    when this region's accounting epoch has caught up. `gave` is what the step handed over.
    """

    held: Holding | None
    settled: bool
    revision: int = 0
    allocation: Allocation | None = None
    gave: int = 0


async def synchronise(key: QuotaKey, me: Region, allocations: AllocationStore, region: RegionStore, now: float) -> Step:
    """Read what is and carry it out."""
    revision, allocation = await allocations.read(key)
    return await carry_out(Stored(key, revision, allocation), me, allocations, region, now)


async def carry_out(stored: Stored, me: Region, allocations: AllocationStore, region: RegionStore, now: float) -> Step:
    """Bring the slice to what `stored` says, then hand over what the region's database no longer holds.

    The decrease is durable in Postgres before the compare-and-swap that lets anyone else own the capacity.
    """
    allocation = stored.allocation
    if allocation is None:
        await close(stored, region, now)
        return Step(None, settled=True)
    held = await region.apply(stored.key, allocation, stored.revision, now)
    if held is None:
        return Step(None, settled=True)
    if held.parent is not None and held.unused_guarantee != held.lien:
        await region.transact([Pledge(held.key, held.parent)], now)
    owned = allocation.slice_of(me)
    if held.slice < owned and allocation.moves_from(me):
        changed = hand_over(allocation, me, held.slice, held.epoch)
        gave = owned - changed.slice_of(me)
        revision = await allocations.swap(stored.key, stored.revision, changed)
        if revision is None:
            return Step(held, settled=False)
        # The moves are done, or withdrawn as far as usage forbade them; the coordinator asks again for the rest.
        return Step(held, settled=held.slice == changed.slice_of(me), revision=revision, allocation=changed, gave=gave)
    settled = held.slice == owned and not allocation.moves_from(me)
    return Step(held, settled=settled, revision=stored.revision, allocation=allocation)


async def close(stored: Stored, region: RegionStore, now: float, *, within: str | None = None) -> None:
    """A quota that has ended admits nothing more; what is held of it is still settled. `within` as in `apply`."""
    held = await region.holding(stored.key)
    if held is not None and stored.revision > held.revision:
        ended = new_allocation(
            held.kind, LimitSource.PLAN, VersionedLimit(0, 1), replace(held.policy, admission_open=False)
        )
        await region.apply(stored.key, ended, stored.revision, now, within=within)


async def refuse_older(
    key: QuotaKey, me: Region, allocations: AllocationStore, region: RegionStore
) -> tuple[int, Allocation | None]:
    """The document as it is. Raises `WentBackwards` if it is older than what was carried out before it was read."""
    held = await region.holding(key)
    revision, allocation = await allocations.read(key)
    if held is not None and allocation is not None and held.revision > revision:
        raise WentBackwards(f"{key} is at revision {revision} in etcd, {me} has carried out revision {held.revision}")
    return revision, allocation


async def claim(
    key: QuotaKey,
    me: Region,
    allocations: AllocationStore,
    region: RegionStore,
    *,
    wanted: int,
    share: float,
    now: float,
    lacking: int = 0,
    takes_part: TakesPart = lambda _: True,
) -> tuple[int, Step]:
    """Move up to `wanted` units from the pool to this region; returns how many it got, possibly 0.

    At most `share` (0 .. 1) of the pool, rounded up, or what is `lacking` to somebody if that is more; of a quota with
    floors, of what is free of it; and up to its cap. Loses to a concurrent change rather than repeating itself. Raises
    `WentBackwards` for a document older than what was carried out before it was read: its pool is others' by now.
    `held` None with an allocation: that was overtaken here by a newer one, ask again.
    """
    revision, allocation = await refuse_older(key, me, allocations, region)
    if allocation is None:
        return 0, Step(None, settled=True)
    free = free_for(allocation, me, takes_part)
    fair = max(lacking, math.ceil(free * share))
    amount = min(wanted, free, room_below_cap(allocation, me), fair)  # a float may round a large pool up
    stored = Stored(key, revision, allocation)
    if amount > 0:
        changed = grant(allocation, {me: amount})
        written = await allocations.swap(key, revision, changed)
        if written is None:
            amount = 0
        else:
            stored = Stored(key, written, changed)
    step = await carry_out(stored, me, allocations, region, now)
    if step.held is None:
        step = replace(step, revision=stored.revision, allocation=stored.allocation)
    return amount, step
