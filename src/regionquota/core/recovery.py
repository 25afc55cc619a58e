"""What a document must say after etcd was restored from an older snapshot: what the regions hold, and no less."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from regionquota.core.allocation import UNLIMITED, Allocation, Retired, VersionedLimit, effective_limit
from regionquota.core.eviction import CLOCK_MARGIN_S, evict
from regionquota.core.history import Standing
from regionquota.core.periods import TIMELESS, Epoch, epoch_of
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey, Region


@dataclass(frozen=True, slots=True)
class Stated:
    """What a region's database holds of one quota. `revision` is the last that it heard of in the former history."""

    key: QuotaKey
    kind: Kind
    limit: int
    unlimited: bool
    policy: QuotaPolicy
    revision: int
    epoch: Epoch
    slice: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Statement:
    """All that a region's database holds, as its server says under `standing`.

    Of one that is not trusted others may own any slice by now: it states none, and as in use what was within its own.
    """

    region: Region
    standing: Standing
    stated: Sequence[Stated] = ()
    is_trusted: bool = True


def rebuild(
    document: Allocation | None,
    revision: int,
    stated: Mapping[Region, Stated],
    evicted: Sequence[Region],
    blind: Sequence[Region],
    now: float,
    deprived: Sequence[Region] = (),
) -> Allocation | None:
    """The document of one quota, given what each region in reach holds of it. None: it was removed, nobody has any.

    `document` is what the snapshot says, as of `revision`. What nobody holds goes to the pool, or below zero if more
    is held than the limit. While there are `blind` evictions, of regions that may hold anything, it is theirs.
    Those that are `deprived`, by an eviction that the snapshot does not know or in a database that is not trusted, may
    owe what was theirs; so may the evicted. What others owe was never within the limit. Those come first of whom it is
    certain how much it was.
    """
    slices = {region: word.slice for region, word in stated.items() if word.slice}
    if document is None and not slices and all(map(_has_ended, stated.values())):
        return None
    terms = _newest_terms(document, revision, stated.values())
    retired = {} if document is None else dict(_retired(document, evicted, now))
    epoch = epoch_of(terms.kind, now + CLOCK_MARGIN_S, terms.policy.calendar)
    for region in retired.keys() & slices.keys() & set(evicted):
        retired[region] = _without(retired[region], slices[region])
    rest = terms.limit - sum(gone.units for gone in retired.values()) - sum(slices.values())
    # Counted only as far as there is room: else, once it was given back, more than the limit could be spent.
    for region in (one for one in dict.fromkeys([*deprived, *evicted]) if one in stated):
        owed, gone = _owed(stated[region]), retired.get(region, Retired(0))
        counted = max(0, min(rest, owed - gone.units))
        if counted and region in evicted:
            retired[region] = Retired(gone.units + counted, max(gone.epoch, epoch), gone.unknown)
        elif counted:
            slices[region] = stated[region].slice + counted
        rest -= counted
    if blind and rest > 0:
        known = retired.get(blind[0], Retired(0))
        unknown = known.unknown + (rest if len(blind) > 1 else 0)
        retired[blind[0]] = Retired(known.units + rest, max(known.epoch, epoch), unknown)
        rest = 0
    epochs = [word.epoch for word in stated.values()]
    return replace(terms, slices=slices, retired=retired, pool=rest, epoch=max([terms.epoch, *epochs]))


def _without(gone: Retired, held: int) -> Retired:
    """What it owned when it was evicted is in what it holds, if it was readmitted since."""
    return replace(gone, units=max(gone.unknown, gone.units - held))


def _owed(word: Stated) -> int:
    is_enforced = word.policy.is_hard and not word.unlimited
    return max(0, word.in_use - word.slice) if is_enforced else 0


def _has_ended(word: Stated) -> bool:
    """As a region remembers a quota that was removed."""
    return word.limit == 0 and not word.unlimited and not word.policy.admission_open


def _retired(document: Allocation, evicted: Sequence[Region], now: float) -> Mapping[Region, Retired]:
    for region in evicted:
        document = evict(document, region, now)
    return document.retired


def _newest_terms(document: Allocation | None, revision: int, stated: Collection[Stated]) -> Allocation:
    """Limit and policy of the snapshot, unless a region has heard of newer ones. All is in the pool.

    Whose word a newer limit was is lost: it stands under the version that was in force, so that any later replaces it.
    """
    newest = max(stated, key=lambda word: word.revision, default=None)
    if document is not None and (newest is None or newest.revision <= revision):
        return replace(document, slices={}, retired={}, moves=(), pool=document.limit)
    assert newest is not None
    plan = None if document is None else document.plan
    override = None if document is None else document.override
    amount = UNLIMITED if newest.unlimited else newest.limit
    if effective_limit(plan, override) != amount:
        if override is not None and override.amount is not None:
            override = replace(override, amount=amount)
        else:
            plan = VersionedLimit(amount, 0 if plan is None else plan.version)
    return Allocation(
        kind=newest.kind,
        plan=plan,
        override=override,
        limit=newest.limit,
        pool=newest.limit,
        epoch=TIMELESS if document is None else document.epoch,
        policy=newest.policy,
    )
