"""What a region does to its own slice when it learns of an allocation (invariant B), and what time does to it.

Pure half of the agent's `apply`: the store calls it inside one transaction that holds the counter's lock.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from regionquota.core import counter as counters
from regionquota.core.allocation import Allocation, Move
from regionquota.core.counter import Counter
from regionquota.core.eviction import evict
from regionquota.core.periods import Epoch, epoch_of
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import GLOBAL_SCOPE, Kind, QuotaKey, Region, home_of
from regionquota.errors import WentBackwards

MICROSECONDS = 1_000_000


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What a region's database holds of one quota. `limit` is the last one heard of, for people only.

    `revision` is that of the newest allocation applied; an older one is refused (fence 1). `leaked_at` (microseconds
    since 1970, rate only) is up to when usage has leaked away. `guaranteed` units of what is available are kept for
    sub-scopes that have not used their guarantee; `lien` is the part of the parent's `guaranteed` that is ours.
    """

    key: QuotaKey
    kind: Kind
    limit: int
    revision: int
    epoch: Epoch
    counter: Counter
    policy: QuotaPolicy = DEFAULT_POLICY
    unlimited: bool = False
    leaked_at: int = 0
    guaranteed: int = 0
    lien: int = 0

    @property
    def slice(self) -> int:
        return self.counter.slice

    @property
    def parent(self) -> QuotaKey | None:
        """The quota that is charged with this one, where it is defined."""
        scope = self.key.scope
        if scope == GLOBAL_SCOPE or home_of(scope) is not None:
            return None
        return QuotaKey(self.key.tenant, self.key.resource, self.policy.parent or GLOBAL_SCOPE)

    @property
    def lenient(self) -> bool:
        """What is charged beyond the slice is overage here, not owed."""
        return self.unlimited or not self.policy.is_hard

    @property
    def unused_guarantee(self) -> int:
        """The region's part of the guarantee, as far as it is not in use. Parts are rounded down: no sum is larger."""
        policy = self.policy
        if not policy.guarantee or self.limit <= 0:
            return 0
        part = policy.guarantee * min(self.slice, self.limit) // self.limit
        return max(0, part - self.counter.in_use)


def roll_over(holding: Holding, now: float) -> Holding:
    """Open a new accounting epoch if its time has come; what is owed goes with it.

    An epoch never falls, whatever the clock says.
    """
    epoch = epoch_of(holding.kind, now, holding.policy.calendar)
    if epoch <= holding.epoch:
        return holding
    fresh = Counter(slice=holding.slice, available=holding.slice)
    _, fresh = counters.carry_debt(holding.counter, fresh)
    return replace(holding, epoch=epoch, counter=fresh)


