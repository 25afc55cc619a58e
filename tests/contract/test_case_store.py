"""What every `CaseStore` promises: beside a store in memory, and on a real Postgres."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, OTHER, QUOTA, allocation, at, reservation_name, reserve

from regionquota.adapters.memory.cases import MemoryCaseStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Adjust, Charge, Commit, Expire, Release, Reserve
from regionquota.core.periods import epoch_of
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reconciling import REJECTED_STANDS_S, Case, CaseState, Sighting
from regionquota.ports import RegionStore
from regionquota.reconciling_ports import CaseStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store

MARGIN = 30.0
MAY, JUNE = (epoch_of(Kind.CONSUMABLE, at(2026, month)) for month in (5, 6))
IN_MAY, IN_JUNE = at(2026, 5, 20), at(2026, 6, 1, 0, 0, 10)
PROJECT = QuotaKey("acme", "vcpu", "project:x")


@dataclass
class Books:
    """A region's store, and the cases beside it."""

    region: RegionStore
    cases: CaseStore

    async def give(self, key: QuotaKey = QUOTA, kind: Kind = Kind.ALLOCATED, now: float = NOON - 10_000) -> None:
        assert await self.region.apply(key, allocation(MAX_AMOUNT, kind=kind, eu=10**6), 10, now) is not None

    async def add(self, delta: int, now: float, key: QuotaKey = QUOTA, *, reconciles: bool = False) -> None:
        command = Adjust(key, delta, uuid.uuid4().hex, b"", "because", reconciles=reconciles)
        await self.region.transact([command], now)

    async def hold(self, number: int, amount: int, now: float) -> str:
        name = reservation_name(number)
        await self.region.transact([reserve(amount, name=name, ttl=100_000)], now)
        return name

    async def sighting(self, key: QuotaKey = QUOTA) -> Sighting:
        return (await self.cases.sightings([key.resource], NOON, MARGIN))[key]


@pytest.fixture
def memory_books(memory_store: MemoryRegionStore) -> Books:
    return Books(memory_store, MemoryCaseStore(memory_store))


@pytest.fixture
async def postgres_books(database: str, postgres_store: PostgresRegionStore) -> AsyncIterator[Books]:
    async with fixtures.cases_on(database) as cases:
        yield Books(postgres_store, cases)


@pytest.fixture(params=["memory", "postgres"])
def books(request: pytest.FixtureRequest) -> Books:
    chosen: Books = request.getfixturevalue(f"{request.param}_books")
    return chosen


# -- sightings --


async def test_what_was_used_long_before_is_used_then(books: Books) -> None:
    await books.give()
    await books.add(100, NOON - 5000)
    assert Sighting(used=100) == await books.sighting()


async def test_what_came_after_the_snapshot_is_told_apart(books: Books) -> None:
    await books.give()
    await books.add(100, NOON - 5000)
    await books.add(20, NOON + MARGIN + 1)
    await books.add(-5, NOON + MARGIN + 2)
    assert Sighting(used=115, since=15) == await books.sighting()


@pytest.mark.parametrize(
    ("seconds", "near"),
    [(-MARGIN - 1, False), (-MARGIN + 1, True), (0, True), (MARGIN - 1, True), (MARGIN + 1, False)],
)
async def test_what_came_within_the_margin_is_near(books: Books, seconds: float, near: bool) -> None:
    await books.give()
    await books.add(7, NOON + seconds)
    assert near == (await books.sighting()).near


async def test_reconciliations_do_not_count_as_events(books: Books) -> None:
    await books.give()
    await books.add(100, NOON - 5000)
    await books.add(3, NOON - 1, reconciles=True)
    await books.add(4, NOON + 200, reconciles=True)
    assert Sighting(used=107) == await books.sighting()


async def test_holds_that_were_open_and_still_are_leave_doubt(books: Books) -> None:
    await books.give()
    await books.hold(1, 10, NOON - 100)
    await books.hold(2, 5, NOON + MARGIN - 1)
    await books.hold(3, 2, NOON + MARGIN + 1)
    assert Sighting(held=15) == await books.sighting()


