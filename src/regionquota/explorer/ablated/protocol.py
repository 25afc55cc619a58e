"""Safeguards of the allocation protocol, of the coordinators and of time."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from msgspec.structs import force_setattr, replace

from regionquota import limits
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator import carrying_out, liveness, rounds
from regionquota.core import slice as slices
from regionquota.core.allocation import Allocation, grant, hand_over, set_limit
from regionquota.core.counter import Counter, resize
from regionquota.core.periods import TIMELESS, Epoch, epoch_of
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.rebalancing import RegionState
from regionquota.core.slice import Holding, apply, leak
from regionquota.explorer import processes
from regionquota.ports import AllocationStore, FrozenBy, RegionRecord, RegionStatus, RegionStore, Stored, StoredRegion
from regionquota.region import follower, steps
from regionquota.region.steps import Step, carry_out, claim


def _any_revision(holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, *rest: Any) -> Any:
    return apply(None if holding is None else replace(holding, revision=0), key, allocation, revision, *rest)


def _any_epoch(holding: Holding | None, key: QuotaKey, allocation: Allocation, *rest: Any) -> Holding | None:
    return apply(holding, key, replace(allocation, epoch=TIMELESS), *rest)


def _epoch_unsaid(allocation: Allocation, donor: Region, slice_: int, epoch: Epoch) -> Allocation:
    return replace(hand_over(allocation, donor, slice_, epoch), epoch=allocation.epoch)


def _moves_unheeded(holding: Holding | None, key: QuotaKey, allocation: Allocation, *rest: Any) -> Holding | None:
    """What is to be given away is not taken out of the slice; `hand_over` is told that it was."""
    return apply(holding, key, replace(allocation, moves=()), *rest)


def _whatever_is_spent(
    holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, me: Region, now: float
) -> Holding | None:
    changed = apply(holding, key, allocation, revision, me, now)
    if changed is None:
        return None
    target = max(0, allocation.slice_of(me) - sum(move.amount for move in allocation.moves_from(me)))
    if changed.slice <= target:
        return changed
    held = changed.counter
    spent = replace(held, slice=target, available=target - held.in_use + held.overdraft_issued)
    return replace(changed, counter=spent)


def _reckon_anew(
    holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, me: Region, now: float
) -> Holding | None:
    """The fair part is that of what is left by now, whatever was given up at this revision before."""
    changed = apply(holding, key, allocation, revision, me, now)
    if holding is None or changed is None:
        return changed
    owned, asked, held = allocation.slice_of(me), allocation.moves_from(me), slices.at(holding, now).counter
    fair = owned - slices._in_proportion(asked, max(0, owned - held.slice + held.available))
    if fair <= changed.slice or held.slice <= owned - sum(move.amount for move in asked):
        return changed
    return replace(changed, counter=resize(changed.counter, fair))


async def _blind_swap(
    self: MemoryCoordination, key: QuotaKey, _revision: int, allocation: Allocation, fence: Any = None
) -> int | None:
    self._end_expired()
    known, _ = await self.read(key)
    return await self.swap_all([(key, known, allocation)]) if self._holds(fence) else None


async def _give_first(
    stored: Stored, me: Region, allocations: AllocationStore, region: RegionStore, now: float
) -> Step:
    """Hands over what is asked for before the database has let go of it."""
    allocation = stored.allocation
    moves = () if allocation is None else allocation.moves_from(me)
    held = await region.holding(stored.key) if moves else None
    if allocation is None or held is None:
        return await carry_out(stored, me, allocations, region, now)
    kept = max(0, allocation.slice_of(me) - min(held.counter.available, sum(move.amount for move in moves)))
    changed = hand_over(allocation, me, kept, held.epoch)
    written = await allocations.swap(stored.key, stored.revision, changed)
    if written is None:
        return Step(held, settled=False)
    return await carry_out(Stored(stored.key, written, changed), me, allocations, region, now)


async def _raise_first(
    key: QuotaKey,
    me: Region,
    allocations: AllocationStore,
    region: RegionStore,
    *,
    wanted: int,
    share: float,
    now: float,
) -> tuple[int, Step]:
    """Raises the slice by what it is about to claim."""
    revision, allocation = await allocations.read(key)
    if allocation is not None and (amount := min(wanted, max(0, allocation.pool))):
        await region.apply(key, grant(allocation, {me: amount}), revision, now)
    return await claim(key, me, allocations, region, wanted=wanted, share=share, now=now)


def _grant_more(allocation: Allocation, amounts: Mapping[Region, int]) -> Allocation:
    """A unit more than the pool pays for."""
    first = next(iter(amounts))
    granted = grant(allocation, amounts)
    made = copy(granted)
    force_setattr(made, "slices", dict(granted.slices) | {first: granted.slice_of(first) + 1})
    return made


def _frozen_or_not(record: RegionRecord) -> RegionState:
    return RegionState(weight=record.weight, frozen=False, draining=record.status is RegionStatus.DRAINING)


def _thaw_at_once(stored: StoredRegion, _synchronised: int) -> bool:
    frozen = stored.record.frozen
    return frozen is not None and frozen.by is FrozenBy.LIVENESS


def _never_thaw(_stored: StoredRegion, _synchronised: int) -> bool:
    return False


def _any_version(allocation: Allocation, source: Any, limit: Any, *rest: Any, **more: Any) -> Allocation:
    forgotten = replace(limit, version=0)
    if source == "PLAN" and allocation.plan is not None:
        allocation = replace(allocation, plan=replace(allocation.plan, version=-1))
    elif allocation.override is not None:
        allocation = replace(allocation, override=replace(allocation.override, version=-1))
    changed = set_limit(allocation, source, forgotten, *rest, **more)
    return replace(changed, **{"plan" if source == "PLAN" else "override": limit})


def _keep_moves(allocation: Allocation, amounts: Mapping[Region, int], _moves: Any) -> Allocation:
    return grant(allocation, amounts) if amounts else allocation


def _epoch_by_the_clock(holding: Holding, now: float) -> Holding:
    epoch = epoch_of(holding.kind, now, holding.policy.calendar)
    if epoch == holding.epoch:
        return holding
    return replace(holding, epoch=epoch, counter=Counter(slice=holding.slice, available=holding.slice))


def _leak_both_ways(holding: Holding, now: float) -> Holding:
    instant = int(now * slices.MICROSECONDS)
    if holding.kind is Kind.RATE and instant < holding.leaked_at:
        return replace(holding, leaked_at=instant)
    return leak(holding, now)


def _full_burst(before: Holding, changed: Holding, now: float) -> Holding:
    """A new slice or refill begins with a full bucket."""
    used = changed.counter.used
    if changed.kind is not Kind.RATE or not used or before.slice == changed.slice:
        return changed
    return replace(changed, leaked_at=int(now * slices.MICROSECONDS) - 60 * slices.MICROSECONDS)


ABLATED: Final = (
    (
        "older-revision",
        "an older revision than the database has seen is refused (fence 1)",
        (slices, "apply", _any_revision),
    ),
    (
        "mod-revision",
        "a swap compares the document's mod_revision (fence 2)",
        (MemoryCoordination, "swap", _blind_swap),
    ),
    (
        "epoch-guard",
        "capacity freed in a new period is not spent in an old one (fence 3)",
        (slices, "apply", _any_epoch),
    ),
    (
        "epoch-of-hand-over",
        "a hand-over says in which period the capacity was given up",
        (steps, "hand_over", _epoch_unsaid),
    ),
    (
        "leader-fence",
        "a coordinator's write compares its leadership (fence 4)",
        (MemoryCoordination, "_holds", lambda _self, _fence: True),
    ),
    (
        "decrease-first",
        "the donor's database lets go before anybody else may own",
        (follower, "carry_out", _give_first),
    ),
    ("raise-last", "a slice is raised only after its revision was read", (processes, "claim", _raise_first)),
    ("decrease-what-is-free", "a slice never falls below what is spent", (slices, "apply", _whatever_is_spent)),
    (
        "given-is-given",
        "what a donor has given up is not taken back at that revision, though it has less to give by now",
        (slices, "apply", _reckon_anew),
    ),
    ("grant-from-the-pool", "a grant takes out of the pool what it gives", (steps, "grant", _grant_more)),
    ("frozen-not-named", "no round moves from, to, or grants to a frozen region", (rounds, "state_of", _frozen_or_not)),
    (
        "thaw-after-reading",
        "a region thaws only once it has re-read the allocations",
        (liveness, "_may_thaw", _thaw_at_once),
    ),
    ("thaw", "a region that has caught up thaws", (liveness, "_may_thaw", _never_thaw)),
    (
        "moves-withdrawn",
        "a round withdraws the moves that it no longer wants",
        (carrying_out, "grant_and_request", _keep_moves),
    ),
    ("newest-limit", "a limit's older version does not replace a newer one", (limits, "set_limit", _any_version)),
    ("epoch-never-falls", "a period that ended does not begin again", (slices, "roll_over", _epoch_by_the_clock)),
    ("leak-forward", "a rate never leaks twice for one second, whatever clocks say", (slices, "leak", _leak_both_ways)),
    ("no-full-burst", "a change of slice refills nothing", (slices, "_same_fraction", _full_burst)),
)
