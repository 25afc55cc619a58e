"""An etcd that was restored from an older snapshot, and has been given higher revisions since than were ever seen."""

import pytest
from tests.bound import Process
from tests.clocks import Clock
from tests.core.builders import NOON, OTHER, QUOTA, allocation, move, reservation_name, reserve

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import BoundAllocations, MemoryHistoryStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import Commit, Settled
from regionquota.core.history import Bond, History, Phase
from regionquota.core.quota import QuotaKey
from regionquota.errors import HistoryEnded, NotTrusted, UnreadableDocument, WentBackwards
from regionquota.evictions import evict_region
from regionquota.ports import RegionRecord, Stored
from regionquota.recovery import await_statements, begin_recovery, end_recovery, rebuild_documents
from regionquota.region.steps import claim


class World:
    """A snapshot was taken while eu owned 70."""

    def __init__(self) -> None:
        self.clock = Clock(NOON)
        self.etcd = MemoryCoordination(self.clock)
        self.store = MemoryRegionStore("eu")

    async def begin(self) -> None:
        self.process = Process(self.etcd, self.store, self.clock)
        await self.process.watch.step()
        self.revision = await self.etcd.swap(QUOTA, 0, allocation(100, eu=70))
        await self.process.follower.relist()
        self.snapshot = self.etcd.copy(self.clock)

    async def restore(self, revisions: int) -> None:
        """And let others write so much."""
        self.etcd.__dict__.update(self.snapshot.__dict__)
        for number in range(revisions):
            await self.etcd.suspend(f"tenant-{number}", NOON, "a revision")

    async def is_halted(self) -> bool:
        with pytest.raises(WentBackwards, match="region recover"):
            await self.process.follower.relist()
        await self.process.watch.step()
        _, history = self.etcd.history
        return history is not None and history.phase is Phase.HALTED


@pytest.fixture
async def world() -> World:
    made = World()
    await made.begin()
    return made


async def test_nothing_is_claimed_out_of_a_pool_that_the_region_knows_to_be_an_old_one(world: World) -> None:
    """It claims without listing, and what the snapshot's pool holds others have claimed since."""
    assert world.revision is not None
    await world.etcd.swap(QUOTA, world.revision, allocation(100, eu=70, us=30))
    await world.process.follower.relist()
    await world.restore(revisions=50)
    process = world.process
    with pytest.raises(WentBackwards, match="carried out"):
        await claim(QUOTA, "eu", process.allocations, process.store, wanted=30, share=1.0, now=NOON)
    assert {"eu": 70} == (await world.etcd.read(QUOTA))[1].slices  # type: ignore[union-attr]
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert 70 == held.slice


async def test_what_was_given_away_since_is_not_taken_up_again(world: World) -> None:
    assert world.revision is not None
    await world.etcd.swap(QUOTA, world.revision, allocation(100, eu=70, moves=[move("eu", "us", 40)]))
    await world.process.follower.relist()
    await world.restore(revisions=50)
    assert await world.is_halted()
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert 30 == held.slice


async def test_a_quota_that_was_made_since_is_missed(world: World) -> None:
    await world.etcd.swap(OTHER, 0, allocation(100, eu=10))
    await world.process.follower.relist()
    await world.restore(revisions=50)
    assert await world.is_halted()


async def test_a_quota_that_was_removed_is_not_missed(world: World) -> None:
    revision = await world.etcd.swap(OTHER, 0, allocation(100))
    assert revision is not None
    await world.process.follower.relist()
    await world.process.store.apply(OTHER, allocation(100), revision, NOON)
    await world.etcd.remove(OTHER, revision)
    await world.process.follower.relist()


async def test_a_document_that_cannot_be_read_is_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing_readable() -> tuple[int, tuple[Stored, ...]]:
        return world.etcd.revision, ()

    async def unreadable(key: QuotaKey) -> None:
        raise UnreadableDocument(f"cannot read {key}")

    monkeypatch.setattr(world.process.allocations, "list", nothing_readable)
    monkeypatch.setattr(world.process.allocations, "read", unreadable)
    await world.process.follower.relist()


async def test_an_etcd_that_was_replaced_and_written_in_by_others_is_recovered_anyway(world: World) -> None:
    await world.store.transact([reserve(10, name=reservation_name(1))], NOON)
    empty = MemoryCoordination(world.clock)
    world.etcd.__dict__.update(empty.__dict__)
    histories = MemoryHistoryStore(world.etcd)
    await histories.swap(History("another"), 0)
    await world.process.watch.step()
    assert world.process.watch.trouble is not None
    assert "region recover --anyway --region eu" in world.process.watch.trouble
    history = await begin_recovery(histories, "a test", NOON, anyway=True)
    await world.process.watch.step()
    again = Process(world.etcd, world.store, world.clock)
    await again.watch.step()
    stated = await await_statements(histories, world.etcd, history, ["eu"], patience_s=0.0)
    allocations = BoundAllocations(world.etcd, Bond(), history)
    _, _, wanted = await rebuild_documents(allocations, world.etcd, stated, world.clock)
    await end_recovery(histories, world.etcd, history, wanted, stated)
    await again.watch.step()
    await again.trust.step()
    # What others may own by now it has let go of, but for what it has in use.
    assert ({"eu": 10}, None) == (wanted[QUOTA].slices, again.watch.trouble)
    await world.store.transact([reserve(1, name=reservation_name(2))], NOON)


