"""The reconciler, in memory and on a real Postgres."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, at, differences, reservation_name, reserve

from regionquota.adapters.memory.cases import MemoryCaseStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.memory.truth import MemoryTruthSource
from regionquota.adapters.postgres.cases import PostgresCaseStore
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.core.commands import Adjust, Commit, Outcome
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reconciling import Case, CaseState, Verdict
from regionquota.errors import InvalidRequest, SourceUnavailable
from regionquota.ports import RegionStore
from regionquota.reconciling_ports import CaseStore, Totals
from regionquota.region.case_work import MAX_CASE_AGE_S, CaseRefused
from regionquota.region.counts import MAX_RESOURCES, Done, Report, Source, State
from regionquota.region.reconciler import LEASE_S, MAX_AGE_S, Reconciler

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store

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
async def postgres_region(database: str, open_store: fixtures.OpenStore) -> AsyncIterator[Region]:
    pool = await open_pool(database, password=None, size=4, deadlines=fixtures.PATIENT)
    try:
        yield Region(await open_store(), PostgresCaseStore(pool, fixtures.PATIENT))
    finally:
        pool.terminate()


@pytest.fixture(params=["memory", "postgres"])
def region(request: pytest.FixtureRequest) -> Region:
    chosen: Region = request.getfixturevalue(f"{request.param}_region")
    return chosen


def verdicts(report: Report) -> list[tuple[Verdict, int, Done]]:
    return [(one.judgement.verdict, one.judgement.difference, one.done) for one in report.findings]


# -- adjustments --


async def test_a_count_that_agrees_changes_nothing(region: Region) -> None:
    await region.give()
    await region.use(1000)
    report = await region.compare(1001)
    assert (State.DONE, 1, []) == (report.state, report.compared, list(report.findings))
    assert 1000 == await region.used()


@pytest.mark.parametrize("total", [1020, 980])
async def test_a_small_difference_is_put_right(region: Region, total: int) -> None:
    await region.give()
    await region.use(1000)
    report = await region.compare(total)
    assert [(Verdict.ADJUST, total - 1000, Done.ADJUSTED)] == verdicts(report)
    assert total == await region.used()
    assert [] == differences(await region.store.check_balances())


async def test_the_ledger_says_that_it_was_reconciled(database: str, postgres_region: Region) -> None:
    await postgres_region.give()
    await postgres_region.use(1000)
    await postgres_region.compare(1020)
    found = "SELECT kind || ' ' || delta || ' ' || reason FROM usage_ledger ORDER BY id DESC LIMIT 1"
    assert "reconcile 20 source inventory counted +20" == await fixtures.query(database, found)


async def test_the_same_count_acts_once(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1020)
    report = await region.compare(1020)
    assert [] == list(report.findings)
    assert 1020 == await region.used()


async def test_a_later_count_corrects_an_earlier_one(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1020)
    await region.compare(1000, at_=NOON + 300)
    assert 1000 == await region.used()


async def test_what_happened_after_the_snapshot_stays(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.use(300, NOON + SETTLE + 1)
    await region.compare(1020)
    assert 1320 == await region.used()


async def test_a_quota_that_moved_around_the_snapshot_is_compared_next_time(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.use(20, NOON + 5)
    assert [Verdict.UNSETTLED] == [one.judgement.verdict for one in (await region.compare(1020)).findings]
    assert 1020 == await region.used()
    assert [] == list((await region.compare(1020, at_=NOON + 300)).findings)


async def test_work_that_was_done_before_its_commit_is_not_charged_twice(region: Region) -> None:
    await region.give()
    await region.use(1000)
    name = reservation_name(1)
    await region.store.transact([reserve(20, name=name, ttl=9999)], NOON - 500)
    await region.compare(1020)  # the instance runs, its commit is still to come
    assert 1000 == await region.used()
    await region.store.transact([Commit(name)], NOON + 400)
    await region.compare(1020)  # the same count, after the commit
    assert 1020 == await region.used()


async def test_a_young_snapshot_waits_and_is_not_counted_anew(region: Region) -> None:
    await region.give()
    await region.use(1000)
    region.truth.say({QUOTA: 1020}, NOON)
    region.clock.seconds = NOON + 1
    reconciler = region.reconciler()
    waiting = await reconciler.run("inventory")
    assert (State.WAITING, NOON + RIPE) == (waiting.state, waiting.compare_at)
    region.truth.say({QUOTA: 5}, NOON + RIPE)
    region.clock.seconds = NOON + RIPE
    assert NOON == (await reconciler.run("inventory")).snapshot_at
    assert 1020 == await region.used()


async def test_the_floor_leaves_small_quotas_alone(region: Region) -> None:
    await region.give()
    await region.use(10)
    assert [] == list((await region.compare(14, floor=4)).findings)
    assert [Verdict.CASE] == [one.judgement.verdict for one in (await region.compare(15, floor=4)).findings]


async def test_a_quota_that_is_charged_to_another_is_put_right_once_in_both(region: Region) -> None:
    await region.give()
    await region.give(PROJECT)
    await region.use(1000, key=PROJECT)
    region.truth.say({QUOTA: 1020, PROJECT: 1020}, NOON)
    region.clock.seconds = NOON + RIPE
    await region.reconciler().run("inventory")
    assert [1020, 1020] == [await region.used(PROJECT), await region.used(QUOTA)]


async def test_only_the_resources_of_a_source_are_compared(region: Region) -> None:
    await region.give(QuotaKey("acme", "disk-1"))
    await region.give(QuotaKey("acme", "disk-2"))
    await region.give()
    region.truth.say({}, NOON)
    region.clock.seconds = NOON + RIPE
    assert 2 == (await region.reconciler(resources=("disk-*",)).run("inventory")).compared


async def test_a_quota_that_the_count_does_not_name_is_not_in_use(region: Region) -> None:
    await region.give()
    await region.use(1000)
    region.truth.say({}, NOON)
    region.clock.seconds = NOON + RIPE
    report = await region.reconciler().run("inventory")
    assert [(Verdict.CASE, -1000, Done.CASE_OPENED)] == verdicts(report)


async def test_usage_of_a_quota_that_this_region_never_used_is_a_case(region: Region) -> None:
    region.defined[QUOTA] = Kind.ALLOCATED
    assert [(Verdict.CASE, 7, Done.CASE_OPENED)] == verdicts(await region.compare(7))
    region.defined.clear()
    assert [] == verdicts(await region.compare(7))


# -- dry runs, and what is refused --


async def test_a_source_that_is_not_applied_only_says_what_it_would_do(region: Region) -> None:
    await region.give()
    await region.use(1000)
    report = await region.compare(1020, apply=False)
    assert report.dry_run
    assert [(Verdict.ADJUST, 20, Done.NOTHING)] == verdicts(report)
    assert [(Verdict.CASE, 500, Done.NOTHING)] == verdicts(await region.compare(1500, apply=False))
    assert (1000, 0) == (await region.used(), await region.cases.open_count())


async def test_a_dry_run_changes_nothing_where_the_source_is_applied(region: Region) -> None:
    await region.give()
    await region.use(1000)
    region.truth.say({QUOTA: 1020}, NOON)
    region.clock.seconds = NOON + RIPE
    assert (await region.reconciler().run("inventory", dry_run=True)).dry_run
    assert 1000 == await region.used()


async def test_an_unknown_source_is_refused_with_those_that_are_known(region: Region) -> None:
    with pytest.raises(InvalidRequest, match="unknown source billing: known are inventory"):
        await region.reconciler().run("billing")


@pytest.mark.parametrize(
    ("moment", "message"), [(NOON + SETTLE + 1, "in the future"), (NOON - MAX_AGE_S - 1, "more than 24 h ago")]
)
async def test_a_snapshot_of_another_time_is_refused(region: Region, moment: float, message: str) -> None:
    await region.give()
    region.truth.say({QUOTA: 1}, moment)
    with pytest.raises(SourceUnavailable, match=message):
        await region.reconciler().run("inventory")


async def test_a_source_of_too_many_resources_is_refused(region: Region) -> None:
    names = tuple(f"r{n}" for n in range(MAX_RESOURCES + 1))
    with pytest.raises(SourceUnavailable, match="make several of it"):
        await region.reconciler(resources=names).run("inventory")


# -- cases --


async def test_a_large_difference_is_left_to_a_person(region: Region) -> None:
    await region.give()
    await region.use(1000)
    assert [(Verdict.CASE, 200, Done.CASE_OPENED)] == verdicts(await region.compare(1200))
    case = await region.open_case()
    assert (1200, 1000, 200, 1000) == (case.truth, case.counted, case.difference, await region.used())


async def test_a_difference_that_would_end_below_zero_is_left_to_a_person(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.use(-990, NOON + SETTLE + 1)
    assert [(Verdict.CASE, -30, Done.CASE_OPENED)] == verdicts(await region.compare(970))
    assert "below 0" in (await region.open_case()).why
    assert 10 == await region.used()


async def test_an_approval_adds_what_is_left_of_the_difference(region: Region) -> None:
    await region.give()
    await region.use(1000)
    reconciler = region.reconciler()
    await region.compare(1200)
    await region.use(70, NOON + 100)
    case = await region.open_case()
    approved = await reconciler.work.approve(case.id, "ann", "the inventory is right")
    assert isinstance(approved, Case)
    assert (CaseState.APPROVED, 200, "ann") == (approved.state, approved.delta, approved.by)
    assert 1270 == await region.used()
    assert [] == differences(await region.store.check_balances())


async def test_an_approval_discounts_what_was_corrected_in_the_meantime(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    await region.adjust(QUOTA, delta=150, request_id="other", reason="another source", reconciles=True)
    await region.reconciler().work.approve(case.id, "ann", "right")
    assert 1200 == await region.used()


async def test_many_that_approve_at_once_add_it_once(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    work = region.reconciler().work
    answers = await asyncio.gather(*(work.approve(case.id, f"p{n}", "right") for n in range(8)))
    assert all(isinstance(one, Case) for one in answers)
    again = await work.approve(case.id, "ann", "right")
    assert isinstance(again, Case)
    assert again.applied_at is not None
    assert 1200 == await region.used()


async def test_an_approval_that_was_cut_short_is_finished_by_the_next_run(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    await region.cases.decide_case(case, CaseState.APPROVED, "ann", "right", 200, NOON + 90)
    await region.compare(1200)
    assert 1200 == await region.used()
    assert [] == list(await region.cases.unapplied(10))


async def test_an_approval_that_was_carried_out_and_not_noted_is_not_carried_out_again(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    await region.cases.decide_case(case, CaseState.APPROVED, "ann", "right", 200, NOON + 90)
    await region.adjust(QUOTA, delta=200, request_id=case.request_id, reason="before the end", reconciles=True)
    approved = await region.reconciler().work.approve(case.id, "ann", "right")
    assert isinstance(approved, Case)
    assert approved.applied_at is not None
    assert 1200 == await region.used()


async def test_an_approval_that_would_end_below_zero_is_refused_with_the_remedy(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.use(-990, NOON + SETTLE + 1)
    await region.compare(970)
    refused = await region.reconciler().work.approve((await region.open_case()).id, "ann", "right")
    assert isinstance(refused, CaseRefused)
    assert "used is 10, and -30 would take it below 0" in refused.message
    assert (10, 1) == (await region.used(), await region.cases.open_count())


async def test_a_case_that_is_too_old_is_not_approved(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    region.clock.seconds = NOON + MAX_CASE_AGE_S + 1
    refused = await region.reconciler().work.approve((await region.open_case()).id, "ann", "right")
    assert isinstance(refused, CaseRefused)
    assert "older than 7 days" in refused.message


async def test_a_rejection_leaves_what_is_used(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    work = region.reconciler().work
    case = await region.open_case()
    first = await work.reject(case.id, "ann", "the count is wrong")
    assert first == await work.reject(case.id, "bob", "again")
    assert isinstance(await work.approve(case.id, "bob", "yet"), CaseRefused)
    assert 1000 == await region.used()


async def test_a_rejected_difference_is_not_asked_about_at_every_run(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    await region.reconciler().work.reject((await region.open_case()).id, "ann", "the count is wrong")
    assert [(Verdict.CASE, 200, Done.CASE_STANDS)] == verdicts(await region.compare(1200, at_=NOON + 300))
    assert [(Verdict.CASE, 300, Done.CASE_OPENED)] == verdicts(await region.compare(1300, at_=NOON + 600))


async def test_an_approved_case_is_not_rejected(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    work = region.reconciler().work
    await work.approve(case.id, "ann", "right")
    assert isinstance(await work.reject(case.id, "bob", "wrong"), CaseRefused)


async def test_a_case_that_does_not_exist_is_told(region: Region) -> None:
    work = region.reconciler().work
    assert await work.approve("nonsense", "ann", "right") is None
    assert await work.reject(str(uuid.uuid4()), "ann", "right") is None


@pytest.mark.parametrize(
    ("total", "done", "used"),
    [(1000, Done.CASE_SUPERSEDED, 1000), (1020, Done.ADJUSTED, 1020)],
    ids=["agrees", "small"],
)
async def test_a_newer_count_ends_a_case(region: Region, total: int, done: Done, used: int) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()
    assert [done] == [one.done for one in (await region.compare(total, at_=NOON + 300)).findings]
    ended = await region.cases.case(case.id)
    assert ended is not None
    assert (CaseState.SUPERSEDED, used) == (ended.state, await region.used())


async def test_a_newer_count_replaces_the_numbers_of_a_case(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    first = await region.open_case()
    await region.compare(1400, at_=NOON + 300)
    case = await region.open_case()
    assert (first.id, 400) == (case.id, case.difference)


async def test_whoever_approves_first_is_not_adjusted_again(region: Region) -> None:
    """A run that finds a small difference meets an approval of the old one that is not applied yet."""
    await region.give()
    await region.use(1000)
    await region.compare(1200)
    case = await region.open_case()

    class Interrupted:
        """An approval comes between the run's look and its adjustment."""

        def __getattr__(self, name: str) -> Any:
            return getattr(region.cases, name)

        async def supersede(self, *terms: Any) -> bool:
            await region.cases.decide_case(case, CaseState.APPROVED, "ann", "right", 200, NOON + 90)
            return await region.cases.supersede(*terms)

    other = Region(region.store, Interrupted(), region.clock, region.truth)  # type: ignore[arg-type]
    assert [(Verdict.ADJUST, 20, Done.CASE_STANDS)] == verdicts(await other.compare(1020, at_=NOON + 300))
    assert 1000 == await region.used()


