"""Several coordinators, each leading its part of the groups of buckets."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clocks import HandClock
from tests.core.builders import allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.alerts import Alerts
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.core.alerts import Mark
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, GROUPS, group_of, shares
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.rebalancing import Policy
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Fence, Presence, RegionRecord, Session, Stored

KEYS = tuple(QuotaKey(f"tenant-{number}", "vcpu") for number in range(48))
TTL_S = 10
NAMES = ("one", "two", "three")


class WatchedCoordination(MemoryCoordination):
    """Memory, which notes who leads the group of each document that a leader writes or tries to."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.planned: list[tuple[QuotaKey, str]] = []
        self.refused: list[QuotaKey] = []
        self.calls: Counter[str] = Counter()
        self.lost_answers = 0

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        written = await super().swap(key, revision, allocation, fence)
        if fence is not None and written is None:
            self.refused.append(key)
        elif fence is not None:
            leader = (await self.leadership()).leaders[group_of(key)]
            assert leader.since == fence.create_revision, "a fence of another group was enough"
            self.planned.append((key, leader.name))
        return written

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        self.calls["list"] += 1
        return await super().list(buckets)

    async def demand(self, *args: object) -> Sequence[tuple[Region, Demand]]:
        self.calls["demand"] += 1
        return await super().demand(*args)  # type: ignore[arg-type]

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        fence = await super().lead(session, name, group)
        if self.lost_answers:
            self.lost_answers -= 1
            raise EtcdUnavailable("the answer was lost")
        return fence


