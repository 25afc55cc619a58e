"""Who takes part: each process runs one piece of work at a time, the product's own, and may be dropped at any await."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.history_watch import HistoryWatch as CoordinatorsWatch
from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.history import Bond
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.rebalancing import Policy
from regionquota.errors import InvalidRequest, StaleVersion, Unavailable
from regionquota.explorer.bonds import CommandAllocations, HistoryPort, bound
from regionquota.explorer.cries import Cries
from regionquota.explorer.drive import finish
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.ports import Call, EtcdPort, Work
from regionquota.explorer.quotas import PART, QUOTAS, WHOLE
from regionquota.explorer.store_port import StorePort
from regionquota.limits import put_limit
from regionquota.ports import Stored
from regionquota.region.attendance import Attendance
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.history_watch import HistoryWatch
from regionquota.region.steps import claim, synchronise
from regionquota.region.trust import Trust
from regionquota.regions import drain, freeze, set_weight, thaw

if TYPE_CHECKING:
    from regionquota.explorer.world import World

SKEWS: Final = (0.0, 0.0, -3.0, 3.0, -40.0, 40.0)
"""How far a region's clocks are off, in seconds."""
_APART: Final = (0.0, 0.0, 0.0, -3.0, 3.0)
"""How far a process's clock is from its neighbours'."""
TTL_S: Final = 20
TEMPO: Final = Tempo(interval=5.0, leader_ttl=TTL_S, freeze_after=0.0)

Job: TypeAlias = tuple[object, Work]
"""What it is, for `Process.said`, and the doing of it."""


@dataclass(slots=True)
class ProcessClock:
    world: "World"
    skew: float = 0.0

    def now(self) -> float:
        return self.world.time + self.skew


Watch: TypeAlias = HistoryWatch | CoordinatorsWatch


class Process:
    """`work` is under way until it ends, fails, or is dropped; `waits` is the call whose turn it waits for."""

    def __init__(self, world: "World", name: str, region: Region | None) -> None:
        self.world = world
        self.name = name
        self.region = region
        self.clock = ProcessClock(world, world.skews.get(region or "", 0.0) + world.choices.one_of(_APART))
        self.job: object = ""
        self.work: Work | None = None
        self.waits: Call | None = None
        self.ends = False
        self.bond: Bond | None = None
        self.watch: Watch | None = None
        """In runs that lose etcd."""
        self.start()

    def start(self) -> None:
        """Begin with an empty memory."""

    def begin(self) -> Job:
        """The next piece of work, chosen."""
        raise NotImplementedError

    def take_up(self, job: Job) -> None:
        self.job, self.work = job
        self.go_on(None)

    def go_on(self, fault: Fault | None) -> None:
        """Up to the next call; what is unavailable ends the work, as it ends a pass of the product's loops.

        Whatever else a process comes upon nobody expects: it is a finding.
        """
        work = self.work
        assert work is not None
        try:
            waits = work.send(fault)
            while waits is None:
                waits = work.send(None)
            self.waits = waits
            return
        except StopIteration:
            self.work = self.waits = None
            self.ended()
        except (Unavailable, InvalidRequest, StaleVersion):
            self.work = self.waits = None
        except Violation:
            raise
        except Exception as error:
            raise Violation(Invariant.BALANCES, f"{self.name} ({self.said}): {error!r}") from error
        if self.ends:
            self.ends = False
            self.start()

    @property
    def said(self) -> str:
        """What it is working on."""
        return str(self.job)

    def ended(self) -> None:
        """Its work is done."""

    def outlive(self) -> None:
        """What it is bound to has ended: it starts anew once its work is done."""
        self.ends = True

    def look(self) -> None:
        """After the history, at once: as servers do before anything else."""
        assert self.watch is not None
        try:
            finish(self.watch.step())
        except Unavailable:
            return

    def _has_to_look(self) -> bool:
        return self.bond is None or self.bond.standing is None or self.world.choices.pick(5) == 0

    def drop(self) -> None:
        if self.work is not None:
            self.work.close()
        self.work = self.waits = None

    def crash(self) -> None:
        self.drop()
        self.start()


