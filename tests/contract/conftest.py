"""Coordination in memory and in a real etcd, for the same tests."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.clocks import HandClock

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.alert_ports import MarkStore
from regionquota.embedded import EmbeddedEtcd
from regionquota.ports import AllocationStore, Directory


@dataclass
class Coordination:
    allocations: AllocationStore
    directory: Directory
    marks: MarkStore
    compact: Callable[[int], Awaitable[None]]
    elapse: Callable[[float], Awaitable[None]]


@pytest.fixture
async def etcd_coordination(etcd: EmbeddedEtcd) -> AsyncIterator[Coordination]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=10) as client:
        yield Coordination(client.allocations, client.directory, client.marks, client.gateway.compact, asyncio.sleep)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def memory(clock: HandClock) -> MemoryCoordination:
    return MemoryCoordination(clock)


@pytest.fixture
def memory_coordination(clock: HandClock, memory: MemoryCoordination) -> Coordination:
    async def compact(revision: int) -> None:
        memory.compact(revision)

    async def elapse(seconds: float) -> None:
        clock.seconds += seconds

    return Coordination(memory, memory, memory, compact, elapse)


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
