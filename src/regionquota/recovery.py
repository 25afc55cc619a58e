"""Making etcd say again what the regions hold, after it was restored from an older snapshot. See `core.recovery`.

Every step may be interrupted and done again, by anyone.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.eviction import Eviction
from regionquota.core.history import History, Phase
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.recovery import Stated, Statement, rebuild
from regionquota.errors import EtcdUnavailable, InvalidRequest, UnreadableDocument
from regionquota.histories import new_name
from regionquota.history_ports import HistoryStore
from regionquota.ports import AllocationStore, Clock, Directory, RegionRecord, Stored, StoredRegion

LOOK_INTERVAL_S: Final = 0.5
MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts before an operator is told to try again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Which regions have stated what they hold, and which have not yet."""

    history: str
    stated: Sequence[Region]
    missing: Sequence[Region]


async def begin_recovery(histories: HistoryStore, by: str, now: float, *, anyway: bool = False) -> History:
    """From now on nothing is written under the former history. Goes on with a recovery that was begun before.

    Raises `InvalidRequest` where nobody has noticed anything, unless `anyway`.
    """
    for _ in range(MAX_ATTEMPTS):
        revision, found = await histories.read()
        if found is not None and found.phase is Phase.RECOVERING:
            return found
        if found is not None and found.phase is Phase.RUNNING and not anyway:
            raise InvalidRequest(
                "anyway",
                f"etcd's history {found.name} is running, no server has seen more of it than etcd remembers: there is "
                "nothing to recover. --anyway rebuilds the allocations from what the regions hold all the same",
            )
        why = "by hand" if found is None or not found.why else found.why
        begun = History(new_name(), Phase.RECOVERING, now, by, why)
        if await histories.swap(begun, revision):
            return begun
    raise EtcdUnavailable(f"the history was changed by others {MAX_ATTEMPTS} times in a row: try again")


async def evicted_before(directory: Directory) -> Sequence[Region]:
    """Those that are evicted by the word of the snapshot alone: they are not waited for."""
    records = [stored.record for stored in (await directory.regions()).values()]
    evicted = [one for one in records if one.is_evicted]
    return sorted(one.name for one in evicted if one.eviction is None or not one.eviction.blind)


