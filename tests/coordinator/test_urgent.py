"""A region that runs short between two rounds is served at once, by the coordinator that leads."""

import asyncio
from collections.abc import AsyncIterator, Container, Sequence

import pytest
from msgspec.structs import replace
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.urgent import MAX_AT_ONCE, Cries
from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    new_allocation,
    request_moves,
)
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.rebalancing import Policy
from regionquota.errors import UnreadableDocument
from regionquota.ports import Fence, Presence, RegionRecord, Session
from regionquota.regions import freeze
from regionquota.urgency_ports import Cry

QUOTA = QuotaKey("acme", "vcpu")
ROUND_S = 3600.0


class Far(MemoryCoordination):
    """Each read of it takes its time, so they are counted. `meanwhile` is written before the next move is."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.reads: list[str] = []
        self.reads_before_a_move: list[str] = []
        self.meanwhile: Allocation | None = None

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        self.reads.append("document")
        return await super().read(key)

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]:
        self.reads.append("demand")
        return await super().demand(buckets)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        if allocation.moves:
            self.reads_before_a_move = list(self.reads)
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                await super().swap(key, revision, meanwhile)
        return await super().swap(key, revision, allocation, fence)


@pytest.fixture
def etcd() -> Far:
    return Far()


async def region(etcd: MemoryCoordination, name: str) -> Session:
    await etcd.swap_region(RegionRecord(name), 0)
    session = await etcd.open_session(1000)
    await etcd.announce(session, Presence(name, f"{name}-1", "", 1))
    return session


def says(in_use: int, denied: int = 0, slice_: int = 50) -> Demand:
    return Demand(QUOTA, slice_, in_use, 0, granted=10, denied=denied, seconds=1.0)


@pytest.fixture
async def coordinator(etcd: Far) -> AsyncIterator[Coordinator]:
    """It has made its round, and makes the next in an hour."""
    first = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
    await etcd.swap(QUOTA, 0, grant(first, {"eu": 50, "us": 50}))
    one = Coordinator(
        "one",
        etcd,
        etcd,
        HandClock(),
        Policy(),
        Tempo(ROUND_S, 1000, 0.0, 0.05),
        cries=Cries(etcd, fresh_s=5.0),
        documents=Shelves(etcd, relist_interval_s=3600),
    )
    one.start()
    await asyncio.sleep(0.05)
    yield one
    await one.stop()


async def document(etcd: MemoryCoordination) -> Allocation:
    _, known = await MemoryCoordination.read(etcd, QUOTA)
    assert known is not None
    return known


async def planned(etcd: MemoryCoordination, *, within_s: float = 5.0) -> Allocation:
    async with asyncio.timeout(within_s):
        while not (await document(etcd)).moves:
            await asyncio.sleep(0.01)
    return await document(etcd)


async def begun(etcd: MemoryCoordination, coordinator: Coordinator) -> dict[str, Session]:
    sessions = {name: await region(etcd, name) for name in ("eu", "us")}
    await coordinator.hold()
    await coordinator.plan()  # it has heard of both regions
    await etcd.report(sessions["us"], "us", "us-1", [says(0)])
    await etcd.report(sessions["eu"], "eu", "eu-1", [says(0)])
    return sessions


async def test_a_cry_is_planned_at_once(etcd: MemoryCoordination, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    (move,) = (await planned(etcd)).moves
    assert ("us", "eu") == (move.source, move.target)
    assert 0 < move.amount <= 50


async def test_what_an_idle_region_gives_is_asked_for_without_reading(etcd: Far, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    for name, session in sessions.items():
        await etcd.report(session, name, f"{name}-1", [replace(says(0), granted=0)])
    await coordinator.plan()
    etcd.reads.clear()
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await planned(etcd)
    assert [] == etcd.reads_before_a_move


async def test_a_busy_region_is_not_asked_by_what_it_said_before(etcd: Far, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    await coordinator.plan()
    etcd.reads.clear()
    await etcd.report(sessions["us"], "us", "us-1", [says(48)])
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    (move,) = (await planned(etcd)).moves
    assert (["demand"], 1) == (etcd.reads_before_a_move, move.amount)


async def test_a_move_of_a_region_that_has_said_nothing_stands_and_helps_all_the_same(
    etcd: Far, coordinator: Coordinator
) -> None:
    sessions = await begun(etcd, coordinator)
    revision, known = await etcd.read(QUOTA)
    assert known is not None
    await etcd.swap(QUOTA, revision, request_moves(known, [Move("1", "ap", "eu", 5)]))
    etcd.reads.clear()
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await asyncio.sleep(0.2)
    assert (["ap"], ["demand"]) == ([move.source for move in (await document(etcd)).moves], etcd.reads)
    await etcd.swap(QUOTA, (await etcd.read(QUOTA))[0], request_moves(await document(etcd), []))
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=4),)))
    assert ["us"] == [move.source for move in (await planned(etcd)).moves]


async def test_a_document_that_has_changed_meanwhile_is_planned_once_more(etcd: Far, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    limit = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(80, 2))
    etcd.meanwhile = grant(limit, {"eu": 50, "us": 30})
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    found = await planned(etcd)
    assert (80, "us") == (found.limit, found.moves[0].source)


async def test_a_coordinator_that_does_not_lead_plans_nothing(
    etcd: MemoryCoordination, coordinator: Coordinator
) -> None:
    sessions = await begun(etcd, coordinator)
    await coordinator._election._session.close()  # type: ignore[union-attr]
    assert await etcd.lead(await etcd.open_session(1000), "two") is not None
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await asyncio.sleep(0.3)
    assert () == (await document(etcd)).moves


async def test_who_cried_a_moment_ago_is_not_asked_to_give(etcd: MemoryCoordination, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    await etcd.cry(sessions["us"], Cry("us", "us-1", (says(50, denied=3),)))
    (move,) = (await planned(etcd)).moves
    assert "eu" == move.source
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await asyncio.sleep(0.3)
    assert () == (await document(etcd)).moves


async def test_other_quotas_are_left_alone(etcd: MemoryCoordination, coordinator: Coordinator) -> None:
    sessions = await begun(etcd, coordinator)
    other = QuotaKey("acme", "disk")
    idle = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
    revision = await etcd.swap(other, 0, grant(idle, {"eu": 90}))
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await planned(etcd)
    assert revision == (await etcd.read(other))[0]


async def test_a_region_that_was_frozen_since_the_last_round_is_not_asked(
    etcd: MemoryCoordination, coordinator: Coordinator
) -> None:
    sessions = await begun(etcd, coordinator)
    await freeze(etcd, "us", "work", 0.0)
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", (says(50, denied=3),)))
    await asyncio.sleep(0.3)
    assert () == (await document(etcd)).moves


async def test_a_document_that_cannot_be_read_delays_no_other(
    etcd: MemoryCoordination, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = await begun(etcd, coordinator)
    damaged, read = QuotaKey("acme", "disk"), etcd.read

    async def read_unless_damaged(key: QuotaKey) -> tuple[int, Allocation | None]:
        if key == damaged:
            raise UnreadableDocument(f"cannot read {key}")
        return await read(key)

    monkeypatch.setattr(etcd, "read", read_unless_damaged)
    words = (replace(says(50, denied=3), key=damaged), says(50, denied=3))
    await etcd.cry(sessions["eu"], Cry("eu", "eu-1", words))
    assert "us" == (await planned(etcd)).moves[0].source


async def heard_by(etcd: MemoryCoordination, cries: Cries, *said: Cry) -> None:
    session = await etcd.open_session(1000)
    listening = asyncio.create_task(cries.listen())
    await asyncio.sleep(0)
    for cry in said:
        await etcd.cry(session, cry)
    await asyncio.sleep(0.01)
    listening.cancel()


async def test_a_cry_that_was_not_planned_yet_is_not_forgotten_for_the_next(etcd: MemoryCoordination) -> None:
    cries = Cries(etcd, fresh_s=5.0)
    other = replace(says(50, denied=3), key=QuotaKey("acme", "disk"))
    await heard_by(etcd, cries, Cry("eu", "eu-1", (says(50, denied=3),)), Cry("eu", "eu-1", (other,)))
    assert {QUOTA, other.key} == {word.key for _, word in (await cries.take()).short}


async def test_of_many_cries_some_are_planned_and_the_others_next_unless_they_are_old(etcd: MemoryCoordination) -> None:
    words = tuple(replace(says(50), key=QuotaKey("acme", f"r{number}")) for number in range(MAX_AT_ONCE + 10))
    cries = Cries(etcd, fresh_s=5.0)
    await heard_by(etcd, cries, Cry("eu", "eu-1", words))
    assert [MAX_AT_ONCE, 10] == [len((await cries.take()).short) for _ in range(2)]
    old = Cries(etcd, fresh_s=0.0)
    await heard_by(etcd, old, Cry("eu", "eu-1", words))
    assert [] == (await old.take()).short
