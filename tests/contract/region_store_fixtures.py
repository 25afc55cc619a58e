"""A real Postgres with a migrated database for each test, and stores on it, each with a pool of its own.

A test module takes what it needs by name: `server = region_store_fixtures.server`, and so on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
import pytest

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.postgres.cases import PostgresCaseStore
from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.slot import Slot
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.embedded import EmbeddedPostgres, scratch_directory
from regionquota.ports import RegionStore

PATIENT: Final = Deadlines(acquire=30, connect=30, statement=30, lock=30, idle_in_transaction=30)
"""For tests of what is right, not of how soon: a noisy machine must not fail them."""

OpenStore: TypeAlias = Callable[..., Awaitable[PostgresRegionStore]]


def dsn_of(server: EmbeddedPostgres, database: str) -> str:
    return server.dsn.rpartition("/")[0] + f"/{database}"


async def query(dsn: str, sql: str, *args: Any) -> Any:
    """The first value of the first row."""
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(sql, *args)
    finally:
        await conn.close()


async def empty(dsn: str) -> None:
    """As the migrations left it. The ledgers are append-only: their triggers are passed over."""
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute("SET session_replication_role = replica")
        tables = await conn.fetch("SELECT relname FROM pg_stat_user_tables WHERE relname <> 'schema_migrations'")
        await conn.execute("".join(f"DELETE FROM {row['relname']};" for row in tables))
    finally:
        await conn.close()


@asynccontextmanager
async def store_on(
    dsn: str, *, size: int = 4, deadlines: Deadlines = PATIENT, region: str = "eu", slot: int = 0
) -> AsyncIterator[PostgresRegionStore]:
    """As a process of its own would have it."""
    pool = await open_pool(dsn, password=None, size=size, deadlines=deadlines)
    try:
        yield PostgresRegionStore(pool, region, deadlines, Slot(slot))
    finally:
        pool.terminate()


@asynccontextmanager
async def cases_on(dsn: str) -> AsyncIterator[PostgresCaseStore]:
    pool = await open_pool(dsn, password=None, size=4, deadlines=PATIENT)
    try:
        yield PostgresCaseStore(pool, PATIENT)
    finally:
        pool.terminate()


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        yield server
        await server.kill()  # nobody will need its data again


@pytest.fixture(scope="module")
async def migrated_database(server: EmbeddedPostgres) -> str:
    """The DSN of one database for all the tests of a module: to make one takes longer than most of them."""
    await query(server.dsn, "CREATE DATABASE migrated")
    await migrate(dsn_of(server, "migrated"))
    return dsn_of(server, "migrated")


@pytest.fixture
async def database(migrated_database: str) -> str:
    """The same, migrated and empty."""
    await empty(migrated_database)
    return migrated_database


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[OpenStore]:
    """Each call is another process on the same database."""
    async with AsyncExitStack() as opened:

        async def open_one(**how: Any) -> PostgresRegionStore:
            return await opened.enter_async_context(store_on(database, **how))

        yield open_one


@pytest.fixture
async def postgres_store(open_store: OpenStore) -> PostgresRegionStore:
    return await open_store()


@pytest.fixture
def memory_store() -> MemoryRegionStore:
    return MemoryRegionStore("eu")


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> RegionStore:
    chosen: RegionStore = request.getfixturevalue(f"{request.param}_store")
    return chosen
