"""The product itself in virtual time: agents, services, coordinator and planner, as they are shipped."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from regionquota.adapters.memory.demand_history import MemoryDemandHistory
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.urgent import Cries
from regionquota.core.allocation import LimitSource, VersionedLimit, grant
from regionquota.core.commands import Charge, Granted
from regionquota.core.quota import Kind
from regionquota.errors import Unavailable
from regionquota.learning_ports import DemandHistory
from regionquota.limits import put_limit
from regionquota.ports import RegionRecord
from regionquota.region.service import Asked
from regionquota.regions import set_weight
from regionquota.simulator.demand import Request, Workload
from regionquota.simulator.events import Happening
from regionquota.simulator.network import FarEtcd, Link
from regionquota.simulator.observed import ObservedEtcd
from regionquota.simulator.outcome import Outcome
from regionquota.simulator.scenario import Scenario
from regionquota.simulator.server import EPOCH, KEY, RegionServer, VirtualClock, start_server
from regionquota.simulator.settings import Settings
from regionquota.simulator.store import LeanStore

SAMPLES_A_BIN: Final = 4
_TTL_S: Final = 3600
_LONGEST_IN_MINUTES: Final = 600.0


def period_of(bin_s: float) -> tuple[str, float]:
    """The quota's period that a bin of the scenario is played in, and its seconds. All other times go with it, so that
    an hour of demand is an hour's quota, and half a minute one of the shortest period there is.
    """
    return ("minute", 60.0) if bin_s <= _LONGEST_IN_MINUTES else ("hour", 3600.0)


class Deployment:
    """`fast_paths` False: nothing moves but in rounds, no claims and nothing urgent.

    All processes have been there for a bin before the scenario begins, and nobody has asked for anything yet.
    """

    def __init__(self, work: Workload, scenario: Scenario, settings: Settings, *, fast_paths: bool) -> None:
        self._work = work
        self._scenario = scenario
        self._settings = settings
        self._fast_paths = fast_paths
        self._period, self._period_s = period_of(work.bin_s)
        self._pace = self._period_s / work.bin_s
        self._clock = VirtualClock()
        self._began = EPOCH + self._period_s
        self._etcd = ObservedEtcd(self._clock, self._began, self._pace)
        self._outcome = Outcome(work.regions, work.limit)
        self._servers: list[RegionServer] = []
        self._coordinator_link = Link(0.0, settings.timeout_s * self._pace)

    async def play(self, on_bin: Callable[[int], None] = lambda _: None) -> Outcome:
        """`on_bin` hears of each bin that begins."""
        quota = self._scenario.quota
        policy = {
            "period": self._period,
            "normal_fill_percent": quota.normal_fill_percent,
            "low_fill_percent": quota.low_fill_percent,
            "regions": {name: msgspec.structs.asdict(rules) for name, rules in quota.regions.items()},
        }
        await put_limit(self._etcd, KEY, Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(self._work.limit, 1), policy)
        await self._hand_out()
        for name, part in self._scenario.regions.items():
            await self._etcd.swap_region(RegionRecord(name, part.weight), 0)
            link = Link(part.round_trip_s * self._pace, self._settings.timeout_s * self._pace)
            self._servers.append(self._server(name, link, LeanStore(name), MemoryDemandHistory()))
        self._coordinator = self._start_coordinator()
        await asyncio.sleep(self._period_s)
        watching = asyncio.create_task(self._sample(on_bin))
        happening = [asyncio.create_task(self._happen(one)) for one in self._work.happenings]
        await asyncio.gather(*(self._drive(number) for number in range(len(self._servers))))
        for task in (watching, *happening):
            task.cancel()
        await asyncio.gather(watching, *happening, return_exceptions=True)
        for server in self._servers:
            await server.stop()
        await self._coordinator.stop()
        return self._sum_up()

    async def _hand_out(self) -> None:
        """The slices that there are in the beginning."""
        revision, allocation = await self._etcd.read(KEY)
        assert allocation is not None
        if self._scenario.quota.slices:
            await self._etcd.swap(KEY, revision, grant(allocation, self._scenario.quota.slices))

    def _server(self, name: str, link: Link, store: LeanStore, history: DemandHistory) -> RegionServer:
        return start_server(
            name, link, store, history, self._etcd, self._settings, self._pace, fast_paths=self._fast_paths
        )

    def _start_coordinator(self) -> Coordinator:
        settings, pace = self._settings, self._pace
        etcd = FarEtcd(self._etcd, self._coordinator_link)
        leader_ttl = max(1, round(settings.leader_ttl_s * pace))
        tempo = Tempo(settings.interval_s * pace, leader_ttl, 0.0, settings.urgent_pause_s * pace)
        cries = Cries(etcd, fresh_s=settings.report_interval_s * pace) if self._fast_paths else None
        documents = Shelves(etcd, relist_interval_s=settings.relist_interval_s * pace)
        coordinator = Coordinator(
            "one", etcd, etcd, self._clock, settings.policy, tempo, cries=cries, documents=documents
        )
        coordinator.start()
        return coordinator

    async def _drive(self, number: int) -> None:
        """The callers of one region."""
        waiting: set[asyncio.Task[None]] = set()
        mine = (one for one in self._work.requests if one.region == number)
        for serial, request in enumerate(mine):
            await asyncio.sleep(self._began + request.at * self._pace - self._clock.now())
            if self._scenario.wait_s:
                task = asyncio.create_task(self._ask(serial, request))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            else:
                await self._ask(serial, request)
        if waiting:
            await asyncio.wait(waiting)

    async def _ask(self, serial: int, request: Request) -> None:
        service = self._servers[request.region].service
        asked = Asked((Charge(KEY, request.units),), f"{request.region}-{serial}", _TTL_S, request.priority)
        began = self._clock.now()
        try:
            outcome = await service.reserve(asked, self._scenario.wait_s * self._pace)
        except Unavailable:
            outcome = None  # the first use of the quota here, while etcd is out of reach
        now = self._clock.now()
        bin_ = int((now - self._began) // self._period_s)
        if not isinstance(outcome, Granted):
            self._outcome.deny(bin_, request)
            return
        if now > began:
            self._outcome.waited.append((now - began) / self._pace)
        self._outcome.admit(bin_, request)
        await service.commit(outcome.reservation.id, request.used)

    async def _happen(self, one: Happening) -> None:
        await asyncio.sleep(one.begin * self._pace)
        match one.what:
            case "weight":
                await set_weight(self._etcd, self._work.regions[one.region], one.weight)
            case "coordinator_down":
                await self._coordinator.stop()
                await asyncio.sleep(one.seconds * self._pace)
                self._coordinator = self._start_coordinator()
            case "partition":
                link = self._servers[one.region].link
                link.cut()
                await asyncio.sleep(one.seconds * self._pace)
                link.restore()
            case "region_down":
                await self._lose_region(one)

    async def _lose_region(self, one: Happening) -> None:
        """Its process dies without a word; its database is what the next process finds."""
        name, server = self._work.regions[one.region], self._servers[one.region]
        server.link.cut()
        await server.stop()
        await asyncio.sleep(one.seconds * self._pace)
        server.link.restore()
        self._servers[one.region] = self._server(name, server.link, server.store, server.history)

    async def _sample(self, on_bin: Callable[[int], None]) -> None:
        number = 0
        while True:
            at = number * self._work.bin_s / SAMPLES_A_BIN
            self._outcome.slices.append((at, [server.slice for server in self._servers]))
            if number % SAMPLES_A_BIN == 0:
                on_bin(number // SAMPLES_A_BIN)
            number += 1
            await asyncio.sleep(self._period_s / SAMPLES_A_BIN)

    def _sum_up(self) -> Outcome:
        self._etcd.close()
        transfers, spans = self._etcd.transfers, self._etcd.spans
        return replace(
            self._outcome,
            transfers=transfers,
            spans=spans,
            moves=sum(transfer.moves for transfer in transfers),
            etcd_writes=self._coordinator_link.writes + sum(server.link.writes for server in self._servers),
        )