async def test_holds_that_were_open_and_were_committed_since_are_told_apart(books: Books) -> None:
    await books.give()
    then = await books.hold(1, 10, NOON - 100)
    later = await books.hold(2, 5, NOON + MARGIN + 1)
    await books.region.transact([Commit(then, 8), Commit(later)], NOON + MARGIN + 50)
    assert Sighting(used=13, since=13, settled=8) == await books.sighting()


async def test_a_late_commit_of_a_hold_that_was_open_is_told_apart(books: Books) -> None:
    await books.give()
    name = reservation_name(1)
    await books.region.transact([reserve(10, name=name, ttl=10)], NOON - 5)
    await books.region.transact([Expire(name)], NOON + 20)
    await books.region.transact([Commit(name)], NOON + 100)
    assert Sighting(used=10, since=10, settled=10) == await books.sighting()


async def test_holds_that_were_given_back_leave_no_doubt(books: Books) -> None:
    await books.give()
    await books.region.transact([Release(await books.hold(1, 10, NOON - 100))], NOON + 100)
    assert Sighting() == await books.sighting()


async def test_the_further_lines_of_a_hold_are_seen_too(books: Books) -> None:
    await books.give()
    await books.give(PROJECT)
    one = Reserve(reservation_name(1), PROJECT, 10, "r1", b"", 9999, (Charge(QUOTA, 10, (0,)),))
    await books.region.transact([one], NOON - 100)
    assert [Sighting(held=10)] * 2 == [await books.sighting(PROJECT), await books.sighting(QUOTA)]


async def test_only_allocated_quotas_of_the_resources_are_sighted(books: Books) -> None:
    await books.give()
    await books.give(OTHER)
    await books.give(QuotaKey("acme", "calls"), Kind.CONSUMABLE)
    assert {QUOTA} == set(await books.cases.sightings(["vcpu", "calls"], NOON, MARGIN))
    assert {OTHER} == set(await books.cases.sightings(["vcpu", "disk"], NOON, MARGIN, OTHER))


# -- periods --


async def test_the_usage_of_a_closed_period_is_its_own(books: Books) -> None:
    await books.give(kind=Kind.CONSUMABLE, now=IN_MAY)
    await books.add(70, IN_MAY)
    await books.add(9, IN_JUNE)
    assert {(QUOTA, MAY): 70, (QUOTA, JUNE): 9} == await books.cases.period_usage([(QUOTA, MAY), (QUOTA, JUNE)])


async def test_a_period_that_nobody_has_closed_yet_is_known(books: Books) -> None:
    await books.give(kind=Kind.CONSUMABLE, now=IN_MAY)
    await books.add(70, IN_MAY)
    assert {(QUOTA, MAY): 70} == await books.cases.period_usage([(QUOTA, MAY), (QUOTA, JUNE)])


async def test_debt_that_was_carried_on_was_used_up_where_it_was_made(books: Books) -> None:
    await books.give(kind=Kind.CONSUMABLE, now=IN_MAY)
    await books.add(10**6 + 5, IN_MAY)
    await books.add(9, IN_JUNE)
    usage = await books.cases.period_usage([(QUOTA, MAY), (QUOTA, JUNE)])
    assert {(QUOTA, MAY): 10**6 + 5, (QUOTA, JUNE): 9} == usage


async def test_what_is_charged_for_another_period_does_not_count_in_this(books: Books) -> None:
    await books.give(kind=Kind.CONSUMABLE, now=IN_MAY)
    await books.add(9, IN_JUNE)
    await books.add(100, IN_JUNE, reconciles=True)
    assert {(QUOTA, JUNE): 9} == await books.cases.period_usage([(QUOTA, JUNE)])


async def test_a_period_is_compared_once_by_each_source(books: Books) -> None:
    periods = [(QUOTA, MAY), (QUOTA, JUNE), (OTHER, MAY)]
    await books.cases.close_period("logs", periods[0], NOON)
    await books.cases.close_period("logs", periods[0], NOON + 1)
    assert set(periods[1:]) == set(await books.cases.uncompared("logs", periods))
    assert set(periods) == set(await books.cases.uncompared("other", periods))


# -- leases --


async def test_one_holder_has_a_source_at_a_time(books: Books) -> None:
    assert await books.cases.lease("inventory", "a", NOON, NOON + 60)
    assert not await books.cases.lease("inventory", "b", NOON + 59, NOON + 119)
    assert await books.cases.lease("billing", "b", NOON, NOON + 60)


