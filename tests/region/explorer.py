"""An adversarial scheduler for the allocation protocol.

It drives the very coroutines of `regionquota.region.steps` by hand. Between any two port calls it may let anybody
else go on: two agents per region (each with its own clock), two planners, somebody who sets limits, and callers. It
may drop a coroutine at any await, as a crash does, or hand an agent an old document, as a lagging watch does.
"""

import types
from collections import Counter as Tally
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from tests.core.builders import QUOTA, adjust, at, differences, finish, reserve

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    new_allocation,
    request_moves,
    set_limit,
)
from regionquota.core.commands import Commit, Release
from regionquota.core.invariants import SliceChange
from regionquota.core.quota import Kind, Region
from regionquota.ports import Stored
from regionquota.region.steps import carry_out, claim, synchronise

REGIONS = ("ap", "eu", "us")
AGENTS_PER_REGION = 2
PLANNERS = 2
LIMIT = 40
CRASHES = 0.03
MONTH_ENDS = at(2026, 7)

Work: TypeAlias = Coroutine[Any, Any, object]


class Violation(AssertionError):  # noqa: N818 - reads as a sentence where it is expected
    """Something that must hold does not."""


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Let the scheduler decide who goes on."""
    yield


class Gated:
    """A port whose every call waits for its turn."""

    def __init__(self, port: object) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)

        async def in_turn(*args: Any, **more: Any) -> Any:
            await _turn()
            return await call(*args, **more)

        return in_turn


@dataclass
class Clock:
    time: float = 0.0

    def now(self) -> float:
        return self.time


@dataclass
class World:
    seed: int
    kind: Kind = Kind.CONSUMABLE
    random: Random = field(init=False)
    clock: Clock = field(default_factory=lambda: Clock(MONTH_ENDS - 120))
    steps: Tally[str] = field(default_factory=Tally)
    largest_limit: int = LIMIT
    limits_set: int = 1
    holds: list[tuple[Region, str]] = field(default_factory=list)
    working: dict[str, Work | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.coordination = MemoryCoordination(self.clock)
        self.allocations: Any = Gated(self.coordination)
        self.stores = {region: MemoryRegionStore(region) for region in REGIONS}
        self.agents = {f"{region}{n}": region for region in REGIONS for n in range(AGENTS_PER_REGION)}
        # Each process meets the end of the month at a moment of its own, those of one region close to each other.
        regional = {region: self.random.uniform(-60, 60) for region in REGIONS}
        self.skew = {agent: regional[region] + self.random.uniform(-5, 5) for agent, region in self.agents.items()}
        planners = [f"planner{n}" for n in range(PLANNERS)]
        # Where nobody sets limits, a month is used up to the last unit.
        operators = ["operator"] if self.seed % 2 else []
        self.working = dict.fromkeys([*self.agents, *planners, *operators])
        first = new_allocation(self.kind, LimitSource.PLAN, VersionedLimit(LIMIT, 1))
        finish(self.coordination.swap(QUOTA, 0, first))

    @property
    def history(self) -> Sequence[tuple[int, Allocation]]:
        return [(one.revision, one.allocation) for one in self.coordination._history if one.allocation is not None]

    @property
    def document(self) -> Allocation:
        return self.history[-1][1]

    def changes(self) -> dict[Region, list[SliceChange]]:
        return {
            region: [
                SliceChange(row.key, region, row.revision, row.before, row.after)
                for row in finish(store.slice_history(0, 10**6))
            ]
            for region, store in self.stores.items()
        }

    def step(self) -> None:
        self.clock.time += self.random.uniform(0, 1)
        if self.random.random() < 0.25:
            self._call(self.random.choice(list(self.agents)))
        else:
            self._go_on(self.random.choice(list(self.working)))
        self.check()

    def check(self) -> None:
        document = self.document
        if document.limit != document.pool + document.retired + sum(document.slices.values()):
            raise Violation(f"A: {document} does not add up")
        for region, store in self.stores.items():
            held = finish(store.holding(QUOTA))
            if held is not None and held.slice > document.slice_of(region):
                raise Violation(f"B: {region} holds {held.slice} and owns {document.slice_of(region)}")
        for epoch, spent in self._spent().items():
            if spent > self.largest_limit:
                raise Violation(f"C: {spent} were admitted in {epoch}, the limit was at most {self.largest_limit}")

    def check_balances(self) -> None:
        found = [line for store in self.stores.values() for line in differences(finish(store.check_balances()))]
        if found:
            raise Violation("; ".join(found))

    def _spent(self) -> Tally[int]:
        spent: Tally[int] = Tally()
        for store in self.stores.values():
            for (_, epoch), counter in store._closed.items():
                spent[epoch] += counter.used + counter.reserved
            for held in store._holdings.values():
                spent[held.epoch] += held.counter.used + held.counter.reserved
        return spent

    def _now(self, agent: str) -> float:
        return self.clock.time + self.skew[agent]

    def _go_on(self, who: str) -> None:
        work = self.working[who]
        if work is None:
            self.working[who] = work = self._begin(who)
        elif self.random.random() < CRASHES:
            work.close()
            self.working[who] = None
            self.steps["crash"] += 1
            return
        try:
            work.send(None)
        except StopIteration:
            self.working[who] = None

    def _begin(self, who: str) -> Work:
        if who.startswith("planner"):
            return self._plan()
        if who == "operator":
            return self._set_limit()
        region, now = self.agents[who], self._now(who)
        store: Any = Gated(self.stores[region])
        name = self.random.choice(["synchronise", "synchronise", "carry_out", "claim"])
        self.steps[name] += 1
        match name:
            case "synchronise":
                return synchronise(QUOTA, region, self.allocations, store, now)
            case "carry_out":
                revision, old = self.random.choice(self.history[-6:])
                return carry_out(Stored(QUOTA, revision, old), region, self.allocations, store, now)
            case _:
                wanted, share = self.random.randint(1, 20), self.random.choice([0.3, 1.0])
                return claim(QUOTA, region, self.allocations, store, wanted=wanted, share=share, now=now)

    async def _plan(self) -> None:
        revision, document = await self.allocations.read(QUOTA)
        if document.pool > 0 and self.random.random() < 0.5:
            some = self.random.sample(REGIONS, 2)
            document = grant(document, {region: self.random.randint(0, document.pool // 2) for region in some})
        moves = []
        for n in range(self.random.randint(0, 3)):
            source, target = self.random.sample([*REGIONS, None], 2)
            if source is not None:
                moves.append(Move(f"{self.steps['plan']}-{n}", source, target, self.random.randint(1, 20)))
        self.steps["plan"] += 1
        await self.allocations.swap(QUOTA, revision, request_moves(document, moves))

    async def _set_limit(self) -> None:
        """Seldom, or everything would be about limits."""
        for _ in range(8):
            await _turn()
        revision, document = await self.allocations.read(QUOTA)
        self.limits_set += 1
        limit = self.random.choice([0, LIMIT // 2, LIMIT, LIMIT, LIMIT + 5])
        if await self.allocations.swap(
            QUOTA, revision, set_limit(document, LimitSource.PLAN, VersionedLimit(limit, self.limits_set))
        ):
            self.largest_limit = max(self.largest_limit, limit)
            self.steps["limit"] += 1

    def _call(self, server: str) -> None:
        """A caller's command, and the sweeper's. Never more is committed than was reserved: that would be debt."""
        region, now = self.agents[server], self._now(server)
        store = self.stores[region]
        mine = [name for where, name in self.holds if where == region]
        self.steps["call"] += 1
        kind = self.random.choice(["reserve"] * 5 + ["commit"] * 4 + ["release", "refund", "sweep"])
        if kind == "reserve":
            name = f"hold-{self.steps['call']}"
            held = finish(store.holding(QUOTA))
            everything = max(1, held.counter.available) if held else 1
            finish(store.transact([reserve(self.random.choice([3, everything]), name=name, ttl=60)], now))
            if finish(store.reservation(name)):
                self.holds.append((region, name))
        elif kind == "refund":
            finish(store.transact([adjust(-self.random.randint(1, 3), request=f"refund-{self.steps['call']}")], now))
        elif kind == "sweep":
            finish(store.expire(now, 100))
        elif mine:
            name = self.random.choice(mine)
            # What expired is not committed here: late, it may be charged beyond the slice.
            if finish(store.reservation(name)).state == "PENDING":  # type: ignore[union-attr]
                finish(store.transact([Commit(name) if kind == "commit" else Release(name)], now))
            self.holds.remove((region, name))


def explore(seed: int, steps: int = 400, kind: Kind = Kind.CONSUMABLE) -> World:
    """The world after that many steps. Raises `Violation` at the first that breaks it."""
    world = World(seed, kind)
    for _ in range(steps):
        world.step()
    world.check_balances()
    for work in world.working.values():
        if work is not None:
            work.close()
    return world