def _nobody(_why: str) -> None:
    pass


class Agent(Process):
    region: Region
    _follower: Follower | None
    _attendance: Attendance | None

    def start(self) -> None:
        world = self.world
        self._follower = self._attendance = None
        self.meter = DemandMeter(self.clock.now())
        if world.loses_etcd:
            self._start_bound()
            return
        self.etcd = EtcdPort(world, world.etcd, self.region)
        self.store = StorePort(world, world.store(self.region))

    def _start_bound(self) -> None:
        world, self.bond = self.world, Bond()
        self.etcd = EtcdPort(
            world,
            world.etcd,
            self.region,
            documents=bound(world.etcd, self.bond),
            seen=self.bond.seen,
            lagging=False,
        )
        self.store = StorePort(world, world.store(self.region), self.bond)
        histories = HistoryPort(EtcdPort(world, world.etcd, self.region), world.etcd)
        self.watch = HistoryWatch(
            self.region, self.name, histories, self.store, self.store, self.bond, self.clock, self.outlive
        )
        if world.choices.pick(4):
            self.look()

    @property
    def follower(self) -> Follower:
        """Made when it is first needed, as `attendance` is: most agents of short runs need neither."""
        if self._follower is None:
            heard = self.bond.seen.contradict if self.bond is not None else _nobody
            self._follower = Follower(
                self.region, self.etcd, self.store, self.clock, relist_interval_s=60.0, on_backwards=heard
            )
        return self._follower

    @property
    def attendance(self) -> Attendance:
        if self._attendance is None:
            self._attendance = Attendance(
                self.region, self.name, "", self.etcd, self.store, self.follower, self.meter, self.clock, ttl_s=TTL_S
            )
        return self._attendance

    def compare(self) -> Work:
        """It needs a list of what is, not of what was."""
        bond = self.bond
        if bond is None:
            etcd = EtcdPort(self.world, self.world.etcd, self.region, lagging=False)
            return Trust(self.region, etcd, self.store, self.clock).step()
        return Trust(self.region, self.etcd, self.store, self.clock, lambda: bond.is_evicted).step()

    def compare_at_once(self) -> None:
        try:
            finish(self.compare())
        except Unavailable:
            return

    def begin(self) -> Job:
        choices, world, region = self.world.choices, self.world, self.region
        if self.watch is not None and self._has_to_look():
            return "look after the history", self.watch.step()
        if not world.checks.regions[region].trusted and choices.pick(4):
            return "compare the database with etcd", self.compare()
        match choices.pick(12):
            case 4 | 5 if not world.loses_etcd:
                key = choices.one_of(QUOTAS)
                revision, document = world.before(key)
                if document is not None:
                    world.count(Fault.STALE_READ)
                return f"carry out {key.scope} of revision {revision}", self.follower.take(
                    Stored(key, revision, document)
                )
            case 0 | 1 | 2 | 3 | 4 | 5:
                key = choices.one_of(QUOTAS)
                return f"synchronise {key.scope}", synchronise(key, region, self.etcd, self.store, self.clock.now())
            case 6 | 7:
                return self._claim(choices.one_of(QUOTAS), 1 + choices.pick(6), choices.one_of((1.0, 0.3)))
            case 8:
                return "re-read everything", self.follower.relist()
            case 9:
                return "settle", self.follower.settle()
            case 10:
                return "attend", self.attendance.attend()
            case _:
                key = choices.one_of(QUOTAS)
                self.meter.denied(key, choices.pick(5))
                self.meter.granted(key, choices.pick(5))
                return "report", self.attendance.report()

    def _claim(self, key: QuotaKey, wanted: int, share: float) -> Job:
        work = claim(key, self.region, self.etcd, self.store, wanted=wanted, share=share, now=self.clock.now())
        return f"claim {wanted} of {key.scope}", work


