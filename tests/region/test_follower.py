"""Following what etcd says, on memory adapters."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.region import participating
from tests.region.participating import QUOTA, World, split

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, Move, request_moves
from regionquota.core.commands import Commit, Release, Reserve
from regionquota.core.quota import QuotaKey
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Stored

world = participating.world


async def test_following_carries_out_what_is_there_and_what_comes(world: World) -> None:
    revision = await world.write(split(100, eu=40))
    following = asyncio.create_task(world.follower.follow())
    try:
        async with asyncio.timeout(5):
            while await world.slice() != 40:
                await asyncio.sleep(0)
            await world.write(request_moves(split(100, eu=40), [Move("m", "eu", None, 15)]), revision)
            while await world.slice() != 25:
                await asyncio.sleep(0)
        _, allocation = await world.etcd.read(QUOTA)
        assert allocation is not None
        assert (25, 75) == (allocation.slice_of("eu"), allocation.pool)
    finally:
        following.cancel()


async def test_a_quota_that_waits_for_etcd_keeps_no_other_waiting(world: World) -> None:
    """A handover takes a round trip: those of a whole round must not stand before one that somebody cries for."""
    slow, swap, answered = QuotaKey("aaa", "vcpu"), world.etcd.swap, asyncio.Event()
    revisions = {key: await swap(key, 0, split(100, eu=40)) or 0 for key in (slow, QUOTA)}

    async def swap_slowly(key: QuotaKey, revision: int, allocation: Allocation) -> int | None:
        if key == slow:
            await answered.wait()
        return await swap(key, revision, allocation)

    world.etcd.swap = swap_slowly  # type: ignore[method-assign, assignment]
    following = asyncio.create_task(world.follower.follow())
    await asyncio.sleep(0)
    try:
        for key, amounts in (slow, (10, 20)), (QUOTA, (15,)):
            for amount in amounts:
                asked = request_moves(split(100, eu=40), [Move("m", "eu", "us", amount)])
                revisions[key] = await swap(key, revisions[key], asked) or 0
        assert 25 == await given(world, QUOTA, 25)
        answered.set()
        assert 20 == await given(world, slow, 20)  # the newest word, after the older one was too late
    finally:
        following.cancel()


async def given(world: World, key: QuotaKey, owned: int) -> int:
    """What the region owns, once that is `owned`."""
    async with asyncio.timeout(5):
        while True:
            _, allocation = await world.etcd.read(key)
            assert allocation is not None
            if allocation.slice_of("eu") == owned:
                return owned
            await asyncio.sleep(0)


async def test_etcd_is_listed_again_after_a_step_that_it_did_not_answer(world: World) -> None:
    revision = await world.write(split(100, eu=40))

    async def unanswered(*_: object) -> int | None:
        raise EtcdUnavailable("no answer")

    swap, world.etcd.swap = world.etcd.swap, unanswered  # type: ignore[method-assign]
    world.follower._relist_interval_s = 60.0
    following = asyncio.create_task(world.follower.follow())
    await asyncio.sleep(0)
    await swap(QUOTA, revision, request_moves(split(100, eu=40), [Move("m", "eu", "us", 10)]))
    with pytest.raises(EtcdUnavailable):
        await asyncio.wait_for(following, 5)


async def test_the_full_list_comes_round_again_and_again(world: World) -> None:
    revision = await world.write(split(100, eu=40))
    await asyncio.wait_for(world.follower.follow(), 5)  # ends when it is time for the next list
    first = world.follower.synchronised
    await world.write(split(7), revision)
    await asyncio.wait_for(world.follower.follow(), 5)
    assert world.follower.synchronised > first


async def test_a_watch_that_was_compacted_away_ends_and_the_next_list_catches_up(world: World) -> None:
    revision = await world.write(split(100, eu=40))
    await world.follower.relist()
    await world.write(split(100, eu=30), revision)
    world.etcd.compact(world.etcd.revision)
    await asyncio.wait_for(world.follower.follow(), 5)
    assert 30 == await world.slice()


async def test_a_quota_that_this_region_does_not_use_leaves_no_row(world: World) -> None:
    await world.write(split(100, us=40))
    await world.follower.relist()
    assert await world.store.holding(QUOTA) is None


async def test_a_move_that_usage_forbids_is_tried_again_when_usage_falls(world: World) -> None:
    revision = await world.write(split(100, eu=40))
    await world.follower.relist()
    now = world.clock.now()
    await world.store.transact([Reserve("0", QUOTA, 40, "r", b"d", 60)], now)
    await world.write(request_moves(split(100, eu=40), [Move("m", "eu", "us", 10)]), revision)
    await world.follower.relist()
    assert 40 == await world.slice()

    await world.store.transact([Commit("0", 25)], now)
    await world.follower.settle()
    assert 30 == await world.slice()


async def test_a_document_that_cannot_be_carried_out_does_not_keep_the_others_from_it(world: World) -> None:
    broken = QuotaKey("aaa", "vcpu")
    assert await world.etcd.swap(broken, 0, split(10, eu=5)) is not None
    await world.write(split(100, eu=40))
    apply = world.store.apply

    async def apply_unless_broken(key: QuotaKey, allocation: Allocation, revision: int, now: float) -> Holding | None:
        if key == broken:
            raise ValueError("nothing can hold this")
        return await apply(key, allocation, revision, now)

    world.follower._store = _Altered(world.store, apply_unless_broken)
    await world.follower.relist()
    await world.follower.settle()
    assert 40 == await world.slice()
    assert world.follower.synchronised > 0


async def test_a_list_that_was_overtaken_by_the_watch_does_not_bring_older_documents_back(world: World) -> None:
    revision = await world.write(split(100, eu=40))
    await world.follower.relist()
    newer = request_moves(split(100, eu=40), [Move("m", "eu", None, 15)])
    holdings_after = world.store.holdings_after

    async def holdings_after_the_watch(key: QuotaKey | None, most: int) -> Sequence[Holding]:
        await world.store.transact([Reserve("0", QUOTA, 40, "r", b"d", 60)], world.clock.now())
        written = await world.write(newer, revision)
        await world.follower.take(Stored(QUOTA, written, newer))
        return await holdings_after(key, most)

    world.follower._store = _Altered(world.store, world.store.apply, holdings_after_the_watch)
    await world.follower.relist()
    await world.store.transact([Release("0")], world.clock.now())
    await world.follower.settle()
    assert 25 == await world.slice()


class _Altered:
    """A store with calls of its own in front."""

    def __init__(self, store: MemoryRegionStore, apply: Any, holdings_after: Any = None) -> None:
        self._store = store
        self.apply = apply
        self.holdings_after = holdings_after or store.holdings_after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
