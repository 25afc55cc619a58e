"""A region's server as it is shipped, on a store in memory, far from etcd."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from regionquota.core.commands import Command, Outcome
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey, Region
from regionquota.learning_ports import DemandHistory
from regionquota.loops import forever, stop
from regionquota.ports import Stored
from regionquota.region.agent import Agent, Pace
from regionquota.region.attendance import Attendance
from regionquota.region.budgets import Budgets
from regionquota.region.claims import Claims
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.learning import HOUR_S, MINUTE_S, Learning, nothing_foreseen
from regionquota.region.room import Room
from regionquota.region.service import RegionService
from regionquota.region.steps import Step
from regionquota.region.sweeper import SweepOnDemand
from regionquota.region.urgency import Urgency
from regionquota.simulator.network import FarEtcd, Link
from regionquota.simulator.observed import ObservedEtcd
from regionquota.simulator.settings import Settings
from regionquota.simulator.store import LeanStore

KEY: Final = QuotaKey("tenant", "units", GLOBAL_SCOPE)
EPOCH: Final = 1_800_000_000.0
_SWEPT_AT_ONCE: Final = 100


class VirtualClock:
    """Of the loop that runs when it is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return EPOCH + self._loop.time()


@dataclass
class RegionServer:
    link: Link
    store: LeanStore
    history: DemandHistory
    service: RegionService
    agent: Agent
    learning: "asyncio.Task[None] | None"

    async def stop(self) -> None:
        if self.learning is not None:
            await stop([self.learning])
        await self.agent.stop()

    @property
    def slice(self) -> int:
        held = self.store.held.get(KEY)
        return 0 if held is None else held.slice


def start_server(
    name: Region,
    link: Link,
    store: LeanStore,
    history: DemandHistory,
    etcd: ObservedEtcd,
    settings: Settings,
    pace: float,
    *,
    fast_paths: bool,
) -> RegionServer:
    """A new process on the region's database: `store` and `history`. `pace` is seconds of the clock for each of the
    scenario; an hour that is learnt is one of the scenario.
    """
    clock = VirtualClock()
    far, meter, room = FarEtcd(etcd, link), DemandMeter(clock.now()), Room()
    follower = Follower(
        name, far, store, clock,
        relist_interval_s=settings.relist_interval_s * pace, on_step=_made_room(meter, room),
    )  # fmt: skip
    learning = Learning(meter, history, clock, hour_s=HOUR_S * pace) if settings.learn else None
    attendance = Attendance(
        name, name, "", far, store, follower, meter, clock, ttl_s=max(1, round(settings.liveness_ttl_s * pace)),
        foreseen=learning.foreseen if learning else nothing_foreseen,
    )  # fmt: skip
    urgency = Urgency(
        name, name, far, store, meter, clock, attendance.session, follower.owned,
        pause_s=settings.urgent_pause_s * pace, lead_s=settings.urgent_lead_s * pace,
    )  # fmt: skip
    claims = Claims(
        name, far, store, follower, clock,
        share=settings.claim_share, join_timeout_s=settings.timeout_s * pace,
        allowed=attendance.may_claim if fast_paths else lambda: False,
        takes_part=attendance.takes_part,
        on_lack=urgency.run_short if fast_paths else lambda _key, _available: None,
    )  # fmt: skip

    async def submit(command: Command, _bucket: int) -> Outcome:
        return (await store.transact([command], clock.now()))[0]

    def freed(key: QuotaKey, units: int) -> None:
        meter.freed(key, units)
        room.made(key)

    service = RegionService(
        submit, store, far, far, follower, claims, meter, clock,
        budgets=Budgets(name, follower.policy_of), overdue=SweepOnDemand(store, clock, _SWEPT_AT_ONCE, freed),
        room=room, freed=freed, suspended=lambda _: None, low_water=settings.low_water,
    )  # fmt: skip
    tempo = Pace(
        attend=settings.liveness_ttl_s * pace / 3,
        report=settings.report_interval_s * pace,
        settle=settings.settle_interval_s * pace,
    )
    agent = Agent(follower, claims, attendance, tempo, urgency)
    agent.start()
    minutely = asyncio.create_task(forever("learn", learning.step, MINUTE_S * pace)) if learning else None
    return RegionServer(link, store, history, service, agent, minutely)


def _made_room(meter: DemandMeter, room: Room) -> Callable[[Stored, Step], None]:
    def made(stored: Stored, _step: Step) -> None:
        meter.touch(stored.key)
        room.made(stored.key)

    return made
