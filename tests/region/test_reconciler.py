"""The reconciler, in memory and on a real Postgres."""

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, differences, reservation_name, reserve
from tests.region import reconciling
from tests.region.reconciling import PROJECT, RIPE, SETTLE, Region, verdicts

from regionquota.core.commands import Commit
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reconciling import Verdict
from regionquota.errors import InvalidRequest, SourceUnavailable
from regionquota.region.counts import MAX_RESOURCES, Done, State
from regionquota.region.reconciler import MAX_AGE_S

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store
memory_region, postgres_region, region = reconciling.memory_region, reconciling.postgres_region, reconciling.region


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
