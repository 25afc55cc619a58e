"""Freezing, thawing and rounds, on memory adapters: what a coordinator may do, and what its fence forbids."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.carrying_out import Round
from regionquota.coordinator.leading import Led
from regionquota.coordinator.liveness import Liveness, update
from regionquota.coordinator.rounds import run_round
from regionquota.core.allocation import LimitSource, Move, VersionedLimit, grant, new_allocation, request_moves
from regionquota.core.demand import Demand
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.errors import InvalidRequest, StaleVersion
from regionquota.limits import put_limit
from regionquota.ports import Fence, Frozen, FrozenBy, Presence, RegionRecord, RegionStatus, Session
from regionquota.regions import drain, freeze, set_weight, thaw

QUOTA = QuotaKey("acme", "vcpu")
TTL_S = 10


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def etcd(clock: HandClock) -> MemoryCoordination:
    return MemoryCoordination(clock)


async def lead(etcd: MemoryCoordination, name: str = "one") -> Fence:
    fence = await etcd.lead(await etcd.open_session(TTL_S), name)
    assert fence is not None
    return fence


async def region(etcd: MemoryCoordination, name: str, synchronised: int = 1) -> Session:
    if name not in await etcd.regions():
        await etcd.swap_region(RegionRecord(name), 0)
    session = await etcd.open_session(TTL_S)
    await etcd.announce(session, Presence(name, f"{name}-1", "http://127.0.0.1", synchronised))
    return session


async def record(etcd: MemoryCoordination, name: str) -> RegionRecord:
    return (await etcd.regions())[name].record


async def plan_round(etcd: MemoryCoordination, fence: Fence, clock: HandClock, *, writes_at_once: int = 1) -> Round:
    records, _ = await update(Liveness(0.0), etcd, fence, clock.now())
    ids = itertools.count()
    return await run_round(
        records,
        etcd,
        etcd,
        Led(1, {0: fence}),
        Policy(),
        round_s=10.0,
        now=clock.now(),
        new_id=lambda: f"move-{next(ids)}",
        writes_at_once=writes_at_once,
    )


async def test_a_region_without_a_sign_of_life_is_frozen(etcd: MemoryCoordination, clock: HandClock) -> None:
    fence = await lead(etcd)
    await region(etcd, "eu")
    clock.seconds += TTL_S + 1
    fence = await lead(etcd)
    await update(Liveness(0.0), etcd, fence, clock.now())
    frozen = (await record(etcd, "eu")).frozen
    assert frozen is not None
    assert (FrozenBy.LIVENESS, clock.now()) == (frozen.by, frozen.since)


async def test_a_region_that_shows_a_sign_of_life_just_then_is_not_frozen(
    etcd: MemoryCoordination, clock: HandClock
) -> None:
    await etcd.swap_region(RegionRecord("eu"), 0)
    present = etcd.present

    async def a_moment_too_early() -> Sequence[Presence]:
        seen = await present()
        await region(etcd, "eu")
        return seen

    etcd.present = a_moment_too_early  # type: ignore[method-assign]
    _, changed = await update(Liveness(0.0), etcd, await lead(etcd), clock.now())
    assert ([], None) == (list(changed), (await record(etcd, "eu")).frozen)


async def test_grace_beyond_the_lease_is_waited_for(etcd: MemoryCoordination, clock: HandClock) -> None:
    await etcd.swap_region(RegionRecord("eu"), 0)
    liveness = Liveness(freeze_after_s=5.0)
    fence = await lead(etcd)
    await update(liveness, etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is None
    clock.seconds += 5
    await update(liveness, etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is not None


async def test_one_server_of_a_region_is_enough(etcd: MemoryCoordination, clock: HandClock) -> None:
    await region(etcd, "eu")
    second = await etcd.open_session(10 * TTL_S)
    await etcd.announce(second, Presence("eu", "eu-2", "http://127.0.0.1", 1))
    clock.seconds += TTL_S + 1
    fence = await lead(etcd)
    await update(Liveness(0.0), etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is None


async def test_a_region_thaws_only_after_it_has_read_the_allocations_again(
    etcd: MemoryCoordination, clock: HandClock
) -> None:
    await etcd.swap_region(RegionRecord("eu"), 0)
    fence = await lead(etcd)
    await update(Liveness(0.0), etcd, fence, clock.now())
    frozen_at = (await etcd.regions())["eu"].revision

    await region(etcd, "eu", synchronised=frozen_at - 1)
    await update(Liveness(0.0), etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is not None

    await region(etcd, "eu", synchronised=frozen_at)
    await update(Liveness(0.0), etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is None


async def test_what_an_operator_froze_only_an_operator_thaws(etcd: MemoryCoordination, clock: HandClock) -> None:
    await region(etcd, "eu", synchronised=10**6)
    await freeze(etcd, "eu", "work", clock.now())
    fence = await lead(etcd)
    await update(Liveness(0.0), etcd, fence, clock.now())
    assert (await record(etcd, "eu")).frozen is not None
    assert (await thaw(etcd, "eu")).frozen is None


async def test_an_operators_freeze_goes_over_that_of_liveness(etcd: MemoryCoordination, clock: HandClock) -> None:
    await etcd.swap_region(RegionRecord("eu", frozen=Frozen(FrozenBy.LIVENESS, 1.0, "gone")), 0)
    frozen = (await freeze(etcd, "eu", "work", clock.now())).frozen
    assert frozen is not None
    assert FrozenBy.OPERATOR is frozen.by


async def test_a_round_moves_headroom_and_names_no_frozen_region(etcd: MemoryCoordination, clock: HandClock) -> None:
    allocation = grant(new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1)), {"eu": 45, "us": 45})
    await etcd.swap(QUOTA, 0, request_moves(allocation, [Move("old", "us", "eu", 5)]))
    eu, us = await region(etcd, "eu"), await region(etcd, "us")
    await etcd.report(eu, "eu", "eu-1", [Demand(QUOTA, 45, 45, 0, denied=20, seconds=1.0)])
    await etcd.report(us, "us", "us-1", [Demand(QUOTA, 45, 0, 0)])
    fence = await lead(etcd)

    done = await plan_round(etcd, fence, clock)
    assert {"us"} == {move.source for _, move in done.moves}

    await freeze(etcd, "us", "work", clock.now())
    await plan_round(etcd, fence, clock)
    _, after = await etcd.read(QUOTA)
    assert after is not None
    assert () == after.moves


async def test_a_round_that_changes_nothing_writes_nothing(etcd: MemoryCoordination, clock: HandClock) -> None:
    await etcd.swap(QUOTA, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1)))
    eu = await region(etcd, "eu")
    await etcd.report(eu, "eu", "eu-1", [Demand(QUOTA, 0, 0, 0, denied=1, seconds=1.0)])
    fence = await lead(etcd)
    await plan_round(etcd, fence, clock)
    before = etcd.revision
    await plan_round(etcd, fence, clock)
    assert before == etcd.revision


async def test_a_stalled_coordinators_writes_are_refused(etcd: MemoryCoordination, clock: HandClock) -> None:
    await etcd.swap(QUOTA, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1)))
    stalled = await lead(etcd)
    clock.seconds += TTL_S + 1  # its lease runs out while it is stopped
    fresh = await lead(etcd, "two")
    eu = await region(etcd, "eu")
    await etcd.report(eu, "eu", "eu-1", [Demand(QUOTA, 0, 0, 0, denied=1, seconds=1.0)])

    assert 1 == (await plan_round(etcd, stalled, clock)).lost
    assert 0 == (await plan_round(etcd, fresh, clock)).lost


async def test_limits_newest_version_wins_whoever_comes_last(etcd: MemoryCoordination) -> None:
    await put_limit(etcd, QUOTA, None, LimitSource.PLAN, VersionedLimit(100, 2))
    with pytest.raises(StaleVersion):
        await put_limit(etcd, QUOTA, None, LimitSource.PLAN, VersionedLimit(50, 1))
    with pytest.raises(StaleVersion, match="cannot become consumable"):
        await put_limit(etcd, QUOTA, Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(50, 3))
    revision, again = await put_limit(etcd, QUOTA, None, LimitSource.PLAN, VersionedLimit(100, 2))
    assert (100, etcd.revision) == (again.limit, revision)


async def test_operators_words_on_regions_are_checked_and_kept(etcd: MemoryCoordination) -> None:
    await etcd.swap_region(RegionRecord("eu"), 0)
    assert replace(RegionRecord("eu"), weight=7) == await set_weight(etcd, "eu", 7)
    assert RegionStatus.DRAINING is (await drain(etcd, "eu")).status
    assert RegionStatus.ACTIVE is (await drain(etcd, "eu", back=True)).status
    for weight in (-1, 10_000_001):
        with pytest.raises(InvalidRequest, match="weight"):
            await set_weight(etcd, "eu", weight)
    with pytest.raises(InvalidRequest, match="known are eu"):
        await set_weight(etcd, "mars", 1)


async def test_a_quota_that_cannot_be_planned_does_not_stop_the_others(
    etcd: MemoryCoordination, clock: HandClock
) -> None:
    bad = QuotaKey("aaa", "vcpu")
    for key in (bad, QUOTA):
        await etcd.swap(key, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1)))
    eu = await region(etcd, "eu")
    absurd = Demand(bad, 0, 0, 0, denied=10**400, seconds=1.0)
    await etcd.report(eu, "eu", "eu-1", [absurd, Demand(QUOTA, 0, 0, 0, denied=1, seconds=1.0)])

    done = await plan_round(etcd, await lead(etcd), clock)

    assert [bad] == [key for key, _ in done.failed]
    assert done.granted > 0


class Far(MemoryCoordination):
    """Answers to writes take a while."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.on_their_way = self.most = 0

    async def swap(self, *args: Any) -> int | None:
        self.on_their_way += 1
        self.most = max(self.most, self.on_their_way)
        await asyncio.sleep(0)
        self.on_their_way -= 1
        return await super().swap(*args)


