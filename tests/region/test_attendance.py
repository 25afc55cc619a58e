"""Signs of life, thawing, reports and following, on memory adapters."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.coordinator.liveness import Liveness, update
from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    new_allocation,
    request_moves,
)
from regionquota.core.commands import Commit, Release, Reserve
from regionquota.core.demand import Demand
from regionquota.core.forecast import Foreseen
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Frozen, FrozenBy, RegionRecord, RegionStatus, Session, Stored
from regionquota.region.attendance import FORESEEN_AGAIN_S, READ_ALL_WITHIN_S, Attendance
from regionquota.region.demand import MAX_QUOTAS, DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.pages import PAGE

QUOTA = QuotaKey("acme", "vcpu")
TTL_S = 10


class CountingCoordination(MemoryCoordination):
    """Memory, with the reports counted; the next one fails while `losing`, after it was written."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.reports = 0
        self.losing = False

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        self.reports += 1
        await super().report(session, region, instance, demand)
        if self.losing:
            raise EtcdUnavailable("the answer was lost")


@dataclass
class World:
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        self.etcd = CountingCoordination(self.clock)
        self.store = MemoryRegionStore("eu")
        self.follower = Follower("eu", self.etcd, self.store, self.clock, relist_interval_s=0.05)
        self.meter = DemandMeter(self.clock.now())
        self.attendance = Attendance(
            "eu", "eu-1", "http://here", self.etcd, self.store, self.follower, self.meter, self.clock, ttl_s=TTL_S
        )

    async def write(self, allocation: Allocation, revision: int = 0) -> int:
        written = await self.etcd.swap(QUOTA, revision, allocation)
        assert written is not None
        return written

    async def slice(self) -> int:
        holding = await self.store.holding(QUOTA)
        return -1 if holding is None else holding.slice


def split(limit: int, **slices: int) -> Allocation:
    return grant(new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(limit, 1)), slices)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_new_region_makes_its_record_and_announces_itself(world: World) -> None:
    await world.attendance.attend()
    assert RegionRecord("eu") == (await world.etcd.regions())["eu"].record
    assert ["eu-1"] == [presence.instance for presence in await world.etcd.present()]


async def test_a_new_region_is_not_frozen_by_who_looks_while_it_joins(world: World) -> None:
    """Listing all allocations may take it many rounds."""
    fence = await world.etcd.lead(await world.etcd.open_session(TTL_S), "one")
    assert fence is not None
    listing = world.etcd.list

    async def looked_at_meanwhile() -> tuple[int, Sequence[Stored]]:
        await update(Liveness(0.0), world.etcd, fence, world.clock.now())
        return await listing()

    world.etcd.list = looked_at_meanwhile  # type: ignore[method-assign]
    await world.attendance.attend()
    assert RegionRecord("eu") == (await world.etcd.regions())["eu"].record


async def test_a_sign_of_life_is_prolonged_and_made_anew_when_it_ended(world: World) -> None:
    await world.attendance.attend()
    world.clock.seconds += TTL_S * 0.8
    await world.attendance.attend()
    world.clock.seconds += TTL_S * 0.8
    assert 1 == len(await world.etcd.present())
    world.clock.seconds += 2 * TTL_S
    assert [] == list(await world.etcd.present())
    await world.attendance.attend()
    assert 1 == len(await world.etcd.present())


async def test_after_a_freeze_the_region_reads_everything_again_and_says_so(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    stored = (await world.etcd.regions())["eu"]
    frozen = replace(stored.record, frozen=Frozen(FrozenBy.LIVENESS, world.clock.now(), "gone"))
    revision = await world.etcd.swap_region(frozen, stored.revision)
    assert revision is not None

    assert (await world.etcd.present())[0].synchronised < revision
    await world.attendance.attend()
    assert (await world.etcd.present())[0].synchronised >= revision


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (RegionRecord("eu"), True),
        (RegionRecord("eu", status=RegionStatus.DRAINING), False),
        (RegionRecord("eu", frozen=Frozen(FrozenBy.OPERATOR, 1.0, "work")), False),
    ],
)
async def test_only_an_active_region_that_is_not_frozen_claims(world: World, record: RegionRecord, may: bool) -> None:
    await world.etcd.swap_region(record, 0)
    await world.attendance.attend()
    assert may is world.attendance.may_claim()


async def test_a_region_takes_part_that_is_known_active_and_not_frozen(world: World) -> None:
    assert world.attendance.takes_part("ap")  # nothing was read yet
    frozen = Frozen(FrozenBy.LIVENESS, 0.0, "silent")
    for record in (
        RegionRecord("us"),
        RegionRecord("ap", frozen=frozen),
        RegionRecord("sa", status=RegionStatus.DRAINING),
        RegionRecord("za", status=RegionStatus.EVICTED),
    ):
        await world.etcd.swap_region(record, 0)
    await world.attendance.attend()
    assert ["us"] == [name for name in ("us", "ap", "sa", "za", "mars") if world.attendance.takes_part(name)]


