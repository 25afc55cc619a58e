"""A region that takes part, on memory adapters."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.demand import Demand
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Session
from regionquota.region.attendance import Attendance
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower

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
