"""The processes of a story: the product's own objects behind gates."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from tests.bound import bound_store
from tests.transcripts.gates import Gate, Work

from regionquota.adapters.memory.histories import BoundAllocations, MemoryHistoryStore
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.history_watch import HistoryWatch as CoordinatorsWatch
from regionquota.core.history import Bond
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Policy
from regionquota.region.attendance import Attendance
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.history_watch import HistoryWatch
from regionquota.region.steps import claim, synchronise
from regionquota.region.trust import Trust

if TYPE_CHECKING:
    from tests.transcripts.stage import Stage

LEASE_S: Final = 15
TEMPO: Final = Tempo(interval=10.0, leader_ttl=LEASE_S, freeze_after=0.0)
PLANNING: Final = Policy(pool_share=0.1, growth_rounds=0.0, variance=0.0)
"""Needs are what is in use and what was denied, so that a reader can reckon along."""


class Clock:
    """`skew` is how many seconds it is ahead of the stage's."""

    def __init__(self, stage: "Stage", skew: float = 0.0) -> None:
        self._stage = stage
        self.skew = skew

    def now(self) -> float:
        return self._stage.time + self.skew


class Agent:
    """One life of one server of a region. `ended`: it has to start anew."""

    def __init__(self, stage: "Stage", region: Region, name: str, clock: Clock) -> None:
        self.stage, self.region, self.name, self.clock = stage, region, name, clock
        self.bond = Bond()
        self.ended = False
        store = stage.stores[region]
        self.store = Gate(name, bound_store(store, self.bond), stage)
        self.etcd = self._reach(BoundAllocations(stage.etcd, self.bond))
        directory, histories = self._reach(stage.etcd), self._reach(MemoryHistoryStore(stage.etcd))
        standings = Gate(name, store, stage)
        self.watch = HistoryWatch(region, name, histories, standings, self.store, self.bond, clock, self._end)
        self.follower = Follower(
            region, self.etcd, self.store, clock, relist_interval_s=60.0, on_backwards=self.bond.seen.contradict
        )
        self.trust = Trust(region, self.etcd, self.store, clock, lambda: self.bond.is_evicted)
        self.meter = DemandMeter(clock.now())
        self.attendance = Attendance(
            region, name, "", directory, self.store, self.follower, self.meter, clock, ttl_s=LEASE_S
        )

    def _reach(self, port: object) -> Gate:
        return Gate(self.name, port, self.stage, lambda: self.region not in self.stage.cut_off)

    def _end(self) -> None:
        self.ended = True

    def look_at_history(self) -> Work:
        return self.begin(self.watch.step()).finish()

    def attend(self) -> None:
        """Sign of life and report, as their loops would have it."""
        self.begin(self.attendance.attend()).finish()
        self.begin(self.attendance.report()).finish()

    def relist(self) -> Work:
        return self.begin(self.follower.relist()).finish()

    def compare(self) -> Work:
        return self.begin(self.trust.step()).finish()

    def synchronise(self) -> Work:
        """Begun, up to its first call."""
        return self.begin(synchronise(self.stage.key, self.region, self.etcd, self.store, self.clock.now()))

    def claim(self, wanted: int) -> Work:
        work = claim(self.stage.key, self.region, self.etcd, self.store, wanted=wanted, share=1.0, now=self.clock.now())
        return self.begin(work)

    def begin(self, work: Coroutine[Any, Any, Any]) -> Work:
        return Work(self.name, work, self.stage.tell)


class Planner:
    """A coordinator, bound to the history that it finds."""

    def __init__(self, stage: "Stage", name: str) -> None:
        self.stage, self.name = stage, name
        clock = Clock(stage)
        bond = Bond()
        self.watch = CoordinatorsWatch(name, MemoryHistoryStore(stage.etcd), bond, clock, lambda: None)
        allocations, directory = Gate(name, BoundAllocations(stage.etcd, bond), stage), Gate(name, stage.etcd, stage)
        self.coordinator = Coordinator(name, allocations, directory, clock, PLANNING, TEMPO)

    def hold(self) -> None:
        self.begin(self.watch.step()).finish()
        self.begin(self.coordinator.hold()).finish()

    def plan(self) -> Work:
        """Begun, up to its first call; nothing at all if it does not lead."""
        return self.begin(self.coordinator.plan())

    def round(self) -> None:
        """As its loops would: prolong the lease, then plan."""
        self.hold()
        self.plan().finish()

    def begin(self, work: Coroutine[Any, Any, Any]) -> Work:
        return Work(self.name, work, self.stage.tell)
