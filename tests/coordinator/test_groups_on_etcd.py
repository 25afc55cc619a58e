"""Several coordinators on a real etcd, by their own loops: groups are shared out, followed, served and taken over."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from tests.clocks import HandClock
from tests.coordinator.test_groups import KEYS, NAMES
from tests.core.builders import allocation

from regionquota.adapters.etcd import EtcdClient
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.urgent import Cries
from regionquota.core.demand import Demand
from regionquota.core.groups import GROUPS, shares
from regionquota.core.quota import QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.embedded import EmbeddedEtcd
from regionquota.ports import Directory, Presence, RegionRecord, Session, Stored
from regionquota.urgency_ports import Cry


async def until(look: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not look():
            await asyncio.sleep(0.02)


class RealWorld:
    def __init__(self, client: EtcdClient) -> None:
        self.client = client
        self.directory: Directory = client.directory
        self.session: Session

    async def begin(self) -> None:
        self.session = await self.directory.open_session(600)
        for name in ("eu", "us"):
            await self.directory.swap_region(RegionRecord(name), 0)
            await self.directory.announce(self.session, Presence(name, f"{name}-1", "", 1))
        await self.client.allocations.swap_all([(key, 0, allocation(100, us=90)) for key in KEYS])
        await self.directory.report(self.session, "us", "us-1", [Demand(key, 90, 0, 0) for key in KEYS])

    def coordinator(self, name: str) -> Coordinator:
        allocations = self.client.allocations
        return Coordinator(
            name,
            allocations,
            self.directory,
            HandClock(),
            Policy(),
            Tempo(3600.0, 3, 3600.0, 0.01),
            groups=GROUPS,
            documents=Shelves(allocations, relist_interval_s=60),
            cries=Cries(self.client.urgency, fresh_s=5.0),
        )

    @asynccontextmanager
    async def running(self, *coordinators: Coordinator) -> AsyncIterator[None]:
        for one in coordinators:
            one.start()
        try:
            yield
        finally:
            for one in coordinators:
                await one.stop()

    async def cry(self) -> None:
        """In eu, of every quota."""
        words = tuple(Demand(key, 0, 0, 0, denied=3, seconds=1.0) for key in KEYS)
        await self.client.urgency.cry(self.session, Cry("eu", "eu-1", words))


@pytest.fixture
async def real(etcd: EmbeddedEtcd) -> AsyncIterator[RealWorld]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=5) as client:
        world = RealWorld(client)
        await world.begin()
        yield world


def shared_out(*coordinators: Coordinator) -> bool:
    led = [group for one in coordinators for group in one.led.fences]
    return list(range(GROUPS)) == sorted(led)


def _is_served(stored: Stored) -> bool:
    return stored.allocation is not None and stored.allocation.slice_of("eu") > 0


async def test_on_etcd_groups_are_shared_out_taken_over_and_served_at_once(real: RealWorld) -> None:
    one, two, three = (real.coordinator(name) for name in NAMES)
    async with real.running(one, two, three):
        await until(lambda: shared_out(one, two, three) and min(len(x.led.fences) for x in (one, two, three)) >= 5)
        leaders = (await real.directory.leadership()).leaders
        assert shares(NAMES) == {group: leader.name for group, leader in leaders.items()}

        await asyncio.gather(one.plan(), two.plan(), three.plan())
        async with aclosing(real.client.allocations.watch((await real.client.allocations.list())[0])) as changes:
            await real.cry()
            served: set[QuotaKey] = set()
            async with asyncio.timeout(10):
                while served != set(KEYS):
                    served |= {stored.key for stored in await anext(changes) if _is_served(stored)}

        await two.stop()
        await until(lambda: shared_out(one, three))


async def test_on_etcd_one_that_stops_without_a_word_is_replaced_when_its_lease_ends(real: RealWorld) -> None:
    one, two = real.coordinator("one"), real.coordinator("two")
    async with real.running(one):
        await one.hold()
        async with real.running(two):
            await until(lambda: shared_out(one, two) and len(two.led.fences) == GROUPS // 2)
            for task in two._tasks:
                task.cancel()  # as if killed: its leases run out
            await until(lambda: len(one.led.fences) == GROUPS, within_s=10)


async def test_on_etcd_documents_are_followed_of_what_is_led_alone(real: RealWorld) -> None:
    one, two = real.coordinator("one"), real.coordinator("two")
    async with real.running(one, two):
        await until(lambda: shared_out(one, two) and len(two.led.fences) == GROUPS // 2)

        def known(coordinator: Coordinator) -> set[QuotaKey]:
            shelves = [coordinator._documents.complete(group) for group in range(GROUPS)]  # type: ignore[union-attr]
            return {key for shelf in shelves if shelf is not None for key in shelf.all}

        await until(lambda: known(one) | known(two) == set(KEYS))
        assert {key for key in KEYS if key in one.led} == known(one)
        assert set() == known(one) & known(two)
