"""A region that claims, on memory adapters."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Fence, Stored
from regionquota.region.claims import Claims
from regionquota.region.follower import Follower

QUOTA = QuotaKey("acme", "vcpu")


class CountingCoordination(MemoryCoordination):
    """Memory, with the reads counted and, while `silent`, never answered."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.reads = 0
        self.silent = False
        self.silent_watch = False
        self.failing: set[QuotaKey] = set()
        self.before_swap: list[Allocation] = []
        self.on_lost: Callable[[], Awaitable[object]] | None = None

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        self.reads += 1
        await asyncio.sleep(3600 if self.silent else 0)
        if key in self.failing:
            raise EtcdUnavailable("etcd is away")
        return await super().read(key)

    async def watch(self, after: int) -> AsyncGenerator[Sequence[Stored], None]:
        if self.silent_watch:
            raise EtcdUnavailable("the watch has ended")
        async for batch in super().watch(after):
            yield batch

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        if self.before_swap:
            await super().swap(key, revision, self.before_swap.pop(), fence)
        written = await super().swap(key, revision, allocation, fence)
        if written is None and self.on_lost is not None:
            await self.on_lost()
        return written


@dataclass
class World:
    clock: HandClock = field(default_factory=HandClock)
    allowed: bool = True
    got: list[int] = field(default_factory=list)
    cried: list[tuple[QuotaKey, int]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.etcd = CountingCoordination(self.clock)
        self.store = MemoryRegionStore("eu")
        self.follower = Follower(
            "eu", self.etcd, self.store, self.clock, relist_interval_s=60, on_backwards=self.said.append
        )
        self.claims = Claims(
            "eu",
            self.etcd,
            self.store,
            self.follower,
            self.clock,
            share=0.5,
            join_timeout_s=0.2,
            allowed=lambda: self.allowed,
            takes_part=lambda region: region not in self.absent,
            on_claim=self.got.append,
            on_lack=lambda key, available: self.cried.append((key, available)),
        )

    @property
    def quotas(self) -> list[QuotaKey]:
        return [key for key, _ in self.cried]

    async def set_limit(self, limit: int, **slices: int) -> None:
        allocation = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(limit, 1))
        await self.etcd.swap(QUOTA, 0, grant(allocation, slices) if slices else allocation)

    async def slice(self) -> int:
        holding = await self.store.holding(QUOTA)
        return -1 if holding is None else holding.slice


@pytest.fixture
async def world() -> World:
    return World()
