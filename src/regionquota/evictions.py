"""Evicting a region that will not come back, and readmitting one that did. See `core.eviction`.

Both may be interrupted and repeated: what is done already is not done again, and coordinators finish an eviction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from regionquota.core.allocation import Allocation
from regionquota.core.eviction import Eviction, disclaim, evict, readmit
from regionquota.core.history import Phase
from regionquota.core.periods import epoch_of
from regionquota.core.quota import QuotaKey, Region, is_identifier
from regionquota.core.recovery import Stated
from regionquota.errors import EtcdUnavailable, InvalidRequest
from regionquota.history_ports import HistoryStore
from regionquota.ports import AllocationStore, Clock, Directory, RegionRecord, RegionStatus, Stored, StoredRegion
from regionquota.regions import of_name

MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts on one document before the operator is told to try again."""
MAX_ATTESTATION: Final = 1000
"""Characters."""

Progress = Callable[[int, int], None]
_Change: TypeAlias = Callable[[Allocation], Allocation]


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
    is_blind = await _nothing_moves(histories)
    record = await _record(directory, region, attestation.strip(), clock.now(), is_blind=is_blind)
    if not is_blind and await _nothing_moves(histories):
        is_blind = True  # since a moment ago: what etcd says of it may not have been so even then
        record = await _record(directory, region, attestation.strip(), clock.now(), is_blind=True)
    if is_blind:
        return Evicted(record, {})  # a recovery sees to the documents
    still = _Still(directory, record)
    retire = _retiring(region, clock.now())
    return Evicted(record, await _retire(allocations, still, retire, on_document))


async def _record(
    directory: Directory, region: Region, attestation: str, now: float, *, is_blind: bool
) -> RegionRecord:
    """The eviction in the region's record, which is made where etcd may have forgotten it."""
    stored = await _known(directory, region, or_forgotten=is_blind)
    record, known = stored.record, stored.record.eviction
    if record.is_evicted and known is not None:
        # Since the snapshot that etcd was restored from it may have been readmitted.
        eviction = replace(known, blind=known.blind or is_blind)
    elif any(one.region == region for one in await directory.present()):
        raise InvalidRequest(
            "region", f"{region} shows a sign of life: drain it, or stop all its servers and wait for a minute"
        )
    else:
        eviction = Eviction(record.evictions + 1, now, attestation, is_blind)
    return await _write(directory, stored, replace(record, status=RegionStatus.EVICTED, frozen=None, eviction=eviction))


async def _nothing_moves(histories: HistoryStore) -> bool:
    _, history = await histories.read()
    return history is not None and history.phase is not Phase.RUNNING


async def _retire(
    allocations: AllocationStore, still: "_Still", change: _Change, on_document: Progress
) -> Mapping[QuotaKey, int]:
    region = still.record.name
    retired = {}
    _, documents = await allocations.list()
    await still.require()
    for number, one in enumerate(documents):
        done = await _rewrite(allocations, one, change, still)
        if done is not None and region in done[1].retired:
            retired[one.key] = done[1].retired[region].units
        on_document(number + 1, len(documents))
    return retired


def _retiring(region: Region, now: float, *, lost: bool = False) -> _Change:
    def change(known: Allocation) -> Allocation:
        gone = evict(known, region, now)
        return disclaim(gone, region) if lost else gone

    return change


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
    is_evicted = record.is_evicted
    if not is_evicted or record.eviction is None:
        _require_rest(documents, record, nothing_used=nothing_used)
    usage = await _evidence(histories, record, lost=database_lost, unused=nothing_used)
    if is_evicted:
        # Nothing may be left of the eviction: who has not come to a document yet finds that it has changed.
        retire = _retiring(region, clock.now(), lost=usage is None)
        await _retire(allocations, _Still(directory, record), retire, lambda _done, _of: None)
        record = await _write(directory, stored, replace(record, status=RegionStatus.ACTIVE))
    still = _Still(directory, record)
    return await _return(allocations, still, usage, clock.now(), on_document, with_unknown=nothing_used)


def _require_rest(documents: Sequence[Stored], record: RegionRecord, *, nothing_used: bool) -> None:
    """Raises `InvalidRequest` if no readmission has left anything that can be returned now."""
    retired = [one.allocation.retired.get(record.name) for one in documents if one.allocation is not None]
    rest = [gone for gone in retired if gone is not None]
    if record.eviction is not None and any(nothing_used or gone.units > gone.unknown for gone in rest):
        return
    hint = ". If you know that nothing of what is still retired of it is in use: --nothing-used" if rest else ""
    raise InvalidRequest("region", f"{record.name} is not evicted, it is {record.status}{hint}")


async def _return(
    allocations: AllocationStore,
    still: "_Still",
    usage: Mapping[QuotaKey, Stated] | None,
    now: float,
    on_document: Progress,
    *,
    with_unknown: bool,
) -> Readmitted:
    region = still.record.name
    kept, freed = {}, {}
    waiting: dict[QuotaKey, int] = {}
    _, documents = await allocations.list()
    await still.require()
    for number, one in enumerate(documents):
        known = one.allocation
        gone = None if known is None else known.retired.get(region)
        if known is not None and gone is not None:
            word = None if usage is None else usage.get(one.key)
            # Nothing is in use, whatever period the eviction reckoned with: nobody has to wait for that to begin.
            epoch = epoch_of(known.kind, now, known.policy.calendar) if word is None else word.epoch
            in_use = 0 if word is None else word.in_use
            give = partial(readmit, region=region, in_use=in_use, epoch=epoch, with_unknown=with_unknown)
            done = await _rewrite(allocations, one, give, still)
            if done is None:
                continue
            before, after = done
            left = after.retired[region].units if region in after.retired else 0
            kept[one.key] = after.slice_of(region) - before.slice_of(region)
            freed[one.key] = gone.units - left - kept[one.key]
            waiting |= {one.key: left} if left else {}
        on_document(number + 1, len(documents))
    return Readmitted(still.record, kept, freed, waiting)


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
    if not record.is_evicted:
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
    return (one.eviction, one.is_evicted) == (other.eviction, other.is_evicted)


async def _rewrite(
    allocations: AllocationStore, one: Stored, change: _Change, still: _Still
) -> tuple[Allocation, Allocation] | None:
    """The document before and after. None: it is gone. `still` was so after `one` was read."""
    revision, known = one.revision, one.allocation
    for _ in range(MAX_ATTEMPTS):
        if known is None:
            return None
        changed = change(known)
        if changed is known or await allocations.swap(one.key, revision, changed) is not None:
            return known, changed
        revision, known = await allocations.read(one.key)
        await still.require()
    raise EtcdUnavailable(f"{one.key} was changed by others {MAX_ATTEMPTS} times in a row: repeat the command")


async def _known(directory: Directory, region: Region, *, or_forgotten: bool = False) -> StoredRegion:
    regions = await directory.regions()
    if region not in regions and or_forgotten and is_identifier(region):
        return StoredRegion(0, RegionRecord(region))
    return of_name(regions, region)


async def _write(directory: Directory, stored: StoredRegion, record: RegionRecord) -> RegionRecord:
    if record != stored.record and await directory.swap_region(record, stored.revision) is None:
        raise EtcdUnavailable(f"the record of {record.name} was changed by somebody else: repeat the command")
    return record
