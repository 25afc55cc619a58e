"""Differences that are left to a person."""

import asyncio
import uuid
from typing import Any

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, differences
from tests.region import reconciling
from tests.region.reconciling import (
    SETTLE,
    Region,
    verdicts,
)

from regionquota.core.reconciling import Case, CaseState, Verdict
from regionquota.region.case_work import MAX_CASE_AGE_S, CaseRefused
from regionquota.region.counts import Done

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store
memory_region, postgres_region, region = reconciling.memory_region, reconciling.postgres_region, reconciling.region


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