async def test_a_lease_can_be_prolonged_and_given_up(books: Books) -> None:
    await books.cases.lease("inventory", "a", NOON, NOON + 60)
    assert await books.cases.lease("inventory", "a", NOON + 50, NOON + 110)
    await books.cases.end_lease("inventory", "b")
    assert not await books.cases.lease("inventory", "b", NOON + 70, NOON + 130)
    await books.cases.end_lease("inventory", "a")
    assert await books.cases.lease("inventory", "b", NOON + 70, NOON + 130)


async def test_a_lease_that_ran_out_is_anybodys(books: Books) -> None:
    await books.cases.lease("inventory", "a", NOON, NOON + 60)
    assert await books.cases.lease("inventory", "b", NOON + 60, NOON + 120)
    assert not await books.cases.lease("inventory", "a", NOON + 61, NOON + 121)


async def test_the_last_success_of_each_source_is_known(books: Books) -> None:
    assert {} == await books.cases.successes()
    await books.cases.lease("billing", "a", NOON, NOON + 60)
    await books.cases.note_success("inventory", NOON)
    await books.cases.note_success("inventory", NOON + 5)
    assert {"inventory": NOON + 5} == await books.cases.successes()


# -- cases --


def case(**but: Any) -> Case:
    return replace(
        Case(
            id=str(uuid.uuid4()),
            key=QUOTA,
            source="inventory",
            snapshot_at=NOON,
            truth=150,
            counted=100,
            difference=50,
            why="more than 5 %",
            opened_at=NOON + 60,
        ),
        **but,
    )


async def test_a_case_is_kept_as_it_was_opened(books: Books) -> None:
    opened = case(epoch=MAY, period_start=IN_MAY)
    assert opened == await books.cases.open_case(opened)
    assert opened == await books.cases.case(opened.id)
    assert [opened] == list(await books.cases.cases(CaseState.OPEN, 10))
    assert 1 == await books.cases.open_count()


@pytest.mark.parametrize("name", ["nonsense", "", str(uuid.UUID(int=7))])
async def test_a_case_that_does_not_exist_is_none(books: Books, name: str) -> None:
    assert await books.cases.case(name) is None


async def test_newer_numbers_replace_those_of_the_open_case(books: Books) -> None:
    first = case()
    await books.cases.open_case(first)
    newer = case(snapshot_at=NOON + 300, truth=170, difference=70, opened_at=NOON + 360)
    expected = replace(newer, id=first.id, opened_at=first.opened_at)
    assert expected == await books.cases.open_case(newer)
    assert [expected] == list(await books.cases.cases(None, 10))


async def test_older_numbers_replace_nothing(books: Books) -> None:
    newer = case(snapshot_at=NOON + 300)
    await books.cases.open_case(newer)
    assert await books.cases.open_case(case()) is None
    assert newer == await books.cases.case(newer.id)


async def test_each_quota_and_period_has_a_case_of_its_own(books: Books) -> None:
    for one in (case(), case(key=OTHER), case(epoch=MAY)):
        assert await books.cases.open_case(one) is not None
    assert 3 == await books.cases.open_count()


