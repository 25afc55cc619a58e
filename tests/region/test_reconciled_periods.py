"""Consumables are compared once their period is over, and never adjusted."""

from typing import Any

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import at
from tests.region import reconciling
from tests.region.reconciling import AFTER_CLOSE, CALLS, JULY, JUNE, MAY, Region, verdicts

from regionquota.core.quota import Kind
from regionquota.core.reconciling import Verdict
from regionquota.region.case_work import CaseRefused
from regionquota.region.counts import Done, Report

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store
memory_region, postgres_region, region = reconciling.memory_region, reconciling.postgres_region, reconciling.region


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
