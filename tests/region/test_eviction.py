"""What an evicted region does: it gives up what it holds, whatever else goes on, and alarms nobody."""

from contextlib import suppress

import pytest
from tests.bound import Process
from tests.clocks import Clock
from tests.core.builders import NOON, QUOTA, allocation, finish, move, reserve

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import MemoryHistoryStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation
from regionquota.core.eviction import Eviction, evict
from regionquota.core.history import Phase, Standing
from regionquota.errors import EtcdUnavailable, NotTrusted, StoreUnavailable, Unavailable
from regionquota.ports import RegionRecord, RegionStatus
from regionquota.region.steps import claim

EVICTED = RegionRecord("us", status=RegionStatus.EVICTED, eviction=Eviction(1, NOON, "off"))


class World:
    """us owns 50 of 100 and has 10 in use."""

    def __init__(self) -> None:
        self.clock = Clock(NOON)
        self.etcd = MemoryCoordination(self.clock)
        self.histories = MemoryHistoryStore(self.etcd)
        self.store = MemoryRegionStore("us")
        finish(self.etcd.swap_region(RegionRecord("us"), 0))
        finish(self.etcd.swap(QUOTA, 0, allocation(100, us=50)))
        self.first = self.start()
        finish(self.first.follower.relist())
        finish(self.store.transact([reserve(10, name="a", ttl=3600)], NOON))

    def start(self) -> Process:
        process = Process(self.etcd, self.store, self.clock)
        finish(process.watch.step())
        return process

    def record_eviction(self) -> None:
        known = finish(self.etcd.regions())["us"]
        assert finish(self.etcd.swap_region(EVICTED, known.revision)) is not None

    def document(self) -> Allocation:
        _, document = finish(self.etcd.read(QUOTA))
        assert document is not None
        return document

    def rewrite(self, document: Allocation) -> None:
        revision, _ = finish(self.etcd.read(QUOTA))
        assert finish(self.etcd.swap(QUOTA, revision, document)) is not None

    def retire(self) -> None:
        self.rewrite(evict(self.document(), "us", NOON))

    def slice(self) -> int:
        held = finish(self.store.holding(QUOTA))
        assert held is not None
        return held.slice

    def phase(self) -> Phase:
        _, history = self.etcd.history
        assert history is not None
        return history.phase


async def test_a_server_that_hears_of_less_before_it_hears_of_the_eviction_alarms_nobody() -> None:
    world = World()
    world.record_eviction()
    world.retire()
    with suppress(Unavailable):
        await world.first.follower.relist()
    await world.first.watch.step()
    assert (Phase.RUNNING, True) == (world.phase(), world.first.ended)
    again = world.start()
    await again.trust.step()
    await again.watch.step()
    assert (Phase.RUNNING, 0) == (world.phase(), world.slice())


async def test_nothing_is_kept_of_what_the_eviction_has_not_come_to_yet() -> None:
    world = World()
    world.record_eviction()
    await world.first.watch.step()
    again = world.start()
    await again.trust.step()
    assert 0 == world.slice()
    await again.follower.relist()
    assert 0 == world.slice()
    world.retire()
    await again.follower.relist()
    await again.watch.step()
    assert (Phase.RUNNING, 0) == (world.phase(), world.slice())


async def test_what_is_in_use_is_not_handed_over_before_the_eviction_has_come_to_it() -> None:
    world = World()
    world.rewrite(allocation(100, us=50, moves=[move("us", "eu", 50)]))
    world.record_eviction()
    await world.first.watch.step()
    again = world.start()
    await again.trust.step()
    with suppress(EtcdUnavailable):
        await again.follower.relist()
    assert {"us": 50} == world.document().slices


async def test_a_claim_by_a_server_that_knows_of_no_eviction_is_not_spent() -> None:
    world = World()
    world.record_eviction()
    world.retire()
    await world.first.watch.step()
    again = world.start()
    await again.trust.step()
    with pytest.raises(StoreUnavailable):
        await claim(QUOTA, "us", world.first.allocations, world.first.store, wanted=20, share=1.0, now=NOON)
    assert 20 == world.document().slice_of("us")
    await again.follower.relist()
    assert 0 == world.slice()
    with pytest.raises(EtcdUnavailable, match="is evicted"):
        await claim(QUOTA, "us", again.allocations, again.store, wanted=20, share=1.0, now=NOON)


async def test_it_says_what_is_in_use_once_it_holds_nothing() -> None:
    world = World()
    world.record_eviction()
    await world.first.watch.step()
    again = world.start()
    assert {} == world.etcd.statements
    world.store.trusted = world.store.life  # as a connection may believe that was trusted before
    await again.watch.step()
    assert {} == world.etcd.statements
    world.store.trusted -= 1
    await again.trust.step()
    await again.watch.step()
    (word,) = world.etcd.statements["us"].stated
    assert (0, 10) == (word.slice, word.in_use)


async def test_one_that_a_recovery_has_not_heard_of_comes_back_with_nothing() -> None:
    """Also if it had been readmitted since the snapshot that etcd was restored from."""
    world = World()
    await world.store.adopt(world.store.stands, Standing("lost", 1))
    world.store.trusted = world.store.life
    world.record_eviction()
    again = world.start()
    assert not (await world.store.incarnation()).is_trusted
    await again.trust.step()
    await again.follower.relist()
    assert (Phase.RUNNING, 0) == (world.phase(), world.slice())
    await again.watch.step()
    assert "us" in world.etcd.statements
    assert again.watch.trouble is None


async def test_what_it_admits_before_it_hears_of_the_eviction_is_within_what_is_retired() -> None:
    """Its servers were switched on while etcd is out of reach, its Postgres was never switched off."""
    world = World()
    world.record_eviction()
    world.retire()
    await world.store.transact([reserve(40, name="b", ttl=3600)], NOON)
    held = await world.store.holding(QUOTA)
    assert held is not None
    assert held.counter.in_use == world.document().retired_units == 50


async def test_it_admits_nothing_before_it_sees_etcd_if_its_postgres_was_switched_off() -> None:
    world = World()
    world.record_eviction()
    world.retire()
    world.store.fail_over(world.store.copy())
    with pytest.raises(NotTrusted):
        await world.store.transact([reserve(1, name="b", ttl=3600)], NOON)