async def await_statements(
    histories: HistoryStore,
    directory: Directory,
    history: History,
    expected: Sequence[Region],
    *,
    patience_s: float,
    on_waiting: Callable[[Waiting], None] = lambda _: None,
) -> Mapping[Region, Statement]:
    """What each region holds that is not evicted: those that etcd knows, and `expected`, which it may have forgotten.

    Raises `InvalidRequest` naming those that have said nothing in `patience_s` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        stated, missing = await heard(histories, directory, history, expected)
        on_waiting(Waiting(history.name, sorted(stated), missing))
        if not missing:
            return stated
        if loop.time() >= deadline:
            raise InvalidRequest(
                "region",
                f"no word from {', '.join(missing)}: start a server of each and repeat this command, or evict those "
                "that will not come back (regionquota region evict NAME --attest TEXT)",
            )
        await asyncio.sleep(LOOK_INTERVAL_S)


async def heard(
    histories: HistoryStore, directory: Directory, history: History, expected: Sequence[Region]
) -> tuple[Mapping[Region, Statement], Sequence[Region]]:
    """As `await_statements`, by now: what was stated, and who has stated nothing."""
    records = {name: stored.record for name, stored in (await directory.regions()).items()}
    stated = {one.region: one for one in await histories.statements() if _counts(one, history, records)}
    absent = {name for name, record in records.items() if record.is_evicted}
    return stated, sorted(({*records, *expected} - absent) - stated.keys())


def _counts(statement: Statement, history: History, records: Mapping[Region, RegionRecord]) -> bool:
    enough = _evictions(records, statement.region)
    return statement.standing.history == history.name and statement.standing.evictions >= enough


def _evictions(records: Mapping[Region, RegionRecord], region: Region) -> int:
    record = records.get(region)
    return 0 if record is None else record.evictions


async def rebuild_documents(
    allocations: AllocationStore,
    directory: Directory,
    statements: Mapping[Region, Statement],
    clock: Clock,
    on_document: Callable[[int, int], None] = lambda _done, _of: None,
) -> tuple[int, int, Mapping[QuotaKey, Allocation]]:
    """How many documents there are, how many were rewritten, and what they all say. `allocations` are those of the
    recovery: nobody else writes them. Raises `UnreadableDocument`: what such a one says is for people to find out.
    """
    for damage in await allocations.damaged():
        raise UnreadableDocument(
            f"{damage}; correct it, or delete it (etcdctl del) to have it made of what the regions hold, and repeat"
        )
    records = {name: stored.record for name, stored in (await directory.regions()).items()}
    evicted = sorted(name for name, record in records.items() if record.is_evicted)
    blind = [name for name in evicted if (eviction := records[name].eviction) is not None and eviction.blind]
    unsure = [name for name, one in statements.items() if not one.is_trusted]
    returned = [name for name, one in statements.items() if one.standing.evictions > _evictions(records, name)]
    stated: dict[QuotaKey, dict[Region, Stated]] = {}
    for region, statement in statements.items():
        for word in statement.stated:
            stated.setdefault(word.key, {})[region] = word
    _, documents = await allocations.list()
    known = {one.key: one for one in documents}
    wanted: dict[QuotaKey, Allocation] = {}
    rewritten = 0
    for number, key in enumerate(sorted({*known, *stated})):
        one = known.get(key, Stored(key, 0, None))
        made = rebuild(
            one.allocation, one.revision, stated.get(key, {}), evicted, blind, clock.now(), [*unsure, *returned]
        )
        if made is not None and made != one.allocation:
            if await allocations.swap(key, one.revision, made) is None:
                raise EtcdUnavailable(f"{key} was changed by somebody else: repeat the command")
            rewritten += 1
        if made is not None:
            wanted[key] = made
        on_document(number + 1, len({*known, *stated}))
    return len(wanted), rewritten, wanted


async def end_recovery(
    histories: HistoryStore,
    directory: Directory,
    history: History,
    wanted: Mapping[QuotaKey, Allocation],
    statements: Mapping[Region, Statement],
) -> Mapping[QuotaKey, int]:
    """Let headroom move again. Returns the quotas of which more is held than there is, with how much more."""
    regions = await directory.regions()
    for stored in regions.values():
        await _see_clearly(directory, stored.record, stored.revision)
    revision, found = await histories.read()
    if found == history and not await histories.swap(History(history.name), revision):
        raise EtcdUnavailable("the history was changed by somebody else: repeat the command")
    records = {name: stored.record for name, stored in regions.items()}
    for region, statement in statements.items():
        # Not before: whoever repeats a recovery has to see which evictions etcd has forgotten.
        if statement.standing.evictions > _evictions(records, region):
            await _count_evictions(directory, region, statement.standing.evictions, history.since)
    await histories.forget_statements()
    return {key: -document.pool for key, document in wanted.items() if document.pool < 0}


async def _count_evictions(directory: Directory, region: Region, obeyed: int, now: float) -> None:
    """So that its next eviction is not taken for one that it has obeyed."""
    for _ in range(MAX_ATTEMPTS):
        stored = (await directory.regions()).get(region, StoredRegion(0, RegionRecord(region)))
        forgotten = Eviction(obeyed, now, "obeyed since the snapshot that etcd was restored from was taken")
        if stored.record.evictions >= obeyed:
            return
        if await directory.swap_region(replace(stored.record, eviction=forgotten), stored.revision) is not None:
            return
    raise EtcdUnavailable(f"the record of {region} was changed by others {MAX_ATTEMPTS} times in a row: try again")


async def _see_clearly(directory: Directory, record: RegionRecord, revision: int) -> None:
    """What a blind eviction may have left behind is counted now."""
    if record.eviction is not None and record.eviction.blind:
        seeing = replace(record, eviction=replace(record.eviction, blind=False))
        if await directory.swap_region(seeing, revision) is None:
            raise EtcdUnavailable(f"the record of {record.name} was changed by somebody else: repeat the command")
