"""A hot counter in several rows: each process of a region works on one of them, and together they are the one counter.

A shard decides for itself only what the whole would decide alike. Whatever it cannot decide so is decided upon the
whole, under the locks of all: a denial, what would be owed, the turn of a period. So nothing is denied for being
elsewhere, and nothing is granted twice.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from regionquota.core.admission import kept
from regionquota.core.commands import Denied, Granted, Invalid, Outcome
from regionquota.core.counter import Counter
from regionquota.core.policy import Priority
from regionquota.core.quota import Kind
from regionquota.core.slice import Holding

MAX_SHARDS: Final = 16
"""Rows of one counter, and processes of one region that can have one each; more processes share."""
CROWDED_PER_S: Final = 10.0
"""How often others must overtake a process on a counter before it is given a shard of its own."""
CALM_PER_S: Final = 10.0
"""Writes to all shards of a counter together: with fewer nobody is in anybody's way, and one row does."""
CALM_FOR_S: Final = 30.0
WEEK_TURN_S: Final = 60.0
"""Around Monday 00:00 UTC the whole is locked for each reserve of a quota that is spread. A request id is unique within
a week's partition; across the turn of the week only the lock of one row keeps two servers from reserving for it twice.
"""

_WEEK_S: Final = 7 * 86_400.0
_A_MONDAY: Final = 4 * 86_400.0
"""1970-01-05 00:00 UTC."""


def may_be_spread(holding: Holding) -> bool:
    """Not while something is owed or kept: whoever admits must see that, and so must whoever gives back.

    What is kept for higher priorities stands in the way only where it is in use: each shard keeps its part of it,
    rounded up, and any request that would take of that is decided upon the whole. So what fits one shard fits the
    whole; and once a part is taken there is one row, which sees how much.
    """
    counter = holding.counter
    return not (
        counter.debt
        or counter.overage
        or holding.unlimited
        or holding.guaranteed
        or holding.lien
        or holding.policy.guarantee
        or counter.available < kept(holding, Priority.LOW)
    )


def may_be_split(holding: Holding, count: int) -> bool:
    """Whether each of `count` shards may stand for itself; parts of what is kept are rounded up."""
    if not may_be_spread(holding):
        return False
    return holding.policy.low_fill_percent == 100 or all(map(may_be_spread, split(holding, count)))


def split(holding: Holding, count: int) -> Sequence[Holding]:
    """`count` shards that add up to `holding` exactly; the first ones have one unit more (5 over 3: 2, 2, 1).

    What is over for good, such as debt that was repaid, stays in the first.
    """
    if count == 1:
        return [holding]
    assert may_be_spread(holding)
    whole, shards = holding.counter, []
    for number in range(count):
        available, reserved, used = (
            _share(units, number, count) for units in (whole.available, whole.reserved, whole.used)
        )
        retired, settled = (whole.retired, whole.overdraft_issued) if number == 0 else (0, 0)
        counter = Counter(
            slice=available + reserved + used + retired,
            available=available,
            reserved=reserved,
            used=used,
            retired=retired,
            overdraft_issued=settled,
            overdraft_repaid=settled,
        )
        shards.append(replace(holding, counter=counter))
    return shards


def _share(units: int, number: int, count: int) -> int:
    return units // count + (number < units % count)


def merge(shards: Sequence[Holding]) -> Holding:
    """The one that `shards` are together. They differ in nothing but counters and in how far they have leaked.

    What has gone towards the next unit of each adds up at the speed of all; rounded so that nothing leaks early.
    """
    first, *others = shards
    if not others:
        return first
    counters = [shard.counter for shard in shards]
    whole = Counter(**{name: sum(getattr(one, name) for one in counters) for name in Counter.__struct_fields__})
    latest = max(shard.leaked_at for shard in shards)
    ahead = sum((latest - shard.leaked_at) * shard.slice for shard in shards if shard.counter.used)
    leaked_at = latest - (ahead // whole.slice if first.kind is Kind.RATE and whole.slice else 0)
    return replace(first, counter=whole, leaked_at=leaked_at)


def decides_alone(before: Holding, changed: Holding) -> bool:
    """Whether the whole would have become what one shard became: no more was taken than it had, and no period ended."""
    return (
        changed.epoch == before.epoch
        and may_be_spread(changed)
        and changed.counter.overdraft_issued == before.counter.overdraft_issued  # also what was repaid at once
    )


def says_for_all(outcome: Outcome) -> bool:
    """Whether one shard may say so; what it lacks another may have."""
    if isinstance(outcome, Granted):
        return outcome.would_deny is None and not any(line.over for line in outcome.reservation.lines)
    return not isinstance(outcome, Denied | Invalid)


def near_a_new_week(now: float) -> bool:
    return (now - _A_MONDAY + WEEK_TURN_S) % _WEEK_S < 2 * WEEK_TURN_S


def are_uneven(shards: Sequence[Holding]) -> bool:
    """Whether one is about to run short while others are not; or, of a rate, to have nothing left that could leak away:
    what the others could refill meanwhile would be lost.
    """
    available = [shard.counter.available for shard in shards]
    if 2 * min(available) * len(shards) < sum(available) and max(available) - min(available) > len(shards):
        return True
    used = [shard.counter.used for shard in shards]
    return shards[0].kind is Kind.RATE and max(used) - min(used) > max(len(shards), max(used) // 4)