async def test_what_a_round_changes_is_written_several_at_a_time(clock: HandClock) -> None:
    etcd, keys = Far(clock), [QuotaKey("acme", f"r{number}") for number in range(600)]
    for key in keys:
        await etcd.swap(key, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1)))
    eu = await region(etcd, "eu")
    await etcd.report(eu, "eu", "eu-1", [Demand(key, 0, 0, 0, denied=1, seconds=1.0) for key in keys])

    done = await plan_round(etcd, await lead(etcd), clock, writes_at_once=8)

    assert (8, 0) == (etcd.most, done.lost)
    for key in keys:
        _, allocation = await etcd.read(key)
        assert allocation is not None
        assert allocation.slice_of("eu") > 0


async def test_a_floor_is_granted_of_a_quota_that_nobody_has_used(etcd: MemoryCoordination, clock: HandClock) -> None:
    fence = await lead(etcd)
    for name in ("eu", "us"):
        await region(etcd, name)
    rules = {"eu": {"floor": 30}, "gone": {"floor": 20}, "us": {"cap": 0}}
    limit = VersionedLimit(100, 1)
    await put_limit(etcd, QUOTA, Kind.ALLOCATED, LimitSource.PLAN, limit, {"regions": rules})
    await plan_round(etcd, fence, clock)
    _, planned = await etcd.read(QUOTA)
    assert planned is not None
    assert ({"eu": 30}, 70) == (dict(planned.slices), planned.pool)


async def test_a_limit_lowered_below_the_floors_is_planned_all_the_same(
    etcd: MemoryCoordination, clock: HandClock
) -> None:
    fence = await lead(etcd)
    for name in ("eu", "us"):
        await region(etcd, name)
    rules = {"eu": {"floor": 60}, "us": {"floor": 30}}
    await put_limit(etcd, QUOTA, Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(90, 1), {"regions": rules})
    await put_limit(etcd, QUOTA, None, LimitSource.PLAN, VersionedLimit(30, 2))
    done = await plan_round(etcd, fence, clock)
    _, planned = await etcd.read(QUOTA)
    assert planned is not None
    assert ([], {"eu": 20, "us": 10}) == (list(done.failed), dict(planned.slices))
