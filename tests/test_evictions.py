"""Eviction and readmission, beside others who are at work on the same documents."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct
from tests.clocks import Clock
from tests.core.builders import NOON, OTHER, QUOTA, allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import MemoryHistoryStore
from regionquota.coordinator.leading import Led
from regionquota.coordinator.rounds import run_round
from regionquota.core.allocation import Allocation, Retired, grant
from regionquota.core.history import History, Phase, Standing
from regionquota.core.periods import Calendar, Period, epoch_of, start_of
from regionquota.core.policy import DEFAULT_POLICY
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.rebalancing import Policy
from regionquota.core.recovery import Stated, Statement
from regionquota.errors import EtcdUnavailable, InvalidRequest
from regionquota.evictions import Evicted, Readmitted, evict_region, readmit_region
from regionquota.ports import Presence, RegionRecord, RegionStatus
from regionquota.recovery import evicted_before


class World:
    """us owns 50 of each of two quotas, and has 10 of each in use."""

    def __init__(self) -> None:
        self.clock = Clock(NOON)
        self.etcd = MemoryCoordination(self.clock)
        self.histories = MemoryHistoryStore(self.etcd)

    async def begin(self) -> None:
        await self.histories.swap(History("first"), 0)
        await self.etcd.swap_region(RegionRecord("us"), 0)
        for key in (QUOTA, OTHER):
            await self.etcd.swap(key, 0, allocation(100, us=50))

    async def evict(self, region: Region = "us") -> Evicted:
        return await evict_region(self.etcd, self.etcd, self.histories, region, "off", self.clock)

    async def readmit(self, *, unused: bool = False, lost: bool = False) -> Readmitted:
        return await readmit_region(
            self.etcd, self.etcd, self.histories, "us", self.clock, database_lost=lost, nothing_used=unused
        )

    async def state(self, evictions: int = 1, holds: int = 0, before: int = 0) -> None:
        stated = [Stated(key, Kind.ALLOCATED, 100, False, DEFAULT_POLICY, 9, 0, holds, 10) for key in (QUOTA, OTHER)]
        await self.histories.state(Statement("us", Standing("first", evictions, before), stated))

    async def halt(self) -> None:
        revision, _ = await self.histories.read()
        await self.histories.swap(History("first", Phase.HALTED, NOON, "eu", "it went backwards"), revision)

    async def record(self, region: Region = "us") -> RegionRecord:
        return (await self.etcd.regions())[region].record

    async def is_blind(self, region: Region = "us") -> bool:
        eviction = (await self.record(region)).eviction
        assert eviction is not None
        return eviction.blind

    async def document(self, key: QuotaKey = QUOTA) -> Allocation:
        _, document = await self.etcd.read(key)
        assert document is not None
        return document

    def before_swap(self, number: int, do: Callable[[], Awaitable[Any]]) -> None:
        """Let somebody be faster than the swap of that number, counted from now."""
        swap, left = self.etcd.swap, [number]

        async def slow(*words: Any) -> int | None:
            left[0] -= 1
            if left[0] == 0:
                self.etcd.swap = swap  # type: ignore[method-assign]
                await do()
            return await swap(*words)

        self.etcd.swap = slow  # type: ignore[method-assign]


@pytest.fixture
async def world() -> World:
    made = World()
    await made.begin()
    return made


async def lose_contact() -> None:
    raise EtcdUnavailable("no answer")


async def test_a_round_that_has_read_the_records_before_retires_nothing_again(world: World) -> None:
    await world.evict()
    await world.state()
    records = {"us": await world.record()}
    await world.readmit()
    fence = await world.etcd.lead(await world.etcd.open_session(60), "one")
    assert fence is not None
    await run_round(
        records, world.etcd, world.etcd, Led(1, {0: fence}), Policy(), round_s=1.0, now=NOON, new_id=lambda: "m"
    )
    assert ({"us": 10}, {}) == ((await world.document()).slices, (await world.document()).retired)


async def test_a_round_finishes_an_eviction(world: World) -> None:
    world.before_swap(2, lose_contact)
    with pytest.raises(EtcdUnavailable):
        await world.evict()
    fence = await world.etcd.lead(await world.etcd.open_session(60), "one")
    assert fence is not None
    records = {"us": await world.record()}
    await run_round(
        records, world.etcd, world.etcd, Led(1, {0: fence}), Policy(), round_s=1.0, now=NOON, new_id=lambda: "m"
    )
    for key in (QUOTA, OTHER):
        assert {"us": Retired(50)} == (await world.document(key)).retired


@pytest.mark.parametrize("number", [1, 2])
async def test_a_readmission_that_was_interrupted_is_finished_by_another(world: World, number: int) -> None:
    await world.evict()
    await world.state()
    world.before_swap(number, lose_contact)
    with pytest.raises(EtcdUnavailable):
        await world.readmit()
    assert 10 == sum((await world.readmit()).kept.values()) // (3 - number)
    for key in (QUOTA, OTHER):
        assert ({"us": 10}, {}) == ((await world.document(key)).slices, (await world.document(key)).retired)
    assert RegionStatus.ACTIVE is (await world.record()).status
    with pytest.raises(InvalidRequest, match="is not evicted, it is active"):
        await world.readmit()


async def test_an_eviction_that_a_readmission_overtakes_retires_nothing_any_more(world: World) -> None:
    async def readmit() -> None:
        await world.state()
        await world.readmit()

    world.before_swap(2, readmit)
    with pytest.raises(EtcdUnavailable, match="evicted or readmitted by somebody else"):
        await world.evict()
    for key in (QUOTA, OTHER):
        assert ({"us": 10}, {}) == ((await world.document(key)).slices, (await world.document(key)).retired)


async def test_a_readmission_that_another_eviction_overtakes_frees_nothing_of_it(world: World) -> None:
    await world.evict()
    await world.state()

    async def evict_again() -> None:
        revision, known = await world.etcd.read(OTHER)
        assert known is not None
        await world.etcd.swap(OTHER, revision, grant(known, {"us": 5}))
        await world.evict()

    world.before_swap(2, evict_again)
    with pytest.raises(EtcdUnavailable, match="evicted or readmitted by somebody else"):
        await world.readmit()
    assert {"us": Retired(55)} == (await world.document(OTHER)).retired


async def test_nobody_is_readmitted_while_nothing_moves(world: World) -> None:
    await world.evict()
    await world.halt()
    with pytest.raises(InvalidRequest, match="was halted by eu"):
        await world.readmit(lost=True)
    assert RegionStatus.EVICTED is (await world.record()).status


async def test_what_was_said_while_something_was_held_is_no_evidence(world: World) -> None:
    await world.evict()
    await world.state(holds=50)
    with pytest.raises(InvalidRequest, match="has not said yet"):
        await world.readmit()


async def test_what_a_lost_database_left_retired_can_be_freed_by_a_word(world: World) -> None:
    await world.evict()
    assert {QUOTA: 50, OTHER: 50} == (await world.readmit(lost=True)).still_retired
    with pytest.raises(InvalidRequest, match="--nothing-used"):
        await world.readmit()
    assert {QUOTA: 50, OTHER: 50} == (await world.readmit(unused=True)).freed
    assert 100 == (await world.document()).pool


async def test_a_region_that_etcd_has_forgotten_can_be_evicted_for_a_recovery(world: World) -> None:
    with pytest.raises(InvalidRequest, match='unknown region "ap"'):
        await world.evict("ap")
    await world.halt()
    await world.evict("ap")
    assert (RegionStatus.EVICTED, True) == ((await world.record("ap")).status, await world.is_blind("ap"))


async def test_who_is_evicted_by_the_snapshot_alone_is_told(world: World) -> None:
    await world.evict()
    assert ["us"] == await evicted_before(world.etcd)
    await world.halt()
    await world.evict("ap")
    await world.evict()
    assert [] == await evicted_before(world.etcd)


async def test_an_eviction_of_before_is_blind_if_it_is_said_again_while_nothing_moves(world: World) -> None:
    await world.evict()
    assert not await world.is_blind()
    await world.halt()
    before = await world.record()
    after = (await world.evict()).record
    assert before.eviction is not None
    assert after.eviction == replace(before.eviction, blind=True)


async def test_an_eviction_during_which_etcd_was_found_to_have_gone_backwards_is_blind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = world.etcd.present

    async def slow() -> Sequence[Presence]:
        await world.halt()
        return await present()

    monkeypatch.setattr(world.etcd, "present", slow)
    await world.evict()
    assert await world.is_blind()
    assert {"us": 50} == (await world.document()).slices


async def test_what_a_lost_database_had_in_use_is_not_freed_by_the_word_of_the_next(world: World) -> None:
    await world.evict()
    await world.readmit(lost=True)
    revision, known = await world.etcd.read(QUOTA)
    assert known is not None
    await world.etcd.swap(QUOTA, revision, grant(known, {"us": 20}))
    await world.evict()
    await world.state(evictions=2, before=1)
    done = await world.readmit()
    assert (10, 10, 50) == (done.kept[QUOTA], done.freed[QUOTA], done.still_retired[QUOTA])
    after = await world.document()
    assert ({"us": 10}, {"us": Retired(50, unknown=50)}) == (after.slices, after.retired)


@pytest.mark.parametrize("unused", [True, False])
async def test_what_was_never_used_is_there_for_all_before_the_next_period_begins(*, unused: bool) -> None:
    """The eviction reckons with the period of an hour ahead; in that hour nobody could raise a slice."""
    world = World()
    await world.begin()
    hours = DEFAULT_POLICY if unused else replace(DEFAULT_POLICY, calendar=Calendar(Period.HOUR))
    now = epoch_of(Kind.CONSUMABLE, NOON, hours.calendar)
    revision, known = await world.etcd.read(QUOTA)
    assert known is not None
    await world.etcd.swap(QUOTA, revision, replace_struct(known, kind=Kind.CONSUMABLE, policy=hours, epoch=now))
    world.clock.time = start_of(now + 1, hours.calendar).timestamp() - 60
    await world.evict()
    if not unused:
        await world.histories.state(Statement("us", Standing("first", 1)))
    await world.readmit(unused=unused)
    assert (100, now) == ((await world.document()).pool, (await world.document()).epoch)
