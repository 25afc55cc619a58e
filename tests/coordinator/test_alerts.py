"""Alerts on usage: each crossing is told once in a period, whoever leads, whatever gets lost."""

import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON, QUOTA, allocation, at

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator import alerts as alerts_module
from regionquota.coordinator.alerts import Alerts, Crossing
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.leading import Led
from regionquota.core.alerts import Mark
from regionquota.core.demand import Demand
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Fence, Session

THRESHOLDS = (80, 100)
TTL_S = 10


class LossyCoordination(MemoryCoordination):
    """Memory, where the answer to the next change of a mark is lost while `losing`; `arriving` says if it was made."""

    losing = False
    arriving = True

    async def swap_mark(self, key: QuotaKey, revision: int, mark: Mark | None, fence: Fence) -> int | None:
        written = None
        if self.arriving:
            written = await super().swap_mark(key, revision, mark, fence)
        if self.losing:
            raise EtcdUnavailable("the answer was lost")
        return written


class World:
    """A limit of 100 a month over two regions."""

    def __init__(self) -> None:
        self.clock = HandClock(NOON)
        self.etcd = LossyCoordination(self.clock)
        self.sessions: dict[str, Session] = {}
        self.told: list[tuple[int, int]] = []
        self.alerts = self.process()
        self.led = Led()

    def process(self) -> Alerts:
        """What another coordinator begins with."""
        return Alerts(self.etcd, THRESHOLDS, self.hear)

    def hear(self, crossing: Crossing) -> None:
        self.told.append((crossing.mark.threshold, crossing.used))

    async def begin(self) -> None:
        await self.etcd.swap(QUOTA, 0, allocation(100, kind=Kind.CONSUMABLE, eu=50, us=50))
        await self.lead()

    async def lead(self) -> None:
        self.leading = await self.etcd.open_session(TTL_S)
        fence = await self.etcd.lead(self.leading, "me")
        assert fence is not None
        self.led = Led(1, {0: fence})

    async def go_to(self, instant: float) -> None:
        self.clock.seconds = instant
        await self.lead()

    async def say(self, region: str, used: int) -> None:
        if region not in self.sessions:
            self.sessions[region] = await self.etcd.open_session(10**9)
        epoch = epoch_of(Kind.CONSUMABLE, self.clock.now())
        await self.etcd.report(self.sessions[region], region, "one", [Demand(QUOTA, 50, used, 0, epoch=epoch)])

    async def fall_silent(self, region: str) -> None:
        await self.sessions.pop(region).close()

    async def look(self, by: Alerts | None = None) -> None:
        self.clock.seconds += 1
        await self.leading.keep()
        documents = {stored.key: stored.allocation for stored in (await self.etcd.list())[1]}
        await (by or self.alerts).look(documents.get, await self.etcd.demand(), self.led, self.clock.now())


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def test_usage_that_crosses_a_threshold_and_stays_there_is_told_once(world: World) -> None:
    await world.say("eu", 50)
    for used in (29, 30, 31, 33, 30, 28, 32):
        await world.say("us", used)
        for _ in range(3):
            await world.look()
    assert [(80, 80)] == world.told


async def test_each_threshold_is_told(world: World) -> None:
    await world.say("eu", 50)
    for used in (40, 50, 60):
        await world.say("us", used)
        await world.look()
    assert [(80, 90), (100, 100)] == world.told


async def test_usage_that_crosses_two_thresholds_at_once_is_told_once(world: World) -> None:
    await world.say("eu", 50)
    await world.say("us", 50)
    await world.look()
    assert [(100, 100)] == world.told


async def test_usage_that_fell_and_crosses_again_is_told_again(world: World) -> None:
    await world.say("eu", 50)
    for used in (30, 10, 31):
        await world.say("us", used)
        await world.look()
    assert [(80, 80), (80, 81)] == world.told


async def test_the_same_usage_in_the_next_period_is_told_again(world: World) -> None:
    await world.say("eu", 50)
    await world.say("us", 35)
    await world.look()
    await world.go_to(at(2026, 7, 20))
    await world.say("eu", 45)
    await world.say("us", 35)
    await world.look()
    assert [(80, 85), (80, 80)] == world.told


async def test_what_a_region_at_rest_still_says_of_the_last_period_is_not_told_in_the_next(world: World) -> None:
    await world.say("eu", 85)
    await world.look()
    await world.go_to(at(2026, 7))
    await world.say("us", 2)
    for _ in range(3):
        await world.look()
    await world.fall_silent("us")
    await world.look()
    assert [(80, 85)] == world.told


async def test_a_region_that_falls_silent_and_comes_back_crosses_nothing(world: World) -> None:
    for region in ("eu", "us"):
        await world.say(region, 45)
    await world.look()
    await world.fall_silent("us")
    await world.look()
    await world.say("us", 45)
    await world.look()
    assert [(80, 90)] == world.told


async def test_who_leads_next_tells_nothing_again(world: World) -> None:
    await world.say("eu", 90)
    await world.look()
    await world.leading.close()
    await world.lead()
    await world.look(world.process())
    assert [(80, 90)] == world.told


async def test_who_leads_no_longer_tells_nothing(world: World) -> None:
    await world.say("eu", 90)
    stalled = world.led
    await world.leading.close()
    await world.lead()
    current, world.led = world.led, stalled
    await world.look()
    assert [] == world.told
    world.led = current
    await world.look(world.process())
    assert [(80, 90)] == world.told


@pytest.mark.parametrize("arriving", [True, False])
async def test_a_mark_without_an_answer_is_told_once_when_it_is_known_what_became_of_it(
    world: World, arriving: bool
) -> None:
    await world.say("eu", 90)
    world.etcd.losing, world.etcd.arriving = True, arriving
    with pytest.raises(EtcdUnavailable):
        await world.look()
    assert [] == world.told
    world.etcd.losing, world.etcd.arriving = False, True
    for _ in range(3):
        await world.look()
    assert [(80, 90)] == world.told


async def test_a_quota_that_was_removed_leaves_no_mark(world: World) -> None:
    await world.say("eu", 90)
    await world.look()
    revision, _ = await world.etcd.read(QUOTA)
    await world.etcd.remove(QUOTA, revision)
    await world.look()
    assert {} == await world.etcd.marks()


async def test_what_is_to_be_told_comes_first_and_the_rest_next_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts_module, "MAX_WRITES", 1)
    for gone in ("gone", "gone too"):
        await world.etcd.swap_mark(QuotaKey(gone, "vcpu"), 0, Mark(80, 0, NOON), world.led.fences[0])
    await world.say("eu", 90)
    await world.look()
    assert [(80, 90)] == world.told
    assert 3 == len(await world.etcd.marks())
    for _ in range(2):
        await world.look()
    assert [QUOTA] == list(await world.etcd.marks())


async def test_each_round_of_the_leader_looks(world: World) -> None:
    await world.leading.close()
    coordinator = Coordinator(
        "me", world.etcd, world.etcd, world.clock, Policy(), Tempo(1.0, TTL_S, 0.0), alerts=world.alerts
    )
    await world.say("eu", 90)
    await coordinator.plan()
    assert [] == world.told  # it does not lead yet
    await coordinator.hold()
    for _ in range(3):
        await coordinator.plan()
    assert [(80, 90)] == world.told
