"""What changes in etcd and in the regions' databases, in words: nobody has to claim it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, Move
from regionquota.core.history import History, Phase
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.ports import RegionRecord, RegionStatus


@dataclass(frozen=True)
class Database:
    """`trusted`: it was compared with etcd in this life of it. `lost`: no server of the region lives."""

    held: Holding | None
    trusted: bool
    lost: bool
    evictions: int
    history: str

    @property
    def slice(self) -> int:
        return 0 if self.held is None else self.held.slice

    @property
    def usable(self) -> int:
        """What could be admitted."""
        return self.slice if self.trusted and not self.lost else 0


@dataclass(frozen=True)
class Picture:
    revision: int
    document: Allocation | None
    history: History | None
    leader: str | None
    records: Mapping[Region, RegionRecord]
    databases: Mapping[Region, Database]


def picture(
    key: QuotaKey, etcd: MemoryCoordination, stores: Mapping[Region, MemoryRegionStore], lost: Collection[Region]
) -> Picture:
    stored = etcd._allocations.get(key)
    return Picture(
        0 if stored is None else stored.revision,
        None if stored is None else stored.allocation,
        etcd.history[1],
        None if 0 not in etcd._leaders else etcd._leaders[0].value.name,
        {name: known.record for name, known in etcd._regions.items()},
        {name: _database(key, store, lost=name in lost) for name, store in stores.items()},
    )


def _database(key: QuotaKey, store: MemoryRegionStore, *, lost: bool) -> Database:
    stands = store.stands
    return Database(
        store.held.get(key),
        store.life == store.trusted,
        lost,
        0 if stands is None else stands.evictions,
        "" if stands is None else stands.history,
    )


def differences(before: Picture, after: Picture) -> Iterator[str]:
    yield from _of_history(before.history, after.history)
    if after.leader != before.leader and after.leader is not None:
        yield "leads from now on"
    for name, record in after.records.items():
        yield from _of_record(before.records.get(name), record)
    if after.revision != before.revision and after.document is not None:
        yield f"etcd revision {after.revision}: {_of_document(before.document, after.document)}"
    for name, database in after.databases.items():
        yield from _of_database(name, before.databases.get(name, database), database)


def _of_history(before: History | None, after: History | None) -> Iterator[str]:
    if after is None or after == before:
        return
    match after.phase:
        case Phase.HALTED:
            yield f'etcd: history "{after.name}" is halted, nothing moves: {after.why}'
        case Phase.RECOVERING:
            yield f'etcd: history "{after.name}" begins with a recovery: regions are to say what they hold'
        case Phase.RUNNING:
            yield f'etcd: history "{after.name}" runs'


def _of_record(before: RegionRecord | None, after: RegionRecord) -> Iterator[str]:
    if before is None or after == before:
        return
    name, eviction = after.name, after.eviction
    if after.status is not before.status and after.status is RegionStatus.EVICTED and eviction is not None:
        yield f'etcd: {name} is evicted{", blindly" if eviction.blind else ""}, on the word "{eviction.attestation}"'
    elif after.status is not before.status:
        yield f"etcd: {name} is {after.status} again"
    if after.frozen is not None and before.frozen is None:
        yield f"etcd: {name} is frozen, {after.frozen.why}: no move names it, what it owns stays counted"
    elif after.frozen is None and before.frozen is not None and after.status is not RegionStatus.EVICTED:
        yield f"etcd: {name} is thawed, it has caught up"


def _of_document(before: Allocation | None, after: Allocation) -> str:
    if before is None:
        return f"limit {after.limit}, all of it in the pool"
    parts = []
    if after.limit != before.limit:
        parts.append(f"limit {before.limit} -> {after.limit}")
    regions = sorted({*before.slices, *after.slices})
    sizes = [(name, before.slice_of(name), after.slice_of(name)) for name in regions]
    parts += [f"{name} {was} -> {size}" for name, was, size in sizes if size != was]
    if after.pool != before.pool:
        parts.append(f"pool {before.pool} -> {after.pool}")
    if after.retired_units != before.retired_units:
        parts.append(f"retired {before.retired_units} -> {after.retired_units}")
    parts += requests([move for move in after.moves if move not in before.moves])
    if before.moves and not after.moves:
        parts.append("no moves left")
    return "; ".join(parts) or "the document is written as it was"


def requests(moves: Sequence[Move]) -> list[str]:
    """One phrase for each region that is to give something."""
    given: dict[Region, list[str]] = {}
    for move in moves:
        given.setdefault(move.source, []).append(f"{move.amount} to {move.target or 'the pool'}")
    return [f"{source} is asked to give {' and '.join(parts)}" for source, parts in given.items()]


def _of_database(name: Region, before: Database, after: Database) -> Iterator[str]:
    if after.history != before.history and before.history:
        yield f'Postgres of {name}: its slices belong to history "{after.history}" now'
    if after.evictions != before.evictions:
        yield f"Postgres of {name}: it was evicted, nothing is admitted until its slices were compared with etcd"
    if after.held is not None and before.held is not None and after.held.epoch > before.held.epoch:
        yield f"Postgres of {name}: a new period begins, nothing is used in it"
    if after.slice != before.slice:
        verb = "lowered" if after.slice < before.slice else "raised"
        yield f"Postgres of {name}: slice {verb} from {before.slice} to {after.slice}{_owed(before.held, after.held)}"
    if after.trusted and not before.trusted:
        yield f"Postgres of {name}: compared with etcd, it admits again"


def _owed(before: Holding | None, after: Holding | None) -> str:
    debt = 0 if after is None else after.counter.debt
    was = 0 if before is None else before.counter.debt
    return f", though {debt - was} of it are in use: they are owed" if debt > was else ""
