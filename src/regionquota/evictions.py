"""Evicting a region that will not come back, and readmitting one that did. See `core.eviction`.

Both may be interrupted and repeated: what is done already is not done again, and coordinators finish an eviction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.eviction import Eviction, evict, readmit
from regionquota.core.history import Phase
from regionquota.core.periods import Epoch
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
    still = _Still(directory, record)
    return Evicted(record, await _retire(allocations, still, clock.now(), on_document))


async def _retire(
    allocations: AllocationStore, still: "_Still", now: float, on_document: Progress
) -> Mapping[QuotaKey, int]:
    region = still.record.name
    retired = {}
    _, documents = await allocations.list()
    await still.require()
    for number, one in enumerate(documents):
        changed = await _rewrite(allocations, one, lambda known: evict(known, region, now), still)
        if changed is not None and region in changed.retired:
            retired[one.key] = changed.retired[region].units
        on_document(number + 1, len(documents))
    return retired


async def readmit_region(
    allocations: AllocationStore,
    directory: Directory,
    histories: HistoryStore,
    region: Region,
    clock: Clock,
    *,
    database_lost: bool,
    nothing_used: bool,
    on_document: Progress = lambda _done, _of: None,
) -> Readmitted:
    """Let an evicted region take part again, or go on with that where it was interrupted.

    What it stated that it has in use, out of the database it had, is evidence for what was retired. With its
    `database_lost` there is none: what was retired waits for the end of its period, unless `nothing_used` is attested.
    Raises `InvalidRequest` for a region that is not evicted, or that has stated nothing; `EtcdUnavailable`.
    """
    stored = await _known(directory, region)
    record = stored.record
    _, history = await histories.read()
    if history is not None and history.trouble:
        raise InvalidRequest("region", f"{history.trouble}: readmit {region} once it was recovered")
    _, documents = await allocations.list()
    is_evicted = record.status is RegionStatus.EVICTED
    is_retired = any(one.allocation is not None and region in one.allocation.retired for one in documents)
    if record.eviction is None or not (is_evicted or is_retired):
        raise InvalidRequest("region", f"{region} is not evicted, it is {record.status}")
    usage = await _evidence(histories, record, lost=database_lost, unused=nothing_used)
    if is_evicted:
        # Nothing may be left of the eviction: who has not come to a document yet finds that it has changed.
        await _retire(allocations, _Still(directory, record), clock.now(), lambda _done, _of: None)
        record = await _write(directory, stored, replace(record, status=RegionStatus.ACTIVE))
    return await _return(allocations, _Still(directory, record), usage, on_document)


async def _return(
    allocations: AllocationStore, still: "_Still", usage: Mapping[QuotaKey, Stated] | None, on_document: Progress
) -> Readmitted:
    region = still.record.name
    kept, freed, waiting = {}, {}, {}
    _, documents = await allocations.list()
    await still.require()
    for number, one in enumerate(documents):
        gone = None if one.allocation is None else one.allocation.retired.get(region)
        if gone is not None and usage is None:
            waiting[one.key] = gone.units
        elif gone is not None and usage is not None:
            word = usage.get(one.key)
            in_use, epoch = (0, gone.epoch) if word is None else (word.in_use, word.epoch)
            kept[one.key] = await _give_back(allocations, one, still, in_use, epoch)
            freed[one.key] = gone.units - kept[one.key]
        on_document(number + 1, len(documents))
    return Readmitted(still.record, kept, freed, waiting)


async def _give_back(allocations: AllocationStore, one: Stored, still: "_Still", in_use: int, epoch: Epoch) -> int:
    """How much of it the region keeps."""
    region = still.record.name
    kept = 0

    def change(known: Allocation) -> Allocation:
        nonlocal kept
        changed = readmit(known, region, in_use, epoch)
        kept = changed.slice_of(region) - known.slice_of(region)
        return changed

    await _rewrite(allocations, one, change, still)
    return kept


async def _evidence(
    histories: HistoryStore, record: RegionRecord, *, lost: bool, unused: bool
) -> Mapping[QuotaKey, Stated] | None:
    """What the region has in use; None: nobody knows."""
    region, eviction = record.name, record.eviction
    assert eviction is not None
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
    if record.status is not RegionStatus.EVICTED:
        raise InvalidRequest(
            "region",
            f"{region} was readmitted, and nobody knows what it had in use of what is still retired: say "
            "--nothing-used if you know that it is nothing, or evict it again",
        )
    raise InvalidRequest(
        "region",
        f"{region} has not said yet what it has in use: start a server of it, with the database it had, and repeat "
        "this in half a minute; or say --database-lost",
    )


class _Still:
    """Whether what is said of a region is still so. Two operators may be at work, and one of them slow."""

    def __init__(self, directory: Directory, record: RegionRecord) -> None:
        self._directory = directory
        self.record: Final = record

    async def require(self) -> None:
        """To be called after documents were read. Raises `EtcdUnavailable` if it was evicted or readmitted since."""
        known = (await self._directory.regions()).get(self.record.name)
        if known is None or not _agree(known.record, self.record):
            raise EtcdUnavailable(f"{self.record.name} was evicted or readmitted by somebody else meanwhile")


def _agree(one: RegionRecord, other: RegionRecord) -> bool:
    evicted = RegionStatus.EVICTED
    return one.eviction == other.eviction and (one.status is evicted) == (other.status is evicted)


async def _rewrite(
    allocations: AllocationStore, one: Stored, change: Callable[[Allocation], Allocation], still: _Still
) -> Allocation | None:
    """None: the document is gone. `still` was so after `one` was read."""
    revision, known = one.revision, one.allocation
    for _ in range(MAX_ATTEMPTS):
        if known is None:
            return None
        changed = change(known)
        if changed is known or await allocations.swap(one.key, revision, changed) is not None:
            return changed
        revision, known = await allocations.read(one.key)
        await still.require()
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
