"""Setting a limit: one read, one pure transition, one compare-and-swap; started over when somebody was faster."""

from typing import Final

from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, new_allocation, set_limit
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import EtcdUnavailable, InvalidRequest, StaleVersion
from regionquota.ports import AllocationStore

MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts on one document before a caller is told to try again."""


async def put_limit(
    allocations: AllocationStore, key: QuotaKey, kind: Kind | None, source: LimitSource, limit: VersionedLimit
) -> tuple[int, Allocation]:
    """Returns the revision and the document in force. Repeating it changes nothing, also after an ambiguous outcome.

    `kind` None keeps the kind there is; a new quota is then allocated.

    Raises `StaleVersion` for an older version, the same version with another amount, or another kind;
    `InvalidRequest` for taking an override back where there is no quota; `EtcdUnavailable` when etcd does not answer
    or the document is too busy.
    """
    for _ in range(MAX_ATTEMPTS):
        revision, known = await allocations.read(key)
        if known is None and limit.amount is None:
            raise InvalidRequest("limit", f"there is no quota {key} to take an override back from")
        if known is None:
            changed = new_allocation(kind or Kind.ALLOCATED, source, limit)
        elif kind not in (None, known.kind):
            raise StaleVersion(f"{key} is {known.kind} and cannot become {kind}: use another resource name", "kind")
        else:
            changed = set_limit(known, source, limit)
        if changed is known:
            return revision, changed
        written = await allocations.swap(key, revision, changed)
        if written is not None:
            return written, changed
    raise EtcdUnavailable(f"{key} was changed by others {MAX_ATTEMPTS} times in a row: try again")
