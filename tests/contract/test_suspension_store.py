"""What every `SuspensionStore` promises."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures

from regionquota.adapters.memory.suspensions import MemorySuspensionStore
from regionquota.adapters.postgres.suspensions import PostgresSuspensionStore
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.ports import Suspension, SuspensionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database

ACME = Suspension("acme", 1_800_000_000.5, "unpaid")
OTHER = Suspension("a/b 東京", 1.0, "fraud")


@pytest.fixture
def memory_suspensions() -> MemorySuspensionStore:
    return MemorySuspensionStore()


@pytest.fixture
async def postgres_suspensions(database: str) -> AsyncIterator[PostgresSuspensionStore]:
    pool = await open_pool(database, password=None, size=4, deadlines=fixtures.PATIENT)
    yield PostgresSuspensionStore(pool, fixtures.PATIENT)
    pool.terminate()


@pytest.fixture(params=["memory", "postgres"])
def suspensions(request: pytest.FixtureRequest) -> SuspensionStore:
    chosen: SuspensionStore = request.getfixturevalue(f"{request.param}_suspensions")
    return chosen


async def test_nothing_is_remembered_at_first(suspensions: SuspensionStore) -> None:
    assert {} == await suspensions.recall()


async def test_what_was_said_is_recalled_as_it_was(suspensions: SuspensionStore) -> None:
    said = {"acme": ACME, OTHER.tenant: OTHER}
    await suspensions.remember(said)
    assert said == await suspensions.recall()


async def test_these_and_no_others_are_remembered(suspensions: SuspensionStore) -> None:
    await suspensions.remember({"acme": ACME})
    await suspensions.remember({OTHER.tenant: OTHER})
    assert {OTHER.tenant: OTHER} == await suspensions.recall()


async def test_nobody_suspended_is_remembered_too(suspensions: SuspensionStore) -> None:
    await suspensions.remember({"acme": ACME})
    await suspensions.remember({})
    assert {} == await suspensions.recall()


async def test_another_reason_replaces_the_first(suspensions: SuspensionStore) -> None:
    later = Suspension("acme", 1_800_000_001.0, "fraud")
    await suspensions.remember({"acme": ACME})
    await suspensions.remember({"acme": later})
    assert {"acme": later} == await suspensions.recall()


async def test_servers_that_heard_the_same_in_different_order_do_not_block_each_other(
    database: str, postgres_suspensions: PostgresSuspensionStore
) -> None:
    said = {f"t{number}": Suspension(f"t{number}", 1.0, "unpaid") for number in range(3)}
    await postgres_suspensions.remember(said)
    backwards = dict(reversed(said.items()))
    other = await asyncpg.connect(database)
    try:
        async with asyncio.TaskGroup() as tasks, other.transaction():
            await other.execute("SELECT FROM suspended_tenants WHERE tenant_id = 't1' FOR UPDATE")
            for heard in (said, backwards):
                tasks.create_task(postgres_suspensions.remember(heard))
            await asyncio.sleep(0.3)  # both have begun, and wait
    finally:
        await other.close()
    assert said == await postgres_suspensions.recall()


async def test_what_is_remembered_already_is_not_written_again(database: str) -> None:
    pool = await open_pool(database, password=None, size=1, deadlines=fixtures.PATIENT)
    try:
        suspensions = PostgresSuspensionStore(pool, fixtures.PATIENT)
        versions = []
        for _ in range(2):
            await suspensions.remember({"acme": ACME})
            versions.append(await pool.fetchval("SELECT xmin::text FROM suspended_tenants"))
    finally:
        pool.terminate()
    assert versions[0] == versions[1]
