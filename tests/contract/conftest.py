"""Coordination in memory and in a real etcd, for the same tests."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.embedded import EmbeddedEtcd, scratch_directory
from regionquota.ports import AllocationStore, Directory


@dataclass
class ManualClock:
    time: float = 1_800_000_000.0

    def now(self) -> float:
        return self.time


@dataclass
class Coordination:
    allocations: AllocationStore
    directory: Directory
    compact: Callable[[int], Awaitable[None]]
    elapse: Callable[[float], Awaitable[None]]


@pytest.fixture(scope="session")
async def etcd() -> AsyncIterator[EmbeddedEtcd]:
    with scratch_directory() as directory:
        server = EmbeddedEtcd(directory / "etcd", unsafe_no_fsync=True)
        await server.start()
        yield server
        await server.stop()


@pytest.fixture
async def etcd_coordination(etcd: EmbeddedEtcd) -> AsyncIterator[Coordination]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=10) as client:
        yield Coordination(client.allocations, client.directory, client.gateway.compact, asyncio.sleep)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryCoordination:
    return MemoryCoordination(clock)


@pytest.fixture
def memory_coordination(clock: ManualClock, memory: MemoryCoordination) -> Coordination:
    async def compact(revision: int) -> None:
        memory.compact(revision)

    async def elapse(seconds: float) -> None:
        clock.time += seconds

    return Coordination(memory, memory, compact, elapse)


@pytest.fixture(params=["memory", "etcd"])
def coordination(request: pytest.FixtureRequest) -> Coordination:
    chosen: Coordination = request.getfixturevalue(f"{request.param}_coordination")
    return chosen


@pytest.fixture
def allocations(coordination: Coordination) -> AllocationStore:
    return coordination.allocations


@pytest.fixture
def directory(coordination: Coordination) -> Directory:
    return coordination.directory


@pytest.fixture
def compact(coordination: Coordination) -> Callable[[int], Awaitable[None]]:
    """Forget the history before a revision."""
    return coordination.compact


@pytest.fixture
def elapse(coordination: Coordination) -> Callable[[float], Awaitable[None]]:
    return coordination.elapse
