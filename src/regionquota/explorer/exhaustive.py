"""Every interleaving of a small configuration: depth-first, by doing runs again; no state is gone on from twice.

A state is what is durable, exactly, and for each process what it has been answered so far in its piece of work: by
that its coroutine is where it is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import LimitSource, Move, VersionedLimit, grant, new_allocation, request_moves
from regionquota.core.commands import Reserve
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import Unavailable
from regionquota.explorer.checks import Checks
from regionquota.explorer.drive import finish
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.logs import quiet
from regionquota.explorer.ports import Call, EtcdPort, Message, Work
from regionquota.explorer.quotas import MONTH_ENDS
from regionquota.explorer.store_port import StorePort
from regionquota.ports import Fence, Stored
from regionquota.region.steps import claim, synchronise

CONFIGURATION: Final = "2 regions with an agent and a caller each, a planner, a limit of 3, two crashes or lost replies"
_KEY: Final = QuotaKey("acme", "units")
_REGIONS: Final[Sequence[Region]] = ("eu", "us")
_LIMIT: Final = 3
_JOBS: Final = {"eu": 2, "us": 2, "planner": 1, "eu-caller": 1, "us-caller": 1}
"""Pieces of work of each process. An agent that is through begins again while it has any."""
_FAULTS: Final = frozenset({Fault.CRASH, Fault.LOST_REPLY})
_MOST_FAULTS: Final = 2


_SAY_EVERY: Final = 2_000

_Path: TypeAlias = "tuple[tuple[str, Fault | None], ...]"


@dataclass(frozen=True, slots=True)
class Exhausted:
    """`steps` were taken, from `states` different states; `trace` leads to the violation."""

    states: int
    steps: int
    seconds: float
    violation: str | None = None
    trace: Sequence[str] = ()

    def plain(self) -> dict[str, Any]:
        return {
            "configuration": CONFIGURATION,
            "distinct_states": self.states,
            "steps": self.steps,
            "violations": int(self.violation is not None),
            "seconds": round(self.seconds, 1),
        }


class _Small:
    """The world of one path. It is its own surroundings: there is no network here but for what is lost."""

    def __init__(self) -> None:
        self.etcd = MemoryCoordination(self)
        self.stores = {region: MemoryRegionStore(region) for region in _REGIONS}
        first = new_allocation(Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(_LIMIT, 1))
        finish(self.etcd.swap(_KEY, 0, grant(first, {"eu": 2})))
        revision, document = finish(self.etcd.read(_KEY))
        assert document is not None
        finish(self.stores["eu"].apply(_KEY, document, revision, self.now()))
        self.checks = Checks(self.etcd, self.stores, {_KEY: _LIMIT})
        self.left = dict(_JOBS)
        self.faults = _MOST_FAULTS
        self.works: dict[str, Work] = {}
        self.waits: dict[str, Call] = {}
        self.heard: dict[str, tuple[object, ...]] = {}
        self._written: Region | None = None
        self.broken: Exception | None = None
        for who in _JOBS:
            self._begin_next(who)

    def now(self) -> float:
        return MONTH_ENDS - 1000.0

    # -- what the ports ask --

    def count(self, fault: Fault) -> None:
        pass

    def did(self, deed: Deed) -> None:
        pass

    def is_cut_off(self, _region: Region) -> bool:
        return False

    def post(self, name: str, message: Message, store_of: Region | None = None) -> None:
        raise NotImplementedError(f"{name}: nothing is late here, {message} {store_of}")

    def before(self, key: QuotaKey) -> tuple[int, Any]:
        return finish(self.etcd.read(key))

    def list_before(self) -> tuple[int, Sequence[Stored]]:
        return finish(self.etcd.list())

    def wrote(self, region: Region, now: float) -> None:
        assert now == self.now()
        self._written = region

    def broke(self, error: Exception) -> None:
        self.broken = error

    def listed(self, region: Region, revision: int) -> None:
        pass

    def led(self, fence: Fence) -> None:
        pass

    def thawed(self, region: Region, frozen_at: int) -> None:
        pass

    def writes_as_leader(self, fence: Fence) -> None:
        pass

    def wrote_as_leader(self, what: QuotaKey | Region, fence: Fence | None, named: Any) -> None:
        pass

    # -- steps --

    def moves(self) -> list[tuple[str, Fault | None]]:
        """Everything that can happen next."""
        possible: list[tuple[str, Fault | None]] = []
        for who, waits in self.waits.items():
            possible.append((who, None))
            if self.faults:
                possible += [(who, fault) for fault in waits.faults if fault in _FAULTS]
        return possible

    def step(self, who: str, fault: Fault | None) -> str:
        told = f"{who}: {self.waits[who].name}"
        if fault is not None:
            self.faults -= 1
            told += f" -- {fault}"
        if fault is Fault.CRASH:
            work = self.works[who]
            work.close()
            self._begin_next(who)
        else:
            self._go_on(who, fault)
        self._check()
        return told

    def _begin_next(self, who: str) -> None:
        """Up to its first call, which nobody else can tell from not having begun."""
        for known in (self.works, self.waits, self.heard):
            known.pop(who, None)
        if self.left[who]:
            self.left[who] -= 1
            self.works[who] = self._begin(who)
            self.heard[who] = ()
            self._go_on(who, None)

    def _go_on(self, who: str, fault: Fault | None) -> None:
        asked = (self._asked(who), fault)
        try:
            waits = self.works[who].send(fault)
            assert waits is not None
            self.waits[who] = waits
            self.heard[who] = (*self.heard[who], asked)
        except (StopIteration, Unavailable):
            self._begin_next(who)

    def _begin(self, who: str) -> Work:
        etcd = EtcdPort(self, self.etcd)
        if who == "planner":
            return _plan(etcd)
        region, _, role = who.partition("-")
        store = StorePort(self, self.stores[region])
        if role:
            return store.transact([Reserve(region, _KEY, 1 + (region == "eu"), region, b"", 60)], self.now())
        if self.left[who] or region == "eu":
            return synchronise(_KEY, region, etcd, store, self.now())
        return claim(_KEY, region, etcd, store, wanted=1, share=1.0, now=self.now())

    def _check(self) -> None:
        if self.broken is not None:
            raise Violation(Invariant.BALANCES, repr(self.broken)) from self.broken
        if self._written is not None:
            region, self._written = self._written, None
            self.checks.look_at_store(region, self.now())
        self.checks.look_at_etcd()

    def _asked(self, who: str) -> int:
        """A digest of what the call that `who` waits for can see: its answer follows from that."""
        waits = self.waits.get(who)
        if waits is None:
            return 0
        region = who.partition("-")[0]
        return self._stored(region) if waits.name in ("apply", "transact") else self._documented()

    def _stored(self, region: Region) -> int:
        store = self.stores[region]
        return hash((*store.held.values(), *store.reservations.values()))

    def _documented(self) -> int:
        revision, document = finish(self.etcd.read(_KEY))
        assert document is not None
        return hash((revision, document.pool, *document.slices.items(), document.moves))

    def state(self) -> int:
        working = tuple((who, self.heard.get(who)) for who in self.left)
        stored = [self._stored(region) for region in _REGIONS]
        return hash((self._documented(), *stored, working, *self.left.values(), self.faults))

    def close(self) -> None:
        for work in self.works.values():
            work.close()


async def _plan(etcd: EtcdPort) -> None:
    revision, document = await etcd.read(_KEY)
    assert document is not None
    await etcd.swap(_KEY, revision, request_moves(document, [Move("only", "eu", "us", 1)]))


class _Search:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.steps = 0
        self.pending: list[_Path] = [()]

    def follow(self, path: _Path) -> tuple[Violation, list[str]] | None:
        """Down to where nothing is new. What else could have been done on the way is left for later."""
        world, lines = _Small(), []
        try:
            for move in path:
                lines.append(world.step(*move))  # noqa: PERF401 - a violation leaves the lines so far
            while (state := world.state()) not in self.seen:
                self.seen.add(state)
                possible = world.moves()
                self.steps += len(possible)
                if not possible:
                    break
                self.pending += [(*path, move) for move in possible[1:]]
                path = (*path, possible[0])
                lines.append(world.step(*possible[0]))
        except Violation as found:
            return found, lines
        finally:
            world.close()
        return None


def explore(on_progress: Callable[[int], None] = lambda _: None) -> Exhausted:
    """All of it, or up to the first violation."""
    began, said = time.monotonic(), 0
    search = _Search()
    with quiet():
        while search.pending:
            found = search.follow(search.pending.pop())
            if found is not None:
                violation, lines = found
                return Exhausted(len(search.seen), search.steps, time.monotonic() - began, str(violation), lines)
            if len(search.seen) - said >= _SAY_EVERY:
                said = len(search.seen)
                on_progress(said)
    return Exhausted(len(search.seen), search.steps, time.monotonic() - began)
