"""One run's world: etcd, the regions' databases, everybody who works on them, and what befalls them, step by step.

Faults of the network and of processes are chosen where a process waits (`ports`), those of nature in `weather`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product
from typing import Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.explorer.book import Book
from regionquota.explorer.callers import Caller, Sweeper
from regionquota.explorer.checks import Checks
from regionquota.explorer.choices import Choices
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.ports import Message
from regionquota.explorer.processes import SKEWS, Agent, Operator, Planner, Process
from regionquota.explorer.quotas import MONTH_ENDS
from regionquota.explorer.rescuers import Rescuer
from regionquota.explorer.weather import Weather
from regionquota.ports import Fence, Stored

_PACE: Final = tuple(product((0.0, 0.0, 0.1, 1.0), (False,) * 6 + (True,)))
"""Seconds between two steps, and whether the next may be one that befalls everybody."""
_REMEMBERED: Final = 6
"""Revisions of a document that a stale read may still see."""

CASTS: Final[Sequence[Sequence[str]]] = (
    ("eu0", "eu1", "us0", "eu-caller0"),
    ("eu0", "us0", "ap0", "us-caller0"),
    ("eu-caller0", "eu-caller1", "eu-caller0", "eu-sweeper"),
    ("us-caller0", "us-caller1", "us-sweeper", "us0"),
    ("eu-caller0", "us-caller0", "eu0", "us0"),
    ("eu-caller0", "eu0", "us0", "operator"),
    ("planner0", "eu0", "us0", "eu-caller0"),
    ("planner0", "planner1", "eu0"),
    ("planner0", "planner1", "operator"),
    ("planner0", "eu0", "us0", "eu-caller0", "us-caller0"),
    ("planner0", "planner1"),
    ("planner0", "planner1", "ap0", "ap1", "eu0"),
    ("planner0", "us0", "us1", "operator"),
    ("ap0", "ap1", "eu0", "eu1", "us0", "us1", "planner0", "ap-caller0", "eu-caller0", "us-caller0", "operator"),
)
"""Who takes part in a run. A run of few steps gets nowhere if everybody has to have a part in it."""
FAILOVER_CASTS: Final[Sequence[Sequence[str]]] = (
    ("eu0", "eu1", "eu-caller0"),
    ("us0", "us1", "us-caller0"),
    ("ap0", "ap1", "ap-caller0"),
    ("eu0", "eu1"),
    ("us0", "us1"),
    ("ap0", "ap1"),
    ("eu0", "us0", "eu-caller0", "planner0"),
    CASTS[-1],
)
"""In runs in which databases fail over: a region has two servers there, which know nothing of each other."""
LOST_CASTS: Final[Sequence[Sequence[str]]] = (
    ("eu0", "us0", "rescuer", "eu-caller0", "us-caller0"),
    ("eu0", "eu1", "us0", "rescuer", "us-caller0"),
    ("ap0", "eu0", "us0", "rescuer", "planner0"),
    ("eu0", "us0", "planner0", "planner1", "rescuer"),
    ("ap0", "eu0", "us0", "rescuer", "operator", "ap-caller0", "eu-caller0", "us-caller0"),
)
"""In runs in which etcd is restored from snapshots, and regions are evicted."""
FAULTY: Final = (8, 4, 0, 16)
"""One call in so many goes wrong; 0: none. Nothing is found by chaos alone."""


@dataclass(frozen=True, slots=True)
class Start:
    """A world at rest, to begin many runs from. Nothing of it is changed by them: they share what they do not touch."""

    serial: int
    kind: Kind
    time: float
    etcd: MemoryCoordination
    snapshot: MemoryCoordination
    """What etcd may be restored as: before much of what it says was given."""
    stores: Mapping[Region, MemoryRegionStore]
    replicas: Mapping[Region, Sequence[MemoryRegionStore]]
    """What each database may be after a failover; the last lags behind the least."""
    past: Mapping[QuotaKey, Sequence[tuple[int, Allocation]]]
    """The last revisions of each document, which somebody may have read and not carried out yet."""
    books: Mapping[Region, Book]
    checks: Checks
    version: int
    names: int


class World:
    """`trace` hears of every step in words, if anybody wants to know."""

    def __init__(
        self,
        start: Start,
        choices: Choices,
        trace: Callable[[str], None] | None = None,
        *,
        fails_over: bool = False,
        loses_etcd: bool = False,
        urgent: bool = False,
    ) -> None:
        self.choices = choices
        self.time = start.time
        self.incarnation = start.names
        self.version = start.version
        self.names = tuple(start.stores)
        self.faults: dict[Fault, int] = {}
        self.deeds: dict[Deed, int] = {}
        self.broken: Exception | None = None
        self.steps = 0
        self.loses_etcd, self.urgent = loses_etcd, urgent
        self.changed = False
        """Whether the last step changed anything durable."""
        self.etcd = start.etcd.copy(self)
        self.checks = start.checks.fork(self.etcd)
        self.books: dict[Region, Book] = {}
        """Of the regions that anybody has worked in."""
        self._start = start
        self._stores: dict[Region, MemoryRegionStore] = {}
        self._trace = trace
        self._name = start.names
        self._processes: dict[str, Process] = {}
        self._newest_fence = 0
        self._first_revision = self.etcd.revision
        self._listed: dict[Region, int] = {}
        self._written: tuple[Region, float] | None = None
        self._history: dict[QuotaKey, list[tuple[int, Allocation]]] = {
            key: list(start.past[key]) for key in self.checks.documents
        }
        self._lists: list[tuple[int, Sequence[Stored]]] = [(self.etcd.revision, tuple(self.etcd.documents))]
        choices.step()
        self.cast = choices.one_of(LOST_CASTS if loses_etcd else FAILOVER_CASTS if fails_over else CASTS)
        self._faulty = choices.one_of(FAULTY)
        self.weather = Weather(
            self, calm=not self._faulty, fails_over=fails_over, snapshot=start.snapshot if loses_etcd else None
        )
        self.skews = {region: choices.one_of(SKEWS) for region in self.names}

    # -- what the ports ask --

    def now(self) -> float:
        return self.time

    def count(self, fault: Fault) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def did(self, deed: Deed) -> None:
        self.deeds[deed] = self.deeds.get(deed, 0) + 1

    def is_cut_off(self, region: Region) -> bool:
        return self.weather.is_cut_off(region)

    def post(self, name: str, message: Message, store_of: Region | None = None) -> None:
        self.weather.post(name, message, store_of)

    def before(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        return self.choices.one_of(self._history[key][-_REMEMBERED:])

    def list_before(self) -> tuple[int, Sequence[Stored]]:
        return self.choices.one_of(self._lists[-_REMEMBERED:])

    def wrote(self, region: Region, now: float) -> None:
        self._written = region, now if self._written is None else max(now, self._written[1])
        self.weather.note_write(region)

    def broke(self, error: Exception) -> None:
        self.broken = error

    def led(self, fence: Fence) -> None:
        self._newest_fence = max(self._newest_fence, fence.create_revision)

    def listed(self, region: Region, revision: int) -> None:
        self._listed[region] = max(self._listed.get(region, 0), revision)

    def thawed(self, region: Region, frozen_at: int) -> None:
        listed = self._listed.get(region, self._first_revision)
        if listed < frozen_at:
            said = f"{region}, frozen at revision {frozen_at}, thawed having read no more than {listed}"
            raise Violation(Invariant.FROZEN, said)

    def writes_as_leader(self, fence: Fence) -> None:
        if fence.create_revision < self._newest_fence:
            self.count(Fault.DEPOSED)

    def wrote_as_leader(self, what: QuotaKey | Region, fence: Fence | None, named: AbstractSet[Region]) -> None:
        if fence is not None and fence.create_revision < self._newest_fence:
            said = f"{what} was written under leadership {fence.create_revision}, the newest is {self._newest_fence}"
            raise Violation(Invariant.LEADER, said)
        if named:
            raise Violation(Invariant.FROZEN, f"a round names {', '.join(sorted(named))} in {what}, read as frozen")

    def history(self, key: QuotaKey) -> Sequence[tuple[int, Allocation]]:
        """Every revision of the document since the run began."""
        return [known for known in self._history[key] if known[0] >= self._start.past[key][-1][0]]

    # -- what processes ask --

    def stores(self) -> Sequence[tuple[Region, MemoryRegionStore]]:
        return [(region, self.store(region)) for region in self.names]

    def store(self, region: Region) -> MemoryRegionStore:
        """To be worked on."""
        store = self._stores.get(region)
        if store is None:
            store = self._stores[region] = self._start.stores[region].copy()
            self.checks.open(region, store)
            self.books[region] = self._start.books[region].copy()
            self.weather.replicate(store, self._start.replicas[region])
        return store

    def name(self) -> int:
        self._name += 1
        return self._name

    @property
    def named(self) -> int:
        return self._name

    def process(self, name: str) -> Process:
        known = self._processes.get(name)
        if known is None:
            known = self._processes[name] = self._new_process(name)
        return known

    def processes(self) -> Collection[Process]:
        return self._processes.values()

    def _new_process(self, name: str) -> Process:
        if name.startswith("planner"):
            return Planner(self, name, None)
        if name == "operator":
            return Operator(self, name, None)
        if name == "rescuer":
            return Rescuer(self, name, None)
        region, _, role = name.partition("-")
        if role.startswith("caller"):
            return Caller(self, name, region)
        if role == "sweeper":
            return Sweeper(self, name, region)
        return Agent(self, name, name[:-1])

    def resign(self) -> None:
        """Planners end in good order, so that those of the next world need not wait for a lease to run out."""
        for process in self._processes.values():
            if isinstance(process, Planner):
                process.resign()

    # -- steps --

    def step(self) -> bool:
        """One thing happens, chosen, and is checked. False: there is nothing left to choose."""
        choices = self.choices
        if not choices.step():
            return False
        self.steps += 1
        passes, stormy = choices.one_of(_PACE)
        self.time += passes
        weather = self.weather
        if stormy and weather.threatens:
            weather.strike()
        else:
            pressed = weather.next_to_act() if weather.presses else None
            who = pressed or choices.one_of(self.cast)
            self._go_on(self._processes.get(who) or self.process(who))
        self.changed = self.check()
        return True

    def _go_on(self, process: Process) -> None:
        choices = self.choices
        if process.region in self.weather.fenced:
            return
        if process.work is None:
            process.take_up(process.begin())
            if process.waits is not None and choices.pick(8) == 7:
                self.tell(process, "begins")
                return
        waits = process.waits
        if waits is None:
            return  # it needed nobody
        fault = None
        if self._faulty and choices.pick(self._faulty) == self._faulty - 1:
            fault = choices.one_of(waits.faults)
        if fault is Fault.CRASH:
            self.crash(process)
            return
        if self._trace is not None:
            self.tell(process, waits.name if fault is None else f"{waits.name} -- {fault}")
        process.go_on(fault)

    def crash(self, process: Process) -> None:
        """What it was about to say may still be on its way."""
        self.count(Fault.CRASH)
        told = "crashes"
        if process.waits is not None and self.choices.pick(2) and Fault.DELAY in process.waits.faults:
            told += f", {process.waits.name!r} is on its way"
            process.go_on(Fault.DELAY)
        self.tell(process, told)
        process.crash()

    def tell(self, who: "Process | str", what: str) -> None:
        if self._trace is not None:
            name = who if isinstance(who, str) else f"{who.name} ({who.said})" if who.job else who.name
            self._trace(f"{self.time - MONTH_ENDS:+9.1f} s  {name}: {what}")

    def check(self) -> bool:
        """Whether anything durable has changed; raises `Violation`."""
        if self.broken is not None:
            raise Violation(Invariant.BALANCES, f"{self.broken!r}") from self.broken
        checks, written = self.checks, self._written
        if written is None and self.etcd.revision == checks.revision:
            return False
        changed = False
        if written is not None:
            self._written = None
            changed = checks.look_at_store(*written)
            if happened := checks.regions[written[0]].happened:
                self._note(happened)
        if checks.look_at_etcd():
            self._remember()
            return True
        return changed

    def _note(self, happened: list[Fault | Deed]) -> None:
        for one in happened:
            if isinstance(one, Fault):
                self.count(one)
            else:
                self.did(one)
        happened.clear()

    def _remember(self) -> None:
        for _ in self.checks.joined:
            self.count(Fault.JOIN)
        self.checks.joined.clear()
        for key, known in self.checks.documents.items():
            history = self._history.setdefault(key, [])
            if not history or history[-1][0] != known[0]:
                history.append(known)
        self._lists.append((self.etcd.revision, tuple(self.etcd.documents)))
        self.weather.note_documents()

    def etcd_went_back(self) -> None:
        """Nobody reads any more, but who has read it, what was lost."""
        self.checks.etcd_went_back()
        self._history = {key: [known] for key, known in self.checks.documents.items()}
        self._lists = [(self.etcd.revision, tuple(self.etcd.documents))]
        self._newest_fence, self._first_revision = 0, self.etcd.revision
        self._listed.clear()

    # -- the end --

    def calm(self) -> None:
        """No more faults: what is under way is dropped, what is on its way arrives."""
        for process in self._processes.values():
            process.drop()
        self.weather.clear_up()

    def abandon(self) -> None:
        for process in self._processes.values():
            process.drop()

    def state(self) -> int:
        """A digest of what is durable, but for times, names and revisions: those make all states different."""
        return self.checks.digest()
