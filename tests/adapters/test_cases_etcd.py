"""What an etcd cluster does to those who rely on it: it changes its leader, it forgets its history."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON, QUOTA, allocation

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.rebalancing import Policy
from regionquota.embedded import EmbeddedEtcd, free_ports
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Presence, RegionRecord, Session, Stored
from regionquota.region.follower import Follower

LEASE_S = 6
NAMES = ("one", "two", "three")


class SystemClock:
    def now(self) -> float:
        return time.time()


# -- a change of leader --


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Sequence[EmbeddedEtcd]]:
    """Three members, patient with each other: a busy machine must not make them elect."""
    peers = free_ports(len(NAMES))
    everybody = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(NAMES, peers, strict=True))
    patience = ("--heartbeat-interval", "100", "--election-timeout", "1000")
    members = [
        EmbeddedEtcd(
            directory / name,
            peer_port=port,
            unsafe_no_fsync=True,
            extra=("--name", name, "--initial-cluster", everybody, *patience),
        )
        for name, port in zip(NAMES, peers, strict=True)
    ]
    try:
        await asyncio.gather(*(member.start() for member in members))
        yield members
    finally:
        for member in members:
            await member.kill()


async def ask(member: EmbeddedEtcd, path: str, body: Any) -> Any:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http,
        http.post(f"http://{member.endpoint}{path}", json=body) as answer,
    ):
        return await answer.json()


async def leads(member: EmbeddedEtcd) -> bool:
    status = await ask(member, "/v3/maintenance/status", {})
    return bool(status["leader"] == status["header"]["member_id"])


async def left_of(lease: int, members: Sequence[EmbeddedEtcd]) -> int:
    """Whole seconds; 0 while nobody leads, or if it is over."""
    for member in members:
        if member.running:
            try:
                return int((await ask(member, "/v3/lease/timetolive", {"ID": lease})).get("TTL", 0))
            except (aiohttp.ClientError, TimeoutError, ValueError):
                continue
    return 0


async def join(client: EtcdClient, name: str, ttl_s: int, demand: Demand) -> Session:
    session = await client.directory.open_session(ttl_s)
    await client.directory.swap_region(RegionRecord(name), 0)
    await client.directory.announce(session, Presence(name, f"{name}-1", "http://127.0.0.1", 1))
    await client.directory.report(session, name, f"{name}-1", [demand])
    return session


async def slices(client: EtcdClient) -> dict[str, int]:
    """As soon as a member answers."""
    while True:
        try:
            _, document = await client.allocations.read(QUOTA)
        except EtcdUnavailable:
            await asyncio.sleep(0.05)
        else:
            assert document is not None
            return dict(document.slices)


@pytest.mark.timeout(90)
async def test_a_lease_that_a_change_of_leader_prolongs_moves_no_capacity(tmp_path: Path) -> None:
    """`us` is gone with 45 units, and `eu` wants them: neither the longer life of its lease nor its end gives them."""
    async with (
        cluster(tmp_path) as members,
        EtcdClient.connect([member.endpoint for member in members], timeout_s=1) as client,
    ):
        await client.allocations.swap(QUOTA, 0, allocation(90, eu=45, us=45))
        await join(client, "eu", 60, Demand(QUOTA, 45, 45, 0, denied=20, seconds=1.0))
        gone: Any = await join(client, "us", LEASE_S, Demand(QUOTA, 45, 0, 0, seconds=1.0))
        rounds: list[object] = []
        coordinator = Coordinator(
            "here",
            client.allocations,
            client.directory,
            SystemClock(),
            Policy(),
            Tempo(interval=0.1, leader_ttl=5, freeze_after=0.0),
            on_round=lambda done, _: rounds.append(done),
        )
        coordinator.start()
        try:
            await asyncio.sleep(LEASE_S / 2)
            left = await left_of(gone.lease, members)
            [leader] = [member for member in members if await leads(member)]
            await leader.kill()
            async with asyncio.timeout(30):
                while (now_left := await left_of(gone.lease, members)) <= left:
                    left = now_left or left
                    await asyncio.sleep(0.1)
            before = len(rounds)
            async with asyncio.timeout(30):
                while not await is_frozen(client, "us"):
                    assert {"eu": 45, "us": 45} == await slices(client)
                    await asyncio.sleep(0.1)
                while len(rounds) < before + 5:
                    await asyncio.sleep(0.1)
            assert {"eu": 45, "us": 45} == await slices(client)
        finally:
            await coordinator.stop()


async def is_frozen(client: EtcdClient, name: str) -> bool:
    try:
        return (await client.directory.regions())[name].record.frozen is not None
    except EtcdUnavailable:
        return False


# -- compaction --


class CompactedMeanwhile:
    """etcd, where the document changes and its history is forgotten between the first list and the watch."""

    def __init__(self, client: EtcdClient, changes: Sequence[Allocation]) -> None:
        self._client = client
        self._changes = list(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client.allocations, name)

    async def list(self) -> tuple[int, Sequence[Stored]]:
        listed = await self._client.allocations.list()
        revision, _ = await self.read(QUOTA)
        if self._changes:
            while self._changes:
                revision = await self.swap(QUOTA, revision, self._changes.pop(0))
            await self._client.gateway.compact(revision)
        return listed


async def test_a_watch_that_begins_at_a_compacted_revision_is_followed_by_a_list_that_misses_nothing(
    etcd: EmbeddedEtcd,
) -> None:
    async with EtcdClient.connect([etcd.endpoint], prefix="/compacted/", timeout_s=10) as client:
        await client.allocations.swap(QUOTA, 0, allocation(100, eu=40))
        store = MemoryRegionStore("eu")
        changing: Any = CompactedMeanwhile(client, [allocation(100, eu=30), allocation(100, eu=20, us=70)])
        follower = Follower("eu", changing, store, HandClock(NOON), relist_interval_s=60)

        await asyncio.wait_for(follower.follow(), 10)  # ends: there is no watch from where the list was
        following = asyncio.create_task(follower.follow())
        try:
            async with asyncio.timeout(10):
                while (held := await store.holding(QUOTA)) is None or held.slice != 20:
                    await asyncio.sleep(0.01)
        finally:
            following.cancel()