async def test_a_region_at_rest_reports_once_and_then_nothing(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    for _ in range(5):
        await world.attendance.report()
    assert 1 == world.etcd.reports


async def test_what_is_asked_for_is_reported(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    await world.store.transact([Reserve("0", QUOTA, 5, "r", b"d", 60), Commit("0")], world.clock.now())
    world.meter.granted(QUOTA, 5)
    world.meter.denied(QUOTA, 60)
    world.clock.seconds += 2.0
    await world.attendance.report()
    assert [
        ("eu", Demand(QUOTA, 40, 5, 0, granted=5, denied=60, seconds=2.0, largest=60, at=world.clock.now()))
    ] == list(await world.etcd.demand())


async def test_a_report_of_denials_is_followed_by_one_that_says_they_are_over(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    world.meter.denied(QUOTA, 60)
    for _ in range(5):
        world.clock.seconds += 1.0
        await world.attendance.report()
    assert [0] == [word.denied for _, word in await world.etcd.demand()]
    assert 2 == world.etcd.reports


async def test_what_is_foreseen_is_told_and_a_change_of_it_now_and_then(world: World) -> None:
    told = [Foreseen(2.5, 40.0)]
    world.attendance._foreseen = lambda _key, _now: told[-1]
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    await world.attendance.report()
    told.append(Foreseen(2.6, 40.0))
    for changed in (False, True):
        assert (1 + changed) == world.etcd.reports
        for _ in range(int(FORESEEN_AGAIN_S / TTL_S) + 2):
            await world.attendance.report()
            world.clock.seconds += TTL_S - 0.1
            await world.attendance.attend()
    assert [(2.6, 40.0)] == [(word.expected, word.deviation) for _, word in await world.etcd.demand()]
    assert 2 == world.etcd.reports


async def test_a_change_of_what_is_foreseen_is_told_also_once_a_clock_that_ran_ahead_is_right(world: World) -> None:
    told = [Foreseen(2.5, 40.0)]
    world.attendance._foreseen = lambda _key, _now: told[-1]
    await world.write(split(100, eu=40))
    world.clock.seconds += 86_400.0
    await world.attendance.attend()
    await world.attendance.report()
    world.clock.seconds -= 86_400.0
    told.append(Foreseen(2.6, 40.0))
    await world.attendance.report()
    assert 2 == world.etcd.reports


async def test_all_is_looked_at_again_in_pages_and_a_part_of_it_at_a_time(world: World) -> None:
    """Five reports in READ_ALL_WITHIN_S: each reads a fifth of the quotas, and after them all have been read."""
    keys = [QuotaKey("acme", f"r{number:04}") for number in range(5 * PAGE)]
    for key in keys:
        await world.etcd.swap(key, 0, split(100, eu=1))
    await world.attendance.attend()
    await world.attendance.report()
    assert 5 * PAGE == sum(slice_ for slice_, _, _ in world.attendance.sums.totals.values())
    for key in keys:
        await world.store.apply(key, split(100, eu=2), 10_000, world.clock.now())
    seen = []
    for _ in range(5):
        world.clock.seconds += READ_ALL_WITHIN_S / 5
        await world.attendance.attend()
        await world.attendance.report()
        seen.append(sum(slice_ for slice_, _, _ in world.attendance.sums.totals.values()))
    assert [PAGE * (5 + read) for read in range(1, 6)] == seen


async def test_a_report_without_an_answer_is_made_again(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    world.etcd.losing = True
    with pytest.raises(EtcdUnavailable):
        await world.attendance.report()
    world.etcd.losing = False
    await world.attendance.report()
    assert 2 == world.etcd.reports


async def test_an_orderly_end_takes_the_sign_of_life_back(world: World) -> None:
    await world.attendance.attend()
    await world.attendance.close()
    assert [] == list(await world.etcd.present())


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


async def test_a_region_that_drains_names_all_that_it_has_to_give(world: World) -> None:
    """Not for ever the first of more than fit into a report."""
    await world.etcd.swap_region(RegionRecord("eu", status=RegionStatus.DRAINING), 0)
    keys = [QuotaKey("acme", f"r{number:04}") for number in range(2 * MAX_QUOTAS + 10)]
    for key in keys:
        written = await world.etcd.swap(key, 0, split(100, eu=40))
        assert written is not None
        await world.store.apply(key, split(100, eu=40), written, world.clock.now())
    for _ in range(3):
        await world.attendance.attend()
        await world.attendance.report()
        world.clock.seconds += 5
        for _, word in await world.etcd.demand():
            await world.store.apply(word.key, split(100), world.etcd.revision, world.clock.now())
            world.meter.touch(word.key)
    assert 0 == sum(held.slice for held in await world.store.holdings())


class _Altered:
    """A store with calls of its own in front."""

    def __init__(self, store: MemoryRegionStore, apply: Any, holdings_after: Any = None) -> None:
        self._store = store
        self.apply = apply
        self.holdings_after = holdings_after or store.holdings_after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
