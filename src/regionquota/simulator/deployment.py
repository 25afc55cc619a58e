"""The product itself, region by region, in virtual time: agents, services, coordinator and planner as they are shipped."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.documents import Documents
from regionquota.coordinator.rounds import Round
from regionquota.coordinator.urgent import Cries
from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.commands import Charge, Command, Granted, Outcome
from regionquota.core.quota import GLOBAL_SCOPE, Kind, QuotaKey, Region
from regionquota.limits import put_limit
from regionquota.ports import RegionRecord, Stored
from regionquota.region.agent import Agent, Pace
from regionquota.region.attendance import Attendance
from regionquota.region.budgets import Budgets
from regionquota.region.claims import Claims
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.room import Room
from regionquota.region.service import Asked, RegionService
from regionquota.region.steps import Step
from regionquota.region.sweeper import SweepOnDemand
from regionquota.region.urgency import Urgency
from regionquota.regions import set_weight
from regionquota.simulator import rivals
from regionquota.simulator.demand import Request, Workload
from regionquota.simulator.network import FarEtcd, Link
from regionquota.simulator.scenario import EventPart, Scenario
from regionquota.simulator.settings import Settings
from regionquota.simulator.store import LeanStore

KEY: Final = QuotaKey("tenant", "units", GLOBAL_SCOPE)
EPOCH: Final = 1_800_000_000.0
PERIOD_S: Final = 60.0
"""A bin of the scenario is a minute of virtual time: the shortest period of a quota. All other times go with it."""
SAMPLES_A_BIN: Final = 4


class VirtualClock:
    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()


@dataclass
class RegionServer:
    name: Region
    link: Link
    store: LeanStore
    service: RegionService
    agent: Agent
    admitted: dict[int, int] = field(default_factory=dict)
    """Units by bin."""


class Deployment:
    """`claims` and `urgent` False: nothing moves but in rounds."""

    def __init__(self, work: Workload, scenario: Scenario, settings: Settings, *, fast_paths: bool) -> None:
        self.work = work
        self.scenario = scenario
        self.pace = PERIOD_S / work.bin_s
        self.settings = settings
        self.fast_paths = fast_paths
        self.clock = VirtualClock()
        self.etcd = MemoryCoordination(self.clock)
        self.outcome = rivals.Outcome(by_region=dict.fromkeys(work.regions, 0))
        self.regions = [self._region(name) for name in work.regions]
        self.coordinator_link = Link(0.0, settings.timeout_s * self.pace)
        self.coordinator = self._coordinator()
        self._units: dict[int, int] = {}

    def _region(self, name: Region) -> RegionServer:
        settings, pace, clock = self.settings, self.pace, self.clock
        link = Link(self.scenario.regions[name].round_trip_s * pace, settings.timeout_s * pace)
        etcd, store, meter, room = FarEtcd(self.etcd, link), LeanStore(name), DemandMeter(clock_start()), Room()
        follower = Follower(
            name, etcd, store, clock,
            relist_interval_s=settings.relist_interval_s * pace, on_step=self._watch_steps(meter, room),
        )  # fmt: skip
        attendance = Attendance(
            name, name, "", etcd, store, follower, meter, clock, ttl_s=max(1, round(settings.liveness_ttl_s * pace))
        )
        urgency = Urgency(
            name,
            name,
            etcd,
            store,
            meter,
            clock,
            attendance.session,
            pause_s=settings.urgent_pause_s * pace,
            lead_s=settings.urgent_lead_s * pace,
        )
        claims = Claims(
            name, etcd, store, follower, clock,
            share=settings.claim_share, join_timeout_s=settings.timeout_s * pace,
            allowed=attendance.may_claim if self.fast_paths else lambda: False, on_claim=self._count_claim,
            on_empty=urgency.run_short if self.fast_paths else lambda _key, _available: None,
        )  # fmt: skip

        async def submit(command: Command, _bucket: int) -> Outcome:
            return (await store.transact([command], clock.now()))[0]

        def freed(key: QuotaKey, units: int) -> None:
            meter.freed(key, units)
            room.made(key)

        service = RegionService(
            submit, store, etcd, follower, claims, meter, clock,
            budgets=Budgets(name, follower.policy_of), overdue=SweepOnDemand(store, clock, 100, freed),
            room=room, freed=freed, suspended=lambda _: None, low_water=settings.low_water,
        )  # fmt: skip
        tempo = Pace(
            attend=settings.liveness_ttl_s * pace / 3,
            report=settings.report_interval_s * pace,
            settle=settings.settle_interval_s * pace,
        )
        return RegionServer(name, link, store, service, Agent(follower, claims, attendance, tempo, urgency))

    def _coordinator(self) -> Coordinator:
        settings, pace = self.settings, self.pace
        etcd = FarEtcd(self.etcd, self.coordinator_link)
        tempo = Tempo(
            settings.interval_s * pace, max(1, round(settings.leader_ttl_s * pace)), 0.0, settings.urgent_pause_s * pace
        )
        return Coordinator(
            "one",
            etcd,
            etcd,
            self.clock,
            settings.policy,
            tempo,
            on_round=self._count_round,
            documents=Documents(etcd, relist_interval_s=settings.relist_interval_s * pace),
            cries=Cries(etcd, fresh_s=settings.report_interval_s * pace) if self.fast_paths else None,
        )

    async def play(self, on_bin: Callable[[int], None] = lambda _: None) -> rivals.Outcome:
        await put_limit(
            self.etcd, KEY, Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(self.work.limit, 1), {"period": "minute"}
        )
        for name, part in self.scenario.regions.items():
            await self.etcd.swap_region(RegionRecord(name, part.weight), 0)
        for region in self.regions:
            region.agent.start()
        self.coordinator.start()
        jobs = [self._drive(number, region) for number, region in enumerate(self.regions)]
        jobs += [self._happen(event) for event in self.scenario.events]
        watching = asyncio.create_task(self._sample(on_bin))
        await asyncio.gather(*jobs)
        watching.cancel()
        for region in self.regions:
            await region.agent.stop()
        await self.coordinator.stop()
        return self._sum_up()

    async def _drive(self, number: int, region: RegionServer) -> None:
        loop = asyncio.get_running_loop()
        waiting = set()
        for serial, request in enumerate(one for one in self.work.requests if one.region == number):
            delay = request.at * self.pace - loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            if self.scenario.wait_s:
                task = asyncio.create_task(self._ask(region, serial, request))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            else:
                await self._ask(region, serial, request)
        await asyncio.gather(*waiting)

    async def _ask(self, region: RegionServer, serial: int, request: Request) -> None:
        asked = Asked((Charge(KEY, request.units),), f"{region.name}-{serial}", 3600)
        began = self.clock.now()
        outcome = await region.service.reserve(asked, self.scenario.wait_s * self.pace)
        if not isinstance(outcome, Granted):
            self.outcome.denied += request.used
            self.outcome.denials.append((request.at, request.region))
            return
        now = self.clock.now()
        if now > began:
            self.outcome.waited.append((now - began) / self.pace)
        bin_ = int((now - EPOCH) // PERIOD_S)
        region.admitted[bin_] = region.admitted.get(bin_, 0) + request.used
        await region.service.commit(outcome.reservation.id, request.used)

    async def _happen(self, event: EventPart) -> None:
        await asyncio.sleep(event.at_s * self.pace)
        if event.what == "weight":
            assert event.region is not None
            await set_weight(self.etcd, event.region, event.weight)
            return
        until = self.work.seconds if event.until_s is None else event.until_s
        if event.what == "coordinator_down":
            await self.coordinator.stop()
            await asyncio.sleep((until - event.at_s) * self.pace)
            self.coordinator = self._coordinator()
            self.coordinator.start()
            return
        link = next(region.link for region in self.regions if region.name == event.region)
        link.cut()
        await asyncio.sleep((until - event.at_s) * self.pace)
        link.restore()

    async def _sample(self, on_bin: Callable[[int], None]) -> None:
        step = PERIOD_S / SAMPLES_A_BIN
        number = 0
        while True:
            at = number * self.work.bin_s / SAMPLES_A_BIN
            self.outcome.slices.append((at, {region.name: self._slice(region) for region in self.regions}))
            if number % SAMPLES_A_BIN == 0:
                on_bin(number // SAMPLES_A_BIN)
            number += 1
            await asyncio.sleep(step)

    def _slice(self, region: RegionServer) -> int:
        held = region.store.held.get(KEY)
        return 0 if held is None else held.slice

    def _sum_up(self) -> rivals.Outcome:
        outcome = self.outcome
        for region in self.regions:
            outcome.by_region[region.name] = sum(region.admitted.values())
            for bin_, units in region.admitted.items():
                self._units[bin_] = self._units.get(bin_, 0) + units
        outcome.admitted = sum(self._units.values())
        outcome.overshoot = max((units - self.work.limit for units in self._units.values()), default=0)
        outcome.overshoot = max(0, outcome.overshoot)
        outcome.etcd_writes = self.coordinator_link.writes + sum(region.link.writes for region in self.regions)
        return outcome

    def _watch_steps(self, meter: DemandMeter, room: Room) -> Callable[[Stored, Step], None]:
        def watch(stored: Stored, step: Step) -> None:
            meter.touch(stored.key)
            room.made(stored.key)
            self.outcome.moves += step.gave > 0

        return watch

    def _count_claim(self, got: int) -> None:
        self.outcome.moves += got > 0

    def _count_round(self, done: Round, _frozen: int) -> None:
        self.outcome.moves += done.granted > 0


def clock_start() -> float:
    return EPOCH


def restricted(work: Workload, scenario: Scenario) -> Workload:
    """Without what nobody asks for, because the region is down with all its services."""
    down: dict[int, list[tuple[float, float]]] = {}
    for event in scenario.events:
        if event.what == "region_down":
            until = work.seconds if event.until_s is None else event.until_s
            down.setdefault(work.regions.index(event.region or ""), []).append((event.at_s, until))
    if not down:
        return work
    left: Sequence[Request] = [
        request
        for request in work.requests
        if not any(begin <= request.at < end for begin, end in down.get(request.region, []))
    ]
    return Workload(work.regions, left, work.limit, work.bin_s, work.bins, work.notes)


def cuts(work: Workload, scenario: Scenario) -> Mapping[int, list[tuple[float, float]]]:
    found: dict[int, list[tuple[float, float]]] = {}
    for event in scenario.events:
        if event.what in ("partition", "region_down"):
            until = work.seconds if event.until_s is None else event.until_s
            found.setdefault(work.regions.index(event.region or ""), []).append((event.at_s, until))
    return found
