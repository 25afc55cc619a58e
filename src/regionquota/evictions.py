"""Evicting a region that will not come back, and readmitting one that did. See `core.eviction`.

Both may be interrupted and repeated: what is done already is not done again, and coordinators finish an eviction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.eviction import Eviction, evict, readmit
from regionquota.core.history import Phase
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.recovery import Stated
from regionquota.errors import EtcdUnavailable, InvalidRequest
from regionquota.history_ports import HistoryStore
from regionquota.ports import AllocationStore, Clock, Directory, RegionRecord, RegionStatus, Stored, StoredRegion

MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts on one document before the operator is told to try again."""
MAX_ATTESTATION: Final = 1000
"""Characters."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Evicted:
    """`retired` is what is counted as spent from now on, by quota. A `blind` one says nothing yet: see `Eviction`."""

    record: RegionRecord
    retired: Mapping[QuotaKey, int]


@dataclass(frozen=True, slots=True)
class Readmitted:
    """What was retired, by quota: `kept` is the region's again, since it is in use there; `freed` went to the pool.

    `still_retired` waits for the end of its period, or for evidence.
    """

    record: RegionRecord
    kept: Mapping[QuotaKey, int]
    freed: Mapping[QuotaKey, int]
    still_retired: Mapping[QuotaKey, int]


async def evict_region(
    allocations: AllocationStore,
    directory: Directory,
    histories: HistoryStore,
    region: Region,
    attestation: str,
    clock: Clock,
    on_document: Progress = lambda _done, _of: None,
) -> Evicted:
    """Take a region out that spends no more, on somebody's word. What it owned stays counted.

    Raises `InvalidRequest` without a word, for a region that is unknown or shows a sign of life; `EtcdUnavailable`.
    """
    if not 0 < len(attestation.strip()) <= MAX_ATTESTATION:
        raise InvalidRequest(
            "attest", f"say how you know that {region} spends no more, in 1 to {MAX_ATTESTATION} characters"
        )
    stored = await _known(directory, region)
    record = stored.record
    _, history = await histories.read()
    is_blind = history is not None and history.phase is not Phase.RUNNING
    if record.status is not RegionStatus.EVICTED:
        if any(one.region == region for one in await directory.present()):
            raise InvalidRequest(
                "region", f"{region} shows a sign of life: drain it, or stop all its servers and wait for a minute"
            )
        number = 1 + (0 if record.eviction is None else record.eviction.number)
        eviction = Eviction(number, clock.now(), attestation.strip(), is_blind)
        record = await _write(
            directory, stored, replace(record, status=RegionStatus.EVICTED, frozen=None, eviction=eviction)
        )
    if is_blind:
        return Evicted(record, {})  # a recovery sees to the documents
    retired = {}
    _, documents = await allocations.list()
    for number, one in enumerate(documents):
        changed = await _rewrite(allocations, one, lambda known: evict(known, region, clock.now()))
        if changed is not None and region in changed.retired:
            retired[one.key] = changed.retired[region].units
        on_document(number + 1, len(documents))
    return Evicted(record, retired)


async def readmit_region(
    allocations: AllocationStore,
    directory: Directory,
    histories: HistoryStore,
    region: Region,
    *,
    database_lost: bool,
    nothing_used: bool,
    on_document: Progress = lambda _done, _of: None,
) -> Readmitted:
    """Let an evicted region take part again.

    What it stated that it has in use, out of the database it had, is evidence for what was retired. With its
    `database_lost` there is none: what was retired waits for the end of its period, unless `nothing_used` is attested.
    Raises `InvalidRequest` for a region that is not evicted, or that has stated nothing; `EtcdUnavailable`.
    """
    stored = await _known(directory, region)
    if stored.record.status is not RegionStatus.EVICTED or stored.record.eviction is None:
        raise InvalidRequest("region", f"{region} is not evicted, it is {stored.record.status}")
    usage = await _evidence(histories, stored.record.eviction, region, lost=database_lost, unused=nothing_used)
    kept, freed, still = {}, {}, {}
    _, documents = await allocations.list()
    for number, one in enumerate(documents):
        gone = None if one.allocation is None else one.allocation.retired.get(region)
        if gone is not None and usage is None:
            still[one.key] = gone.units
        elif gone is not None and usage is not None:
            word = usage.get(one.key)
            in_use, epoch = (0, gone.epoch) if word is None else (word.in_use, word.epoch)
            changed = await _rewrite(
                allocations,
                one,
                lambda known, used=in_use, at=epoch: readmit(known, region, used, at),  # type: ignore[misc]
            )
            kept[one.key] = 0 if changed is None else changed.slice_of(region)
            freed[one.key] = gone.units - kept[one.key]
        on_document(number + 1, len(documents))
    record = await _write(
        directory, await _known(directory, region), replace(stored.record, status=RegionStatus.ACTIVE)
    )
    return Readmitted(record, kept, freed, still)


async def _evidence(
    histories: HistoryStore, eviction: Eviction, region: Region, *, lost: bool, unused: bool
) -> Mapping[QuotaKey, Stated] | None:
    """What the region has in use; None: nobody knows."""
    if unused:
        return {}
    if lost:
        return None
    for statement in await histories.statements():
        if statement.region != region or statement.standing.evictions < eviction.number:
            continue
        if any(word.slice for word in statement.stated):
            continue  # made for a recovery: it may have spent more since
        if statement.standing.evictions_before >= eviction.number:
            raise InvalidRequest(
                "region",
                f"the database of {region} is new, it does not know what was in use: start it with the one it had, "
                "or say --database-lost",
            )
        return {word.key: word for word in statement.stated}
    raise InvalidRequest(
        "region",
        f"{region} has not said yet what it has in use: start a server of it, with the database it had, and repeat "
        "this in half a minute; or say --database-lost",
    )


async def _rewrite(
    allocations: AllocationStore, one: Stored, change: Callable[[Allocation], Allocation]
) -> Allocation | None:
    """None: the document is gone."""
    revision, known = one.revision, one.allocation
    for _ in range(MAX_ATTEMPTS):
        if known is None:
            return None
        changed = change(known)
        if changed is known or await allocations.swap(one.key, revision, changed) is not None:
            return changed
        revision, known = await allocations.read(one.key)
    raise EtcdUnavailable(f"{one.key} was changed by others {MAX_ATTEMPTS} times in a row: repeat the command")


async def _known(directory: Directory, region: Region) -> StoredRegion:
    regions = await directory.regions()
    if region not in regions:
        known = ", ".join(sorted(regions)) or "none yet"
        raise InvalidRequest("region", f'unknown region "{region}": known are {known}')
    return regions[region]


async def _write(directory: Directory, stored: StoredRegion, record: RegionRecord) -> RegionRecord:
    if record != stored.record and await directory.swap_region(record, stored.revision) is None:
        raise EtcdUnavailable(f"the record of {record.name} was changed by somebody else: repeat the command")
    return record
