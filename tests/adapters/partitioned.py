"""Databases whose partitions are made and dropped, each of one test."""

from collections.abc import AsyncIterator
from datetime import date
from itertools import count
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation

from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.embedded import EmbeddedPostgres
from regionquota.region.ids import reservation_id

numbers = count(1)
DAY = 86_400.0
TODAY = date(2026, 6, 15)
"""A Monday; NOON is in it."""
AS_SERVED = Deadlines()


@pytest.fixture
async def database(server: EmbeddedPostgres, migrated_database: str) -> str:
    """Migrated, and nobody else's: partitions stay."""
    name = f"partitions_{next(numbers)}"
    await fixtures.query(server.dsn, f"CREATE DATABASE {name} TEMPLATE migrated")
    return fixtures.dsn_of(server, name)


async def upkeep_on(dsn: str, deadlines: Deadlines = fixtures.PATIENT) -> tuple[PostgresLedgerUpkeep, Any]:
    pool = await open_pool(dsn, password=None, size=3, deadlines=deadlines)
    return PostgresLedgerUpkeep(pool, deadlines), pool


@pytest.fixture
async def upkeep(database: str) -> AsyncIterator[PostgresLedgerUpkeep]:
    upkeep, pool = await upkeep_on(database)
    yield upkeep
    pool.terminate()


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresRegionStore]:
    async with fixtures.store_on(database, deadlines=AS_SERVED) as store:
        await store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
        yield store


@pytest.fixture
async def other(database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Somebody else's connection."""
    conn = await asyncpg.connect(database)
    yield conn
    conn.terminate()


def name_at(now: float) -> str:
    return reservation_id("acme", now, next(numbers))


async def tables(dsn: str, pattern: str) -> list[str]:
    found = await fixtures.query(dsn, "SELECT array_agg(relname::text ORDER BY 1) FROM pg_class "
                                 "WHERE relkind = 'r' AND relname ~ $1", pattern)  # fmt: skip
    return list(found or [])


async def rows(dsn: str, table: str) -> int:
    return int(await fixtures.query(dsn, f"SELECT count(*) FROM {table}"))