async def test_a_case_is_decided_once(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    decided = await books.cases.decide_case(opened, CaseState.APPROVED, "ann", "right", 48, NOON + 99)
    expected = replace(opened, state=CaseState.APPROVED, by="ann", reason="right", delta=48, decided_at=NOON + 99)
    assert expected == decided == await books.cases.case(opened.id)
    assert await books.cases.decide_case(opened, CaseState.REJECTED, "bob", "wrong", None, NOON + 100) is None
    assert expected == await books.cases.case(opened.id)


async def test_two_that_decide_at_once_have_one_winner(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    decided = await asyncio.gather(
        *(books.cases.decide_case(opened, CaseState.APPROVED, f"p{n}", "right", n, NOON + n) for n in range(1, 9))
    )
    assert 1 == len([one for one in decided if one is not None])


async def test_numbers_that_were_replaced_in_the_meantime_are_not_decided_on(books: Books) -> None:
    seen = case()
    await books.cases.open_case(seen)
    await books.cases.open_case(case(snapshot_at=NOON + 300, difference=70))
    assert await books.cases.decide_case(seen, CaseState.APPROVED, "ann", "right", 50, NOON + 400) is None
    assert 1 == await books.cases.open_count()


async def test_an_approved_case_waits_until_it_is_applied_once(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    assert [] == list(await books.cases.unapplied(10))
    decided = await books.cases.decide_case(opened, CaseState.APPROVED, "ann", "right", 50, NOON + 99)
    assert [decided] == list(await books.cases.unapplied(10))
    assert NOON + 100 == (await books.cases.note_applied(opened.id, NOON + 100)).applied_at
    assert NOON + 100 == (await books.cases.note_applied(opened.id, NOON + 200)).applied_at
    assert [] == list(await books.cases.unapplied(10))


async def test_no_other_case_is_opened_while_one_waits_to_be_applied(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    await books.cases.decide_case(opened, CaseState.APPROVED, "ann", "right", 50, NOON + 99)
    later = case(snapshot_at=NOON + 300)
    assert await books.cases.open_case(later) is None
    await books.cases.note_applied(opened.id, NOON + 100)
    assert later == await books.cases.open_case(later)


async def test_a_difference_that_was_rejected_is_not_asked_about_again_for_a_time(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    await books.cases.decide_case(opened, CaseState.REJECTED, "ann", "wrong", None, NOON + 100)
    assert await books.cases.open_case(case(opened_at=NOON + 400)) is None
    assert await books.cases.open_case(case(opened_at=NOON + 400, key=OTHER)) is not None
    long_after = case(opened_at=NOON + 101 + REJECTED_STANDS_S)
    assert long_after == await books.cases.open_case(long_after)


async def test_another_difference_than_the_rejected_one_is_asked_about(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    await books.cases.decide_case(opened, CaseState.REJECTED, "ann", "wrong", None, NOON + 100)
    assert await books.cases.open_case(case(opened_at=NOON + 400, difference=51)) is not None


async def test_superseding_ends_the_open_case(books: Books) -> None:
    opened = case()
    await books.cases.open_case(opened)
    assert await books.cases.supersede(QUOTA, opened.epoch, NOON + 300, NOON + 360)
    expected = replace(opened, state=CaseState.SUPERSEDED, decided_at=NOON + 360)
    assert expected == await books.cases.case(opened.id)
    assert 0 == await books.cases.open_count()


async def test_superseding_nothing_leaves_nothing_in_the_way(books: Books) -> None:
    assert await books.cases.supersede(QUOTA, 0, NOON, NOON)


async def test_a_newer_case_and_one_that_is_to_be_applied_stand(books: Books) -> None:
    newer, approved = case(snapshot_at=NOON + 300), case(key=OTHER)
    await books.cases.open_case(newer)
    assert not await books.cases.supersede(QUOTA, 0, NOON, NOON)
    await books.cases.open_case(approved)
    await books.cases.decide_case(approved, CaseState.APPROVED, "ann", "right", 50, NOON + 99)
    assert not await books.cases.supersede(OTHER, 0, NOON + 300, NOON + 360)


async def test_cases_are_listed_newest_first_and_by_state(books: Books) -> None:
    old, new = case(), case(key=OTHER, opened_at=NOON + 100)
    await books.cases.open_case(old)
    await books.cases.open_case(new)
    rejected = await books.cases.decide_case(new, CaseState.REJECTED, "ann", "wrong", None, NOON + 200)
    assert [rejected, old] == list(await books.cases.cases(None, 10))
    assert [rejected] == list(await books.cases.cases(None, 1))
    assert [old] == list(await books.cases.cases(CaseState.OPEN, 10))


async def test_postgres_refuses_a_second_undecided_case(database: str, postgres_books: Books) -> None:
    await postgres_books.cases.open_case(case())
    copy = (
        "INSERT INTO reconciliation_cases (id, tenant_id, resource, scope, epoch, source, snapshot_at, truth, counted, "
        "difference, why, opened_at) SELECT gen_random_uuid(), tenant_id, resource, scope, epoch, source, snapshot_at, "
        "truth, counted, difference, why, opened_at FROM reconciliation_cases"
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await fixtures.query(database, copy)