class Planner(Process):
    """A coordinator. It believes that it leads until it is told otherwise, however long ago its lease ran out."""

    def start(self) -> None:
        world = self.world
        self.etcd = etcd = self._port(fenced=world.choices.pick(4) != 3)
        policy = Policy(pool_share=0.2, variance=1.0)
        self.cries = Cries(world)
        self.coordinator = Coordinator(self.name, etcd, etcd, self.clock, policy, TEMPO, cries=self.cries)
        if world.choices.pick(4):
            # Most have been here for a while.
            finish(self.coordinator.hold())

    def _port(self, *, fenced: bool) -> EtcdPort:
        world = self.world
        if not world.loses_etcd:
            return EtcdPort(world, world.etcd, fenced=fenced)
        self.bond = bond = Bond()
        histories = HistoryPort(EtcdPort(world, world.etcd), world.etcd)
        self.watch = CoordinatorsWatch(self.name, histories, bond, self.clock, self.outlive)
        if world.choices.pick(4):
            self.look()
        documents = bound(world.etcd, bond)
        return EtcdPort(world, world.etcd, documents=documents, seen=bond.seen, fenced=fenced, lagging=False)

    def resign(self) -> None:
        for session in self.etcd.sessions:
            finish(session.close())

    def begin(self) -> Job:
        if self.watch is not None and self._has_to_look():
            return "look after the history", self.watch.step()
        if not self.coordinator.led or self.world.choices.pick(6) == 0:
            return "hold the leadership", self.coordinator.hold()
        if self.world.urgent and self.world.choices.pick(3):
            return f"serve {self.cries.choose()}", self.coordinator.serve()
        return "plan", self.coordinator.plan()


class Operator(Process):
    """Sets limits, weights and drains, freezes and thaws."""

    deed: Deed

    def start(self) -> None:
        self.etcd = EtcdPort(self.world, self.world.etcd)

    def ended(self) -> None:
        self.world.did(self.deed)

    def begin(self) -> Job:
        choices, world = self.world.choices, self.world
        if world.loses_etcd:
            self.etcd = EtcdPort(world, world.etcd, documents=CommandAllocations(world.etcd), lagging=False)
        region = choices.one_of(world.names)
        match choices.pick(8):
            case 0 | 1 | 2 | 3:
                return self._limit()
            case 4:
                self.deed, weight = Deed.WEIGHT, choices.one_of((0, 1, 100, 300))
                return f"weigh {region} {weight}", set_weight(self.etcd, region, weight)
            case 5:
                back = choices.pick(2) == 0
                self.deed = Deed.BRING_BACK if back else Deed.DRAIN
                return f"{'bring back' if back else 'drain'} {region}", drain(self.etcd, region, back=back)
            case 6:
                self.deed = Deed.FREEZE
                return f"freeze {region}", freeze(self.etcd, region, "work", self.clock.now())
            case _:
                self.deed = Deed.THAW
                return f"thaw {region}", thaw(self.etcd, region)

    def _limit(self) -> Job:
        choices, world = self.world.choices, self.world
        key = choices.one_of((WHOLE, WHOLE, PART))
        # One word in four is late: another with a newer version went out before it.
        world.version += 1
        version = max(1, world.version - 3 * (choices.pick(4) == 0))
        if choices.pick(4) == 0:
            self.deed, amount = Deed.OVERRIDE, choices.one_of((None, 4, 9))
            word = put_limit(self.etcd, key, None, LimitSource.OVERRIDE, VersionedLimit(amount, version))
            return f"override {key.scope} {amount}, version {version}", word
        self.deed, amount = Deed.LIMIT, choices.one_of((0, 4, 8, 12, 14))
        word = put_limit(self.etcd, key, None, LimitSource.PLAN, VersionedLimit(amount, version))
        return f"limit {key.scope} {amount}, version {version}", word
