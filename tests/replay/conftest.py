"""Etcd and region databases in memory, as far as an observer looks at them, with the faults it must survive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from regionquota.core.allocation import Allocation
from regionquota.core.counter import Counter
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable, StoreUnavailable, UnreadableDocument
from regionquota.ports import CompactedError, Frozen, FrozenBy, RegionRecord, SliceEntry, Stored, StoredRegion
from regionquota.replay import Sights

REGIONS = ("eu", "us")


class Etcd:
    """AllocationStore and Directory, reading half."""

    def __init__(self) -> None:
        self.log: list[Stored] = []
        self.revision = 0
        self.compacted = 0
        self.down = False
        self.watches_hang = False
        self.poisoned = False
        self.frozen: set[Region] = set()

    def put(self, key: QuotaKey, allocation: Allocation | None) -> int:
        self.revision += 1
        self.log.append(Stored(key, self.revision, allocation))
        return self.revision

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        self._answer()
        newest = [stored for stored in self.log if stored.key == key][-1:]
        return (newest[0].revision, newest[0].allocation) if newest else (0, None)

    async def list(self) -> tuple[int, Sequence[Stored]]:
        self._answer()
        return self.revision, list({stored.key: stored for stored in self.log}.values())

    async def watch(self, after: int) -> AsyncIterator[Sequence[Stored]]:
        while True:
            if self.watches_hang:
                await asyncio.Event().wait()
            self._answer()
            if after < self.compacted:
                raise CompactedError
            news = [stored for stored in self.log if stored.revision > after]
            if news:
                yield news
                after = news[-1].revision
            await asyncio.sleep(0.005)

    async def regions(self) -> Mapping[Region, StoredRegion]:
        self._answer()
        why = Frozen(FrozenBy.LIVENESS, 0.0, "no heartbeat")
        return {
            region: StoredRegion(1, RegionRecord(region, frozen=why if region in self.frozen else None))
            for region in REGIONS
        }

    def _answer(self) -> None:
        if self.down:
            raise EtcdUnavailable("etcd is stopped")
        if self.poisoned:
            raise UnreadableDocument("pool + retired + slices is 7, the limit 8")


class Database:
    """RegionStore, reading half."""

    def __init__(self, key: QuotaKey) -> None:
        self.key = key
        self.rows: list[SliceEntry] = []
        self.counter = Counter()
        self.down = False
        self.before_holding: Callable[[], None] | None = None

    def hold(self, slice_: int, revision: int, *, before: int | None = None) -> None:
        held = self.rows[-1].after if self.rows else 0
        before = held if before is None else before
        self.rows.append(SliceEntry(len(self.rows) + 1, 0.0, self.key, revision, before, slice_, ()))
        self.counter = Counter(slice=slice_, available=slice_)

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        self._answer()
        return [row for row in self.rows if row.id > after and key in {None, row.key}][:most]

    async def holding(self, key: QuotaKey) -> Holding | None:
        self._answer()
        if self.before_holding is not None:
            self.before_holding()
        if not self.rows:
            return None
        return Holding(key, Kind.ALLOCATED, 0, self.rows[-1].revision, 0, self.counter)

    def _answer(self) -> None:
        if self.down:
            raise StoreUnavailable("the database is stopped")


@pytest.fixture
def key() -> QuotaKey:
    return QuotaKey("replay", "units-test")


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


@pytest.fixture
def databases(key: QuotaKey) -> dict[Region, Database]:
    return {region: Database(key) for region in REGIONS}


@pytest.fixture
def sights(etcd: Etcd, databases: dict[Region, Database]) -> Sights:
    return Sights(etcd, etcd, databases)
