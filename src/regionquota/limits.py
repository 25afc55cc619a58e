"""Setting and ending limits: read, one pure transition, one compare-and-swap; started over when somebody was faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    VersionedLimit,
    effective_limit,
    new_allocation,
    set_limit,
)
from regionquota.core.policy import amend
from regionquota.core.quota import Kind, QuotaKey, Region, home_of
from regionquota.errors import EtcdUnavailable, InvalidRequest, StaleVersion
from regionquota.ports import AllocationStore, Directory

MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts on one document before a caller is told to try again."""
MAX_LIMITS: Final = 100
"""Limits that can be set at once: etcd takes 128 operations in a transaction."""


@dataclass(frozen=True, slots=True)
class LimitWord:
    """What is asked of one quota. `kind` None keeps the kind there is; a new quota is then allocated.

    `changes` are those of the policy, as `core.policy.amend` takes them.
    """

    key: QuotaKey
    source: LimitSource
    limit: VersionedLimit
    kind: Kind | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ruled(self) -> Sequence[Region]:
        """The regions that are given rules."""
        return [region for region, said in (self.changes.get("regions") or {}).items() if said is not None]


async def put_limit(
    allocations: AllocationStore,
    key: QuotaKey,
    kind: Kind | None,
    source: LimitSource,
    limit: VersionedLimit,
    changes: Mapping[str, Any] | None = None,
) -> tuple[int, Allocation]:
    """As `put_limits`, for one."""
    (done,) = await put_limits(allocations, [LimitWord(key, source, limit, kind, changes or {})])
    return done


async def refuse_unknown_regions(directory: Directory, words: Sequence[LimitWord]) -> None:
    """Raises `InvalidRequest` for rules of a region that nobody has heard of. Rules of any may be taken back."""
    if not any(word.ruled for word in words):
        return
    known = sorted(await directory.regions())
    for word in words:
        for region in word.ruled:
            if region not in known:
                raise InvalidRequest(
                    f"regions.{region}",
                    f"regions.{region} is no region that has ever run: known are {', '.join(known) or 'none yet'}",
                )


async def put_limits(allocations: AllocationStore, words: Sequence[LimitWord]) -> Sequence[tuple[int, Allocation]]:
    """All or none. Returns for each the revision and the document in force; no two words may name one quota.

    Repeating it changes nothing, also after an ambiguous outcome.

    Raises `StaleVersion` for an older version, the same version with another content, or another kind;
    `InvalidRequest` for what does not fit the quota, such as taking an override back where there is none;
    `EtcdUnavailable` when etcd does not answer or the documents are too busy.
    """
    for _ in range(MAX_ATTEMPTS):
        known = [await allocations.read(word.key) for word in words]
        wanted = [_amended(word, allocation) for word, (_, allocation) in zip(words, known, strict=True)]
        swaps = [
            (word.key, revision, changed)
            for word, (revision, allocation), changed in zip(words, known, wanted, strict=True)
            if changed is not allocation
        ]
        written = await allocations.swap_all(swaps) if swaps else 0
        if written is not None:
            return [
                (revision if changed is allocation else written, changed)
                for (revision, allocation), changed in zip(known, wanted, strict=True)
            ]
    names = ", ".join(str(word.key) for word in words[:3])
    raise EtcdUnavailable(f"{names} was changed by others {MAX_ATTEMPTS} times in a row: try again")


async def remove_quota(allocations: AllocationStore, key: QuotaKey) -> bool:
    """End a quota that nothing holds a part of any more. False: there is none.

    Raises `InvalidRequest` while any region owns a slice: a limit of 0 makes the regions give back what they do not
    use, and what is used comes back as it is released. Raises `EtcdUnavailable`.
    """
    for _ in range(MAX_ATTEMPTS):
        revision, allocation = await allocations.read(key)
        if allocation is None:
            return False
        owners = {region: size for region, size in allocation.slices.items() if size}
        if owners or allocation.retired_units:
            held = ", ".join(f"{region} {size}" for region, size in sorted(owners.items()))
            raise InvalidRequest(
                "resource",
                f"{key} is not drained, its slices are {held}: set the limit 0, and try again once they are 0",
            )
        if await allocations.remove(key, revision):
            return True
    raise EtcdUnavailable(f"{key} was changed by others {MAX_ATTEMPTS} times in a row: try again")


def warnings_of(allocation: Allocation) -> Sequence[str]:
    """What is allowed and may still be a mistake, of a limit that was set; one sentence each."""
    floors = sum(rules.floor for rules in allocation.policy.regions.values())
    if allocation.unlimited or floors <= allocation.limit:
        return []
    said = (
        f"the floors of the regions add up to {floors}, above the limit {allocation.limit}: each region gets the same "
        "part of its floor, until some are lowered or the limit is raised"
    )
    return [said]


def _amended(word: LimitWord, known: Allocation | None) -> Allocation:
    home = home_of(word.key.scope)
    if word.changes.get("parent") == word.key.scope:
        raise InvalidRequest("parent", "parent must be another scope than the quota's own")
    if home is not None and word.ruled:
        raise InvalidRequest("regions", f"regions: all of {word.key} belongs to {home}, so there is nothing to rule")
    if known is None:
        if word.limit.amount is None:
            raise InvalidRequest("limit", f"there is no quota {word.key} to take an override back from")
        kind = word.kind or Kind.ALLOCATED
        number = word.limit.amount if isinstance(word.limit.amount, int) else None
        return new_allocation(kind, word.source, word.limit, amend(None, kind, number, word.changes), home)
    if word.kind not in (None, known.kind):
        raise StaleVersion(
            f"{word.key} is {known.kind} and cannot become {word.kind}: use another resource name", "kind"
        )
    plan, override = (word.limit, known.override) if word.source is LimitSource.PLAN else (known.plan, word.limit)
    effective = effective_limit(plan, override)
    number = effective if isinstance(effective, int) else None
    return set_limit(known, word.source, word.limit, amend(known.policy, known.kind, number, word.changes), home)
