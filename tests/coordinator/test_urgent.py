"""A region that runs short between two rounds is served at once, by the coordinator that leads."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.urgent import MAX_AT_ONCE, Cries
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.demand import Demand
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.errors import UnreadableDocument
from regionquota.ports import Presence, RegionRecord, Session
from regionquota.regions import freeze
from regionquota.urgency_ports import Cry

QUOTA = QuotaKey("acme", "vcpu")
ROUND_S = 3600.0


@pytest.fixture
def etcd() -> MemoryCoordination:
    return MemoryCoordination(HandClock())


async def region(etcd: MemoryCoordination, name: str) -> Session:
    await etcd.swap_region(RegionRecord(name), 0)
    session = await etcd.open_session(1000)
    await etcd.announce(session, Presence(name, f"{name}-1", "", 1))
    return session


def says(in_use: int, denied: int = 0, slice_: int = 50) -> Demand:
    return Demand(QUOTA, slice_, in_use, 0, granted=10, denied=denied, seconds=1.0)


@pytest.fixture
async def coordinator(etcd: MemoryCoordination) -> AsyncIterator[Coordinator]:
    """It has made its round, and makes the next in an hour."""
    first = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
    await etcd.swap(QUOTA, 0, grant(first, {"eu": 50, "us": 50}))
    one = Coordinator(
        "one", etcd, etcd, HandClock(), Policy(), Tempo(ROUND_S, 1000, 0.0, 0.05), cries=Cries(etcd, fresh_s=5.0)
    )
    one.start()
    await asyncio.sleep(0.05)
    yield one
    await one.stop()


async def document(etcd: MemoryCoordination) -> Allocation:
    _, known = await etcd.read(QUOTA)
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


async def test_a_coordinator_that_does_not_lead_plans_nothing(
    etcd: MemoryCoordination, coordinator: Coordinator
) -> None:
    sessions = await begun(etcd, coordinator)
    await coordinator._session.close()  # type: ignore[union-attr]
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
