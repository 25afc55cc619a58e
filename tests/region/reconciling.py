"""One region with a reconciler, in memory and on a real Postgres."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, at

from regionquota.adapters.memory.cases import MemoryCaseStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.memory.truth import MemoryTruthSource
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Adjust, Outcome
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reconciling import Case, CaseState, Verdict
from regionquota.ports import RegionStore
from regionquota.reconciling_ports import CaseStore
from regionquota.region.counts import Done, Report, Source
from regionquota.region.reconciler import Reconciler

SETTLE = 30.0
RIPE = 2 * SETTLE
AFTER_CLOSE = 3600.0
LONG_AGO = NOON - 10_000
CALLS = QuotaKey("acme", "calls")
PROJECT = QuotaKey("acme", "vcpu", "project:x")
MAY, JUNE, JULY = at(2026, 5), at(2026, 6), at(2026, 7)


@dataclass
class Region:
    """One region: its store, what is really in use, and a reconciler that compares the two."""

    store: RegionStore
    cases: CaseStore
    clock: HandClock = field(default_factory=lambda: HandClock(NOON))
    truth: MemoryTruthSource = field(default_factory=MemoryTruthSource)
    adjusted: list[str] = field(default_factory=list)
    defined: dict[QuotaKey, Kind] = field(default_factory=dict)

    async def give(self, key: QuotaKey = QUOTA, kind: Kind = Kind.ALLOCATED, now: float = LONG_AGO) -> None:
        assert await self.store.apply(key, allocation(MAX_AMOUNT, kind=kind, eu=10**6), 10, now) is not None

    async def use(self, delta: int, now: float = LONG_AGO, key: QuotaKey = QUOTA) -> None:
        await self.store.transact([Adjust(key, delta, uuid.uuid4().hex, b"", "used", above(key))], now)

    async def used(self, key: QuotaKey = QUOTA) -> int:
        held = await self.store.holding(key)
        assert held is not None
        return held.counter.used

    async def adjust(
        self, key: QuotaKey, *, delta: int, request_id: str, reason: str, reconciles: bool = False
    ) -> Outcome:
        """As `RegionService.adjust`."""
        self.adjusted.append(reason)
        command = Adjust(key, delta, request_id, f"{delta}".encode(), reason, above(key), reconciles)
        (outcome,) = await self.store.transact([command], self.clock.now())
        return outcome

    def reconciler(self, *, holder: str = "one", truth: Any = None, **terms: Any) -> Reconciler:
        chosen: dict[str, Any] = {"resources": ("vcpu",), "apply": True} | terms
        return Reconciler(
            [Source("inventory", truth or self.truth, **chosen)],
            self.store,
            self.cases,
            self.adjust,
            self.clock,
            above=above,
            kind_of=self.defined.get,
            new_id=lambda: str(uuid.uuid4()),
            holder=holder,
            settle_s=SETTLE,
            after_close_s=AFTER_CLOSE,
        )

    async def compare(self, total: int, *, at_: float = NOON, **terms: Any) -> Report:
        """What a count of `total` at `at_` leads to, once it is old enough."""
        self.truth.say({QUOTA: total}, at_)
        self.clock.seconds = max(self.clock.seconds, at_ + RIPE)
        return await self.reconciler(**terms).run("inventory")

    async def open_case(self) -> Case:
        (case,) = await self.cases.cases(CaseState.OPEN, 10)
        return case


def above(key: QuotaKey) -> tuple[QuotaKey, ...]:
    return (QUOTA,) if key == PROJECT else ()


@pytest.fixture
def memory_region(memory_store: MemoryRegionStore) -> Region:
    return Region(memory_store, MemoryCaseStore(memory_store))


@pytest.fixture
async def postgres_region(database: str, postgres_store: PostgresRegionStore) -> AsyncIterator[Region]:
    async with fixtures.cases_on(database) as cases:
        yield Region(postgres_store, cases)


@pytest.fixture(params=["memory", "postgres"])
def region(request: pytest.FixtureRequest) -> Region:
    chosen: Region = request.getfixturevalue(f"{request.param}_region")
    return chosen


def verdicts(report: Report) -> list[tuple[Verdict, int, Done]]:
    return [(one.judgement.verdict, one.judgement.difference, one.done) for one in report.findings]