async def test_a_server_that_knows_what_was_seen_looks_through_no_counters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at its standing every other second."""
    monkeypatch.setattr(MemoryRegionStore, "recall", None)
    await world.process.watch.step()


async def test_a_region_that_a_recovery_has_forgotten_admits_nothing_once_it_sees_etcd(world: World) -> None:
    """It joined after the snapshot was taken, and was out of reach: what it holds, others may own by now."""
    await world.store.transact([reserve(10, name=reservation_name(1))], NOON)
    await world.restore(0)
    histories = MemoryHistoryStore(world.etcd)
    history = await begin_recovery(histories, "a test", NOON, anyway=True)
    await end_recovery(histories, world.etcd, history, {}, {})
    await world.process.watch.step()
    assert world.process.ended
    again = Process(world.etcd, world.store, world.clock)
    await again.watch.step()
    with pytest.raises(NotTrusted):
        await world.store.transact([reserve(1, name=reservation_name(2))], NOON)
    with pytest.raises(HistoryEnded):
        await again.trust.step()
    (settled,) = await world.store.transact([Commit(reservation_name(1), 10)], NOON)  # what is held is settled
    assert isinstance(settled, Settled)
    assert not again.ended  # it begins anew once, not for ever


async def _recover(world: World, *others: MemoryRegionStore) -> None:
    histories = MemoryHistoryStore(world.etcd)
    history = await begin_recovery(histories, "a test", NOON, anyway=True)
    for store in (world.store, *others):
        await Process(world.etcd, store, world.clock).watch.step()
    stated = await await_statements(histories, world.etcd, history, ["eu"], patience_s=0.0)
    allocations = BoundAllocations(world.etcd, Bond(), history)
    _, _, wanted = await rebuild_documents(allocations, world.etcd, stated, world.clock)
    await end_recovery(histories, world.etcd, history, wanted, stated)


async def _evict(world: World) -> None:
    """And let its servers come up again."""
    await evict_region(world.etcd, world.etcd, MemoryHistoryStore(world.etcd), "eu", "off", world.clock)
    again = Process(world.etcd, world.store, world.clock)
    await again.watch.step()
    await again.trust.step()


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_eviction_that_was_forgotten_is_not_taken_for_the_next(world: World, *, is_known: bool) -> None:
    await world.store.transact([reserve(10, name=reservation_name(1))], NOON)
    if is_known:
        await world.etcd.swap_region(RegionRecord("eu"), 0)
    snapshot = world.etcd.copy(world.clock)
    await world.etcd.swap_region(RegionRecord("eu"), 0)
    await _evict(world)
    world.etcd.__dict__.update(snapshot.__dict__)
    await _recover(world)
    process = Process(world.etcd, world.store, world.clock)
    await process.watch.step()
    await process.follower.relist()
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert (10, 0) == (held.slice, held.counter.debt)  # what was in use is its own again
    await _evict(world)
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert (0, 10) == (held.slice, held.counter.debt)
    await process.watch.step()
    assert process.ended


async def test_what_a_database_lost_the_decrease_of_is_not_held_for_a_recovery(world: World) -> None:
    """Us owns by now what eu gave away, and the copy that eu runs on still has."""
    await world.store.transact([reserve(10, name=reservation_name(1))], NOON)
    before = world.store.copy()
    assert world.revision is not None
    await world.etcd.swap(QUOTA, world.revision, allocation(100, eu=70, moves=[move("eu", "us", 50)]))
    await world.process.follower.relist()
    other = MemoryRegionStore("us")
    theirs = Process(world.etcd, other, world.clock)
    await theirs.watch.step()
    await theirs.follower.relist()
    world.store.fail_over(before)
    await world.restore(revisions=50)
    await _recover(world, other)
    assert {"eu": 10, "us": 50} == (await world.etcd.read(QUOTA))[1].slices  # type: ignore[union-attr]
    again = Process(world.etcd, world.store, world.clock)
    await again.watch.step()
    await again.trust.step()
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert 10 == held.slice


async def test_a_database_is_not_trusted_by_the_word_of_a_document_older_than_it_has_heard_of(world: World) -> None:
    assert world.revision is not None
    await world.etcd.swap(QUOTA, world.revision, allocation(100, eu=80))
    await world.process.follower.relist()
    await world.restore(revisions=50)
    world.store.fail_over(world.store.copy())
    with pytest.raises(WentBackwards, match="carried out"):
        await world.process.trust.step()
    with pytest.raises(NotTrusted):
        await world.store.transact([reserve(1, name=reservation_name(1))], NOON)
