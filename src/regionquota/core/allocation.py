"""The allocation document of one quota, and the only ways it may change.

Invariant A holds by construction: an `Allocation` whose parts do not add up to its limit cannot be built.
Every function here takes an allocation and returns another; units are those of the quota.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_policy
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from regionquota.core.periods import TIMELESS, Epoch
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, Kind, Region
from regionquota.errors import ProtocolError, StaleVersion


class LimitSource(StrEnum):
    PLAN = "PLAN"
    OVERRIDE = "OVERRIDE"


class Unlimited(Enum):
    """Not a number, so that nobody can reckon with it."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
LimitAmount: TypeAlias = int | Unlimited


class VersionedLimit(msgspec.Struct, frozen=True, gc=False):
    """One source's word on the limit. `amount` None says that this source has none (an override taken back)."""

    amount: LimitAmount | None
    version: int


class Move(msgspec.Struct, frozen=True, gc=False):
    """A request that `source` give up to `amount` units to `target` (None: to the pool). Never a debt.

    `believed` is what the planner took to be available at the source: of less it gives less, in proportion. 0: all
    that it can. `requested_at` (seconds since 1970, the coordinator's clock) is for people and metrics; no rule reads
    it.
    """

    id: str
    source: Region
    target: Region | None
    amount: int
    requested_at: float = 0.0
    believed: int = 0


class Retired(msgspec.Struct, frozen=True, gc=False):
    """Capacity that an evicted region may have spent, in accounting epoch `epoch` or before.

    Of `unknown` of the units its database is no evidence: it is another one by now, or another region may have spent
    them as well.
    """

    units: int
    epoch: Epoch = TIMELESS
    unknown: int = 0


_NOBODY: Final[Mapping[Region, Retired]] = MappingProxyType({})


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """Who may own how much of one quota's limit.

    `pool` is what no region owns; it is negative while a lowered limit is still being collected. `retired` is what
    evicted regions may have spent: see `core.eviction`. `epoch` is the newest accounting epoch in which any
    capacity was given up: a region whose own epoch is older may not raise its slice. While the quota is unlimited,
    `limit` stays what it was, for the slices to add up to, and nobody is held to it.
    """

    kind: Kind
    plan: VersionedLimit | None
    override: VersionedLimit | None
    limit: int
    pool: int
    retired: Mapping[Region, Retired] = msgspec.field(default_factory=dict)
    slices: Mapping[Region, int] = msgspec.field(default_factory=dict)
    moves: Sequence[Move] = ()
    epoch: Epoch = TIMELESS
    policy: QuotaPolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        force_setattr(self, "slices", MappingProxyType(dict(self.slices)))
        force_setattr(self, "retired", MappingProxyType(dict(self.retired)) if self.retired else _NOBODY)
        force_setattr(self, "moves", tuple(self.moves))
        _check(self)

    @property
    def unlimited(self) -> bool:
        return effective_limit(self.plan, self.override) is UNLIMITED

    @property
    def retired_units(self) -> int:
        return sum([one.units for one in self.retired.values()])

    def slice_of(self, region: Region) -> int:
        return self.slices.get(region, 0)

    def moves_from(self, region: Region) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.source == region)

    def moves_naming(self, region: Region) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if region in (move.source, move.target))


def _check(allocation: Allocation) -> None:
    parts = allocation.pool + allocation.retired_units + sum(allocation.slices.values())
    if parts != allocation.limit:
        raise ProtocolError(f"pool + retired + slices is {parts}, the limit {allocation.limit}")
    if effective_limit(allocation.plan, allocation.override) not in (allocation.limit, UNLIMITED):
        raise ProtocolError(f"limit {allocation.limit} is neither the override's nor the plan's")
    if not 0 <= allocation.limit <= MAX_AMOUNT:
        raise ProtocolError(f"limit {allocation.limit}: out of range")
    for region, gone in allocation.retired.items():
        if not 0 <= gone.unknown <= gone.units <= MAX_AMOUNT:
            raise ProtocolError(f"retired of {region} is {gone.units}, {gone.unknown} of it unknown")
    for region, size in allocation.slices.items():
        if not 0 <= size <= MAX_AMOUNT:
            raise ProtocolError(f"slice of {region} is {size}")
    for move in allocation.moves:
        if move.amount <= 0 or move.source == move.target:
            raise ProtocolError(f"move {move.id}: {move.amount} from {move.source} to {move.target}")


