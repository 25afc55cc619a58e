"""Every interleaving of a small configuration: depth-first, by doing runs again; no state is gone on from twice.

A state is what is durable, exactly, and for each process what it has been answered so far in its piece of work: by
that its coroutine is where it is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import LimitSource, Move, VersionedLimit, grant, new_allocation, request_moves
from regionquota.core.commands import Commit, Reserve
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import Unavailable
from regionquota.explorer.checks import Checks
from regionquota.explorer.drive import finish
from regionquota.explorer.faults import Fault
from regionquota.explorer.invariants import Violation
from regionquota.explorer.logs import quiet
from regionquota.explorer.ports import Call, EtcdPort, Message, StorePort, Work
from regionquota.explorer.quotas import MONTH_ENDS
from regionquota.ports import Fence, Stored
from regionquota.region.steps import claim, synchronise

CONFIGURATION: Final = "2 regions with an agent each, a planner, a limit of 3, callers, a crash and a lost reply"
_KEY: Final = QuotaKey("acme", "units")
_REGIONS: Final[Sequence[Region]] = ("eu", "us")
_LIMIT: Final = 3
_JOBS: Final = {"eu": 2, "us": 2, "planner": 1, "eu-caller": 2, "us-caller": 2}
"""Pieces of work of each process. An agent that is through begins again while it has any."""
_FAULTS: Final = {Fault.CRASH: 1, Fault.LOST_REPLY: 1}


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
        self.faults = dict(_FAULTS)
        self.works: dict[str, Work] = {}
        self.waits: dict[str, Call] = {}
        self.heard: dict[str, tuple[object, ...]] = {}
        self._written: Region | None = None
        self._broken: Exception | None = None
        self._last: object = None

    def now(self) -> float:
        return MONTH_ENDS - 1000.0

    # -- what the ports ask --

    def count(self, fault: Fault) -> None:
        pass

    def is_cut_off(self, _region: Region) -> bool:
        return False

    def post(self, name: str, message: Message) -> None:
        raise NotImplementedError(f"{name}: nothing is late here, {message}")

    def before(self, key: QuotaKey) -> tuple[int, Any]:
        return finish(self.etcd.read(key))

    def list_before(self) -> tuple[int, Sequence[Stored]]:
        return finish(self.etcd.list())

    def wrote(self, region: Region, now: float) -> None:
        assert now == self.now()
        self._written = region

    def broke(self, error: Exception) -> None:
        self._broken = error

    def listed(self, region: Region, revision: int) -> None:
        pass

    def led(self, fence: Fence) -> None:
        pass

    def thawed(self, region: Region, frozen_at: int) -> None:
        pass

    def writes_as_leader(self, fence: Fence) -> None:
        pass

    def wrote_as_leader(self, key: QuotaKey, fence: Fence | None, named: Any) -> None:
        pass

    # -- steps --

    def moves(self) -> list[tuple[str, Fault | None]]:
        """Everything that can happen next."""
        possible: list[tuple[str, Fault | None]] = []
        for who, left in self.left.items():
            if who not in self.works:
                if left:
                    possible.append((who, None))
                continue
            possible.append((who, None))
            possible += [(who, fault) for fault in self.waits[who].faults if self.faults.get(fault)]
        return possible

    def step(self, who: str, fault: Fault | None) -> str:
        told = f"{who}: {self.waits[who].name}" if who in self.works else f"{who} begins"
        if fault is not None:
            self.faults[fault] -= 1
            told += f" -- {fault}"
        if fault is Fault.CRASH:
            self.works.pop(who).close()
            self._forget(who)
        elif who in self.works:
            self._go_on(who, fault)
        else:
            self.left[who] -= 1
            self.works[who] = self._begin(who)
            self.heard[who] = (self.left[who],)
            self._go_on(who, None)
        self._check()
        return told

    def _go_on(self, who: str, fault: Fault | None) -> None:
        before = self._durable()
        try:
            waits = self.works[who].send(fault)
            assert waits is not None
            self.waits[who] = waits
            # What was answered follows from what was durable when it was asked.
            self.heard[who] = (*self.heard[who], before, fault)
        except (StopIteration, Unavailable):
            self.works.pop(who)
            self._forget(who)

    def _forget(self, who: str) -> None:
        self.waits.pop(who, None)
        self.heard.pop(who, None)

    def _begin(self, who: str) -> Work:
        etcd = EtcdPort(self, self.etcd)
        if who == "planner":
            return _plan(etcd)
        region, _, role = who.partition("-")
        store = StorePort(self, self.stores[region])
        turn = self.left[who]
        if role:
            name = f"{region}{turn}"
            if turn:
                return store.transact([Reserve(name, _KEY, 1 + (region == "eu"), name, b"", 60)], self.now())
            return store.transact([Commit(f"{region}1")], self.now())
        if turn or region == "eu":
            return synchronise(_KEY, region, etcd, store, self.now())
        return claim(_KEY, region, etcd, store, wanted=1, share=1.0, now=self.now())

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._written is not None:
            region, self._written = self._written, None
            self.checks.look_at_store(region, self.now())
        self.checks.look_at_etcd()

    def _durable(self) -> int:
        documents = tuple((one.revision, one.allocation) for one in finish(self.etcd.list())[1])
        said = repr(documents)
        for store in self.stores.values():
            said += repr((store.held, store.counters, store.reservations))
        return hash(said)

    def state(self) -> int:
        working = tuple(sorted((who, heard) for who, heard in self.heard.items()))
        return hash((self._durable(), repr(working), tuple(self.left.values()), tuple(self.faults.values())))

    def close(self) -> None:
        for work in self.works.values():
            work.close()


async def _plan(etcd: EtcdPort) -> None:
    revision, document = await etcd.read(_KEY)
    assert document is not None
    await etcd.swap(_KEY, revision, request_moves(document, [Move("only", "eu", "us", 1)]))


def explore(
    on_progress: Callable[[int], None] = lambda _: None, every: int = 20_000, most: int | None = None
) -> Exhausted:
    """All of it. `most` states at most, for who only wants to see it begin."""
    began = time.monotonic()
    seen: set[int] = set()
    steps = 0
    pending: list[tuple[tuple[str, Fault | None], ...]] = [()]
    with quiet():
        while pending:
            path = pending.pop()
            world, lines = _Small(), []
            try:
                for move in path:
                    lines.append(world.step(*move))
                while True:
                    state = world.state()
                    if state in seen:
                        break
                    seen.add(state)
                    if len(seen) % every == 0:
                        on_progress(len(seen))
                    if most is not None and len(seen) >= most:
                        return Exhausted(len(seen), steps, time.monotonic() - began)
                    possible = world.moves()
                    if not possible:
                        break
                    steps += len(possible)
                    # The first is gone on with at once; to the others another run comes back.
                    pending += [(*path, move) for move in possible[1:]]
                    path = (*path, possible[0])
                    lines.append(world.step(*possible[0]))
            except Exception as found:
                if not isinstance(found, Violation) and world._broken is None:
                    raise
                said = f"{type(found).__name__} {found}" if not isinstance(found, Violation) else str(found)
                return Exhausted(len(seen), steps, time.monotonic() - began, said, lines)
            finally:
                world.close()
    return Exhausted(len(seen), steps, time.monotonic() - began)