# -- several servers --


async def test_another_server_is_left_to_its_work(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.cases.lease("inventory", "other", NOON + RIPE, NOON + RIPE + LEASE_S)
    assert State.ELSEWHERE is (await region.compare(1020)).state
    assert 1000 == await region.used()
    region.clock.seconds += LEASE_S
    assert State.DONE is (await region.compare(1020)).state


async def test_a_server_that_lost_its_lease_stops(region: Region) -> None:
    await region.give()
    await region.use(1000)
    taken = iter([True])

    class Lost:
        def __getattr__(self, name: str) -> Any:
            return getattr(region.cases, name)

        async def lease(self, *_terms: Any) -> bool:
            return next(taken, False)

    other = Region(region.store, Lost(), region.clock, region.truth)  # type: ignore[arg-type]
    assert State.ELSEWHERE is (await other.compare(1020)).state
    assert 1000 == await region.used()


async def test_the_lease_ends_with_the_run_however_it_ends(region: Region) -> None:
    await region.give()
    region.truth.say({QUOTA: 1}, NOON - MAX_AGE_S - 1)
    with pytest.raises(SourceUnavailable):
        await region.reconciler(holder="one").run("inventory")
    await region.use(1000)
    assert State.DONE is (await region.compare(1020, holder="two")).state


async def test_servers_that_compare_the_same_count_at_once_adjust_it_once(region: Region) -> None:
    await region.give()
    await region.use(1000)
    region.truth.say({QUOTA: 1020}, NOON)
    region.clock.seconds = NOON + RIPE
    servers = [region.reconciler(holder=f"server-{n}") for n in range(4)]
    await asyncio.gather(*(one.run("inventory") for one in servers))
    assert 1020 == await region.used()
    assert 1 == len(region.adjusted)


async def test_only_a_run_to_the_end_is_a_success(region: Region) -> None:
    await region.give()
    region.truth.say({}, NOON)
    reconciler = region.reconciler()
    await reconciler.run("inventory")
    assert {} == await region.cases.successes()
    region.clock.seconds = NOON + RIPE
    await reconciler.run("inventory")
    assert {"inventory": NOON + RIPE} == await region.cases.successes()


# -- commits in flight --


@dataclass
class Inventory:
    """What is really in use. The clock moves with each count, so that a snapshot has an instant of its own."""

    clock: HandClock
    units: int = 0

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        return Totals(self.clock.now(), {QUOTA: self.units})


async def test_commits_that_race_the_reconciler_all_survive_it(region: Region) -> None:
    """200 times something is created and committed while counts are taken, wait and are compared; some usage was lost
    before. In the end the ledger says what is true.
    """
    random = Random(7)
    await region.give()
    await region.use(100_000)
    world = Inventory(region.clock, 100_300)  # 300 were lost
    reconciler = region.reconciler(truth=world)

    async def create(number: int) -> None:
        name, amount = reservation_name(number), random.randint(1, 50)
        await region.store.transact([reserve(amount, name=name, ttl=9999)], region.clock.now())
        await asyncio.sleep(0)
        world.units += amount
        for _ in range(random.randint(0, 3)):
            region.clock.seconds += random.choice((0.5, SETTLE / 2, SETTLE + 1))
            await asyncio.sleep(0)
        await region.store.transact([Commit(name)], region.clock.now())

    for number in range(1, 201):
        await asyncio.gather(create(number), reconciler.run("inventory"))
        region.clock.seconds += random.choice((0, 1, SETTLE, RIPE + 1))
    region.clock.seconds += RIPE
    for _ in range(3):  # the last count that is still waiting, and one that nothing races
        await reconciler.run("inventory")
        region.clock.seconds += RIPE
    assert world.units == await region.used()
    assert 0 == await region.cases.open_count()
    assert [] == differences(await region.store.check_balances())


# -- consumables --


async def close(region: Region, total: int, now: float, **terms: Any) -> Report:
    region.truth.say({CALLS: total}, now, (MAY, JUNE))
    region.clock.seconds = now
    return await region.reconciler(resources=("calls",), kind=Kind.CONSUMABLE, **terms).run("inventory")


async def use_calls(region: Region, may: int, june: int = 0) -> None:
    await region.give(CALLS, Kind.CONSUMABLE, MAY + 1)
    await region.use(may, MAY + 1, CALLS)
    if june:
        await region.use(june, JUNE + 60, CALLS)


@pytest.mark.parametrize("june", [0, 50], ids=["not rolled over", "rolled over"])
async def test_a_period_is_compared_after_its_close_and_never_adjusted(region: Region, june: int) -> None:
    await use_calls(region, 10_000, june)
    report = await close(region, 10_020, JUNE + AFTER_CLOSE)
    assert [(Verdict.CASE, 20, Done.CASE_OPENED)] == verdicts(report)
    case = await region.open_case()
    assert (MAY, 10_020, 10_000) == (case.period_start, case.truth, case.counted)


async def test_a_period_is_not_compared_before_its_time(region: Region) -> None:
    await use_calls(region, 10_000)
    assert 0 == (await close(region, 10_020, JUNE + AFTER_CLOSE - 1)).compared


async def test_a_period_is_not_compared_with_a_count_from_before_its_end(region: Region) -> None:
    await use_calls(region, 10_000)
    region.truth.say({CALLS: 9000}, JUNE - 1, (MAY, JUNE))
    region.clock.seconds = JUNE + AFTER_CLOSE
    reconciler = region.reconciler(resources=("calls",), kind=Kind.CONSUMABLE)
    assert 0 == (await reconciler.run("inventory")).compared
    assert 1 == (await close(region, 10_000, JUNE + AFTER_CLOSE)).compared


async def test_a_period_is_compared_once(region: Region) -> None:
    await use_calls(region, 10_000)
    assert 1 == (await close(region, 10_000, JUNE + AFTER_CLOSE)).compared
    assert 0 == (await close(region, 99_000, JUNE + AFTER_CLOSE + 300)).compared


async def test_a_dry_run_does_not_count_as_the_comparison_of_a_period(region: Region) -> None:
    await use_calls(region, 10_000)
    dry = await close(region, 10_020, JUNE + AFTER_CLOSE, apply=False)
    assert [(Verdict.CASE, 20, Done.NOTHING)] == verdicts(dry)
    assert 1 == len((await close(region, 10_020, JUNE + AFTER_CLOSE)).findings)


async def test_usage_in_a_period_that_the_ledger_knows_nothing_of_is_found(region: Region) -> None:
    await region.give(CALLS, Kind.CONSUMABLE, MAY - 10)
    await region.use(5, MAY - 10, CALLS)
    region.truth.say({CALLS: 5}, JUNE + AFTER_CLOSE, (at(2026, 4), MAY))
    assert [(Verdict.CASE, 70, Done.CASE_OPENED)] == verdicts(await close(region, 70, JUNE + AFTER_CLOSE))


async def test_periods_from_before_a_quota_was_known_are_not_compared(region: Region) -> None:
    await region.give(CALLS, Kind.CONSUMABLE, JUNE + 1)
    await region.use(5, JUNE + 1, CALLS)
    assert 0 == (await close(region, 10_020, JUNE + AFTER_CLOSE)).compared


@pytest.mark.parametrize(("total", "june"), [(12_000, 2050), (9_980, 30)], ids=["charge", "refund"])
async def test_an_approval_is_charged_to_the_current_period(region: Region, total: int, june: int) -> None:
    await use_calls(region, 10_000, 50)
    await close(region, total, JUNE + AFTER_CLOSE)
    await region.reconciler().work.approve((await region.open_case()).id, "ann", "the logs are right")
    assert june == await region.used(CALLS)
    assert "for the closed period from 2026-05-01T00:00:00+00:00" in region.adjusted[-1]


async def test_what_was_charged_for_an_earlier_period_is_no_difference_of_the_later_one(region: Region) -> None:
    await use_calls(region, 10_000, 50)
    await close(region, 12_000, JUNE + AFTER_CLOSE)
    await region.reconciler().work.approve((await region.open_case()).id, "ann", "the logs are right")
    region.truth.say({CALLS: 50}, JULY + AFTER_CLOSE, (JUNE, JULY))
    assert [] == verdicts(await close(region, 0, JULY + AFTER_CLOSE))


async def test_a_refund_waits_until_there_is_enough_to_take_it_from(region: Region) -> None:
    await use_calls(region, 10_000, 5)
    await close(region, 9_000, JUNE + AFTER_CLOSE)
    work, case = region.reconciler().work, await region.open_case()
    refused = await work.approve(case.id, "ann", "the logs are right")
    assert isinstance(refused, CaseRefused)
    assert "approve it later" in refused.message
    await region.use(2000, JUNE + AFTER_CLOSE + 5, CALLS)
    await work.approve(case.id, "ann", "the logs are right")
    assert 1005 == await region.used(CALLS)