def effective_limit(plan: VersionedLimit | None, override: VersionedLimit | None) -> LimitAmount:
    """The override's amount if there is one, else the plan's, else 0."""
    for word in (override, plan):
        if word is not None and word.amount is not None:
            return word.amount
    return 0


def new_allocation(
    kind: Kind,
    source: LimitSource,
    limit: VersionedLimit,
    policy: QuotaPolicy = DEFAULT_POLICY,
    home: Region | None = None,
) -> Allocation:
    """A quota that nobody owns a part of yet: all of it is in the pool, or belongs to its one `home` region."""
    plan, override = (limit, None) if source is LimitSource.PLAN else (None, limit)
    effective = effective_limit(plan, override)
    amount = 0 if effective is UNLIMITED else effective
    assert isinstance(amount, int)
    allocation = Allocation(kind=kind, plan=plan, override=override, limit=amount, pool=amount, policy=policy)
    return allocation if home is None else _at_home(allocation, home)


def set_limit(
    allocation: Allocation,
    source: LimitSource,
    limit: VersionedLimit,
    policy: QuotaPolicy | None = None,
    home: Region | None = None,
) -> Allocation:
    """Put one source's new word in force; the pool takes the difference, below zero if it must.

    A new generation of the policy begins; nothing is refilled. Raises `StaleVersion` for a version older than the
    one in force, or equal to it with another content.
    """
    known = allocation.plan if source is LimitSource.PLAN else allocation.override
    wanted = allocation.policy if policy is None else replace_policy(policy, generation=allocation.policy.generation)
    if known == limit and wanted == allocation.policy:
        return allocation
    if known is not None and limit.version <= known.version:
        raise StaleVersion(
            f"{source} version {limit.version} does not replace version {known.version}: send a higher version"
        )
    plan = limit if source is LimitSource.PLAN else allocation.plan
    override = limit if source is LimitSource.OVERRIDE else allocation.override
    effective = effective_limit(plan, override)
    amount = effective if isinstance(effective, int) else allocation.limit
    changed = replace(
        allocation,
        plan=plan,
        override=override,
        limit=amount,
        pool=allocation.pool + amount - allocation.limit,
        policy=replace_policy(wanted, generation=wanted.generation + 1),
    )
    return changed if home is None else _at_home(changed, home)


def _at_home(allocation: Allocation, home: Region) -> Allocation:
    return grant(allocation, {home: max(0, allocation.pool)})


def grant(allocation: Allocation, amounts: Mapping[Region, int]) -> Allocation:
    """Give parts of the pool to regions: a coordinator's grant, or a region's own claim.

    A region that has no slice yet joins by this. Raises `ProtocolError` if the pool does not hold that much.
    """
    return grant_and_request(allocation, amounts, allocation.moves)


def request_moves(allocation: Allocation, moves: Sequence[Move]) -> Allocation:
    """Replace all requested moves. Safe at any revision: a move that was not carried out moved nothing."""
    return replace(allocation, moves=tuple(moves))


def grant_and_request(allocation: Allocation, amounts: Mapping[Region, int], moves: Sequence[Move]) -> Allocation:
    """Both `grant` and `request_moves`, as one change."""
    total = sum(amounts.values())
    if min(amounts.values(), default=0) < 0 or total > max(allocation.pool, 0):
        raise ProtocolError(f"cannot grant {dict(amounts)} out of a pool of {allocation.pool}")
    slices = dict(allocation.slices)
    for region, amount in amounts.items():
        slices[region] = slices.get(region, 0) + amount
    return replace(allocation, slices=slices, pool=allocation.pool - total, moves=moves)


def hand_over(allocation: Allocation, donor: Region, slice_: int, epoch: Epoch) -> Allocation:
    """Give what `donor` no longer holds to the receivers of its moves, in order.

    To be called only after the donor's database has committed `slice_` (decrease before increase); `epoch` is
    the donor's accounting epoch at that commit. Raises `ProtocolError` if the donor holds more than it owns.
    """
    owned = allocation.slice_of(donor)
    if slice_ > owned:
        raise ProtocolError(f"{donor} holds {slice_} but owns {owned}")
    left = owned - slice_
    slices = dict(allocation.slices)
    pool = allocation.pool
    for move in allocation.moves_from(donor):
        if left == 0:
            break
        given = min(left, move.amount)
        left -= given
        slices[donor] -= given
        if move.target is None:
            pool += given
        else:
            slices[move.target] = slices.get(move.target, 0) + given
    remaining = tuple(move for move in allocation.moves if move.source != donor)
    return replace(allocation, slices=slices, pool=pool, moves=remaining, epoch=max(allocation.epoch, epoch))
