"""What every `DemandHistory` promises."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.contract import region_store_fixtures as fixtures

from regionquota.adapters.memory.demand_history import MemoryDemandHistory
from regionquota.adapters.postgres.demand_history import PostgresDemandHistory
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.core.forecast import Counted, Past
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.learning_ports import DemandHistory

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database

CPU = QuotaKey("acme", "vcpu")
DISK = QuotaKey("a/b 東京", "disk", "zone-1")
HOUR = 1_800_000_000.0
NEXT = HOUR + 3600


@pytest.fixture
def memory_history() -> MemoryDemandHistory:
    return MemoryDemandHistory()


@pytest.fixture
async def postgres_history(database: str) -> AsyncIterator[PostgresDemandHistory]:
    pool = await open_pool(database, password=None, size=4, deadlines=fixtures.PATIENT)
    yield PostgresDemandHistory(pool, fixtures.PATIENT)
    pool.terminate()


@pytest.fixture(params=["memory", "postgres"])
def history(request: pytest.FixtureRequest) -> DemandHistory:
    chosen: DemandHistory = request.getfixturevalue(f"{request.param}_history")
    return chosen


async def test_of_what_was_never_asked_for_nothing_is_recalled(history: DemandHistory) -> None:
    await history.add(HOUR, {})
    assert [] == await history.recall([CPU], [HOUR])


async def test_what_is_added_to_an_hour_adds_up(history: DemandHistory) -> None:
    await history.add(HOUR, {CPU: Counted(10, 4, 2, 7)})
    await history.add(HOUR, {CPU: Counted(1, 1, 1, 1), DISK: Counted(5)})
    found = {past.key: past for past in await history.recall([CPU, DISK], [HOUR])}
    assert {CPU: Past(CPU, HOUR, {HOUR: Counted(11, 5, 3, 8)}), DISK: Past(DISK, HOUR, {HOUR: Counted(5)})} == found


async def test_only_the_hours_that_are_asked_for_are_recalled_and_when_the_first_was(history: DemandHistory) -> None:
    await history.add(NEXT, {CPU: Counted(2)})
    await history.add(HOUR, {CPU: Counted(1)})
    assert [Past(CPU, HOUR, {NEXT: Counted(2)})] == await history.recall([CPU], [NEXT, NEXT + 3600])
    assert [Past(CPU, HOUR, {})] == await history.recall([CPU], [NEXT + 3600])


async def test_more_than_any_amount_adds_up(history: DemandHistory) -> None:
    for _ in range(3):
        await history.add(HOUR, {CPU: Counted(MAX_AMOUNT, 0, MAX_AMOUNT, MAX_AMOUNT)})
    (found,) = await history.recall([CPU], [HOUR])
    assert Counted(3 * MAX_AMOUNT, 0, 3 * MAX_AMOUNT, 3 * MAX_AMOUNT) == found.hours[HOUR]


async def test_old_hours_are_forgotten_so_many_at_once(history: DemandHistory) -> None:
    for hour in (HOUR, NEXT, NEXT + 3600):
        await history.add(hour, {CPU: Counted(1), DISK: Counted(1)})
    assert [3, 1, 0] == [await history.forget(NEXT + 3600, 3) for _ in range(3)]
    found = await history.recall([CPU, DISK], [HOUR, NEXT, NEXT + 3600])
    assert [NEXT + 3600] * 2 == [past.since for past in found]


async def test_of_what_was_forgotten_altogether_nothing_is_recalled(history: DemandHistory) -> None:
    await history.add(HOUR, {CPU: Counted(1)})
    await history.forget(NEXT, 10)
    assert [] == await history.recall([CPU], [HOUR])


async def test_servers_that_add_the_same_in_different_order_do_not_block_each_other(
    postgres_history: PostgresDemandHistory,
) -> None:
    keys = [QuotaKey(f"t{number}", "vcpu") for number in range(50)]
    counted = dict.fromkeys(keys, Counted(1))
    backwards = dict(reversed(counted.items()))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(postgres_history.add(HOUR, counted))
            tasks.create_task(postgres_history.add(HOUR, backwards))
    assert [20] * 50 == [past.hours[HOUR].granted for past in await postgres_history.recall(keys, [HOUR])]