class World:
    """Regions eu, short of everything, and us, which has it all."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.etcd = WatchedCoordination(self.clock)
        self.told: list[QuotaKey] = []
        self.regions: dict[str, Session] = {}

    def coordinator(self, name: str, *, groups: int = GROUPS, freeze_after: float = 0.0) -> Coordinator:
        alerts = Alerts(self.etcd, [80], lambda crossing: self.told.append(crossing.key))
        tempo = Tempo(10.0, TTL_S, freeze_after)
        return Coordinator(name, self.etcd, self.etcd, self.clock, Policy(), tempo, groups=groups, alerts=alerts)

    async def begin(self) -> None:
        for name in ("eu", "us"):
            await self.etcd.swap_region(RegionRecord(name), 0)
            self.regions[name] = await self.etcd.open_session(10**6)
            await self.etcd.announce(self.regions[name], Presence(name, f"{name}-1", "", 1))
        await self.etcd.swap_all([(key, 0, allocation(100, us=90)) for key in KEYS])
        await self.say(0)

    async def say(self, used: int) -> None:
        """Of every quota `used` units are used in us, and some are denied in eu."""
        await self.etcd.report(
            self.regions["eu"], "eu", "eu-1", [Demand(key, 0, 0, 0, denied=40, seconds=1.0) for key in KEYS]
        )
        await self.etcd.report(self.regions["us"], "us", "us-1", [Demand(key, 90, used, 0) for key in KEYS])

    async def settle(self, *coordinators: Coordinator) -> None:
        for _ in range(3):
            for one in coordinators:
                await one.hold()

    async def pass_(self, seconds: float, *living: Coordinator) -> None:
        """Those who live keep their leases meanwhile."""
        for _ in range(int(seconds)):
            self.clock.seconds += 1
            for one in living:
                await one.hold()

    async def leaders(self) -> dict[int, str]:
        return {group: leader.name for group, leader in (await self.etcd.leadership()).leaders.items()}


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def test_one_that_is_alone_leads_all_groups_with_one_look_at_demand(world: World) -> None:
    one = world.coordinator("one")
    await one.hold()
    assert dict.fromkeys(range(GROUPS), "one") == await world.leaders()
    await one.plan()
    assert set(KEYS) == {key for key, _ in world.etcd.planned}
    assert 1 == world.etcd.calls["demand"]


async def test_every_group_is_planned_by_the_one_that_is_to_lead_it(world: World) -> None:
    coordinators = [world.coordinator(name) for name in NAMES]
    await world.settle(*coordinators)
    assert shares(NAMES) == await world.leaders()
    for one in coordinators:
        await one.plan()
    assert sorted((key, shares(NAMES)[group_of(key)]) for key in KEYS) == sorted(world.etcd.planned)
    assert [] == world.etcd.refused


async def test_a_group_that_is_led_is_not_taken_from_its_leader(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await one.hold()
    await two.hold()
    await two.plan()
    assert {"one"} == set((await world.leaders()).values())
    assert not two.led


async def test_a_new_one_gets_its_part_and_gives_it_back_when_it_goes(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await world.settle(one)
    await world.settle(two, one)
    assert shares(["one", "two"]) == await world.leaders()
    await two.stop()
    await one.hold()
    assert dict.fromkeys(range(GROUPS), "one") == await world.leaders()


async def test_the_groups_of_one_that_is_killed_are_taken_over_when_its_lease_ends(world: World) -> None:
    one, two, three = (world.coordinator(name) for name in NAMES)
    await world.settle(one, two, three)
    await world.pass_(TTL_S - 1, two, three)
    assert shares(NAMES) == await world.leaders()
    await world.pass_(1, two, three)
    await world.pass_(1, two, three)
    assert shares(["two", "three"]) == await world.leaders()


async def test_what_one_that_stood_still_wanted_to_write_is_refused(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await world.settle(one, two)
    stalled = {key for key in KEYS if group_of(key) in one.led.fences}
    await world.pass_(TTL_S + 2, two)
    await one.plan()  # it has not heard
    assert stalled == set(world.etcd.refused)
    assert [] == world.etcd.planned
    await two.plan()
    assert sorted(KEYS) == sorted(key for key, _ in world.etcd.planned)
    await world.settle(one, two)
    assert shares(["one", "two"]) == await world.leaders()


async def test_a_round_that_is_under_way_is_finished_before_a_group_is_given_up(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await one.hold()
    await two.hold()
    held_up, going_on = asyncio.Event(), asyncio.Event()
    read = world.etcd.demand

    async def slowly(*args: object) -> Sequence[tuple[Region, Demand]]:
        held_up.set()
        await going_on.wait()
        return await read(*args)

    world.etcd.demand = slowly  # type: ignore[method-assign]
    round_ = asyncio.create_task(one.plan())
    await held_up.wait()
    await one.hold()
    await two.hold()
    assert {"one"} == set((await world.leaders()).values())
    assert GROUPS // 2 == len(one.led.fences)
    going_on.set()
    await round_
    assert sorted(KEYS) == sorted(key for key, _ in world.etcd.planned)
    await two.hold()
    assert shares(["one", "two"]) == await world.leaders()


async def test_what_was_to_be_given_up_is_kept_if_nobody_else_is_left(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await one.hold()
    await two.hold()
    one._planning += 1
    await one.hold()
    await two.stop()
    await one.hold()
    one._planning -= 1
    await one.hold()
    assert GROUPS == len(one.led.fences)
    assert dict.fromkeys(range(GROUPS), "one") == await world.leaders()


async def test_who_was_not_answered_finds_out_what_it_leads(world: World) -> None:
    one = world.coordinator("one")
    world.etcd.lost_answers = 1
    with pytest.raises(EtcdUnavailable):
        await one.hold()
    await one.hold()
    assert GROUPS == len(one.led.fences)


async def test_a_process_that_begins_anew_under_its_name_does_not_lead_by_the_leases_of_the_last(world: World) -> None:
    before, after = world.coordinator("one"), world.coordinator("one")
    await before.hold()
    await after.hold()
    assert not after.led
    await world.pass_(TTL_S + 1, after)
    assert GROUPS == len(after.led.fences)


async def test_only_the_leader_of_the_first_group_freezes_and_thaws(world: World) -> None:
    coordinators = {name: world.coordinator(name) for name in NAMES}
    await world.settle(*coordinators.values())
    first = shares(NAMES)[0]
    await world.regions["eu"].close()
    for name, one in coordinators.items():
        if name != first:
            await one.plan()
    assert (await world.etcd.regions())["eu"].record.frozen is None
    await coordinators[first].plan()
    assert (await world.etcd.regions())["eu"].record.frozen is not None


async def test_who_watches_over_regions_again_grants_the_grace_anew(world: World) -> None:
    """What it remembers of its last time may be long over."""
    one = world.coordinator("one", freeze_after=20.0)
    await one.hold()
    await world.regions["eu"].close()
    await one.plan()
    await one.stop()
    world.clock.seconds += 100  # in which the region was there
    await one.hold()
    await one.plan()
    assert (await world.etcd.regions())["eu"].record.frozen is None
    await world.pass_(20, one)
    await one.plan()
    assert (await world.etcd.regions())["eu"].record.frozen is not None


async def test_each_leader_tells_of_its_own_quotas(world: World) -> None:
    coordinators = [world.coordinator(name) for name in NAMES]
    await world.settle(*coordinators)
    await world.say(85)
    for _ in range(2):
        for one in coordinators:
            await one.plan()
    assert sorted(KEYS) == sorted(world.told)


async def test_marks_of_others_quotas_are_left_alone(world: World) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    await world.settle(one, two)
    gone = next(key for n in range(99) if group_of(key := QuotaKey(f"gone-{n}", "vcpu")) in two.led.fences)
    await world.etcd.swap_mark(gone, 0, Mark(80, 0, 0.0), two.led.fence_of(gone))
    await one.plan()
    assert [gone] == list(await world.etcd.marks())
    await two.plan()
    assert {} == await world.etcd.marks()


@given(
    st.lists(st.tuples(st.sampled_from(["hold", "plan", "wait", "stop", "kill"]), st.sampled_from(NAMES)), max_size=40)
)
async def test_whatever_comes_and_goes_every_group_has_one_leader_in_the_end(deeds: Sequence[tuple[str, str]]) -> None:
    world = World()
    await world.begin()
    living: dict[str, Coordinator] = {}
    for number, (deed, name) in enumerate(deeds):
        # A name is used once: two lives of one are another test's.
        one = living.setdefault(name, world.coordinator(f"{name}-{number}"))
        match deed:
            case "hold":
                await one.hold()
            case "plan":
                await one.plan()
            case "wait":
                world.clock.seconds += TTL_S / 2
            case "stop":
                await living.pop(name).stop()
            case "kill":
                del living[name]
    last = [*living.values(), world.coordinator("last")]
    await world.pass_(TTL_S + 3, *last)
    led = [group for one in last for group in one.led.fences]
    assert list(range(GROUPS)) == sorted(led)
    assert sorted(await world.leaders()) == sorted(led)
    world.etcd.refused.clear()
    for one in last:
        await one.plan()
    assert [] == world.etcd.refused


# -- a coordinator of a release that knows of no groups --


async def test_while_an_old_one_leads_the_new_ones_do_not(world: World) -> None:
    old, new = world.coordinator("old", groups=1), world.coordinator("new")
    await old.hold()
    await new.hold()
    await new.plan()
    assert not new.led
    await old.stop()
    await new.hold()
    assert GROUPS == len(new.led.fences)


async def test_when_an_old_one_comes_to_lead_the_new_ones_give_up_all_they_have(world: World) -> None:
    new, old = world.coordinator("new"), world.coordinator("old", groups=1)
    await new.hold()
    await old.hold()
    assert not old.led
    await world.etcd.resign(new.led.fences[0])
    await old.hold()
    await new.hold()
    assert {0: "old"} == await world.leaders()
    assert not new.led