def leak(holding: Holding, now: float) -> Holding:
    """Let a rate quota's usage leak away up to `now`, in proportion to the slice.

    Rounded so that at no instant more has leaked than the refill allows: the time that one more unit needs goes on
    counting. Nothing leaks backwards when a clock does.
    """
    refill = holding.policy.refill
    if holding.kind is not Kind.RATE or refill is None:
        return holding
    instant = int(now * MICROSECONDS)
    if instant <= holding.leaked_at:
        return holding
    used, speed = holding.counter.used, holding.slice * refill.amount
    if not used or not speed:
        return replace(holding, leaked_at=instant)
    unit = refill.per * refill.interval_s * MICROSECONDS
    leaked = (instant - holding.leaked_at) * speed // unit
    if leaked >= used:
        return replace(holding, leaked_at=instant, counter=counters.refund(holding.counter, used))
    if not leaked:
        return holding
    reached = holding.leaked_at - (-leaked * unit // speed)
    return replace(holding, leaked_at=reached, counter=counters.refund(holding.counter, leaked))


def at(holding: Holding, now: float) -> Holding:
    """The holding as time alone has made it by `now`."""
    if holding.kind is Kind.ALLOCATED:
        return holding
    return leak(roll_over(holding, now), now)


def apply(
    holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, me: Region, now: float
) -> Holding | None:
    """The holding after the region has heard of `allocation` at `revision`; None if that is older than known.

    A decrease takes what is available, or a fair part of it, and leaves the rest to a later step; what was given up
    once is not taken back, for it may be on its way. An increase waits until this region's epoch has reached the
    allocation's (fence 3).
    """
    if holding is None:
        epoch = epoch_of(allocation.kind, now, allocation.policy.calendar)
        instant = int(now * MICROSECONDS) if allocation.kind is Kind.RATE else 0
        holding = Holding(key, allocation.kind, allocation.limit, revision, epoch, Counter(), leaked_at=instant)
    if revision < holding.revision:
        return None
    before = holding = at(holding, now)  # under the rules that were in force until now
    holding = replace(
        holding, limit=allocation.limit, revision=revision, policy=allocation.policy, unlimited=allocation.unlimited
    )
    held = holding.counter
    owned, asked = allocation.slice_of(me), allocation.moves_from(me)
    target = max(0, owned - sum(move.amount for move in asked))
    slice_ = held.slice
    if held.slice > target:
        fair = owned - _in_proportion(asked, max(0, owned - held.slice + held.available))
        slice_ = min(held.slice, max(target, fair, held.slice - held.available))
    elif held.slice < target and holding.epoch >= allocation.epoch:
        slice_ = target
    return _same_fraction(before, replace(holding, counter=counters.resize(held, slice_)), now)


def _in_proportion(moves: Iterable[Move], spare: int) -> int:
    """Units to give up by who had `spare` before the first of them was given up."""
    return sum(-(-spare * move.amount // move.believed) if spare < move.believed else move.amount for move in moves)


def refuse_contradiction(holding: Holding | None, allocation: Allocation, revision: int, me: Region) -> None:
    """Raise `WentBackwards` if a region holds more than a newer document says that it owns (invariant B).

    A region raises its slice by what it reads, and lowers it before it hands over: so that document does not follow
    upon those it has read. etcd was restored from an older snapshot, or somebody has meddled with it.
    """
    if holding is None or revision <= holding.revision or holding.slice <= allocation.slice_of(me):
        return
    raise WentBackwards(
        f"{me} holds {holding.slice} of {holding.key}, applied at revision {holding.revision}, "
        f"but at revision {revision} it owns {allocation.slice_of(me)}"
    )


def apply_strictly(
    holding: Holding | None, key: QuotaKey, allocation: Allocation, revision: int, me: Region, now: float
) -> Holding | None:
    """As `apply`, in a database that may have lost commits: it may hold what another region owns by now.

    What it does not own is taken away even if it is in use, and owed; so invariant B holds whatever was lost.
    """
    applied = apply(holding, key, allocation, revision, me, now)
    owned = allocation.slice_of(me)
    if applied is None or applied.slice <= owned:
        return applied
    return replace(applied, counter=counters.dispossess(applied.counter, owned, lenient=applied.lenient))


def hear(
    holding: Holding | None,
    key: QuotaKey,
    allocation: Allocation,
    revision: int,
    me: Region,
    now: float,
    *,
    is_trusted: bool,
    is_evicted: bool,
) -> Holding | None:
    """As `apply`, or strictly where the database is not trusted, or the region evicted: then it owns nothing at all."""
    if is_evicted:
        return apply_strictly(holding, key, evict(allocation, me, now), revision, me, now)
    turn_to = apply if is_trusted else apply_strictly
    return turn_to(holding, key, allocation, revision, me, now)


def _same_fraction(before: Holding, changed: Holding, now: float) -> Holding:
    """What has gone towards the next unit goes on at the new speed: a change of slice or refill refills nothing.

    The time since `leaked_at` was less than a unit's at the old speed; at a higher one it would be worth many.
    """
    instant = int(now * MICROSECONDS)
    if changed.kind is not Kind.RATE or instant <= before.leaked_at:
        return changed
    old, new = before.policy.refill, changed.policy.refill
    if old is None or new is None or not before.slice * changed.slice:
        return replace(changed, leaked_at=instant)
    done = (instant - before.leaked_at) * before.slice * old.amount * new.per * new.interval_s
    needed = changed.slice * new.amount * old.per * old.interval_s
    return replace(changed, leaked_at=max(0, instant - done // needed))
