"""What the driver, a pooler and a migration do to those who are being served."""

import asyncio
import struct
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, reservation_name, reserve

from regionquota.adapters.postgres.database import claim
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.core.commands import Adjusted, Commit, Granted, Settled
from regionquota.errors import ConfigError

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store


@pytest.fixture
async def strict_pooler() -> AsyncIterator[str]:
    """Answers a session with settings as pgbouncer does that knows no such parameter."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            message = await reader.readexactly(length - 4)
            if message.startswith(struct.pack("!I", 80877103)):  # asks for TLS
                writer.write(b"N")
                continue
            fields = b"SFATAL\0C08P01\0Munsupported startup parameter: statement_timeout\0\0"
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            writer.close()
            return

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


async def test_a_pooler_that_takes_no_settings_is_refused_with_the_reason(strict_pooler: str) -> None:
    with pytest.raises(ConfigError, match=r"pgbouncer in transaction mode.*session mode"):
        await open_pool(strict_pooler, password=None, size=1, deadlines=fixtures.PATIENT)


async def test_a_pooler_that_passes_settings_over_is_refused_with_the_reason(database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=1) as unsettled:
        with pytest.raises(ConfigError, match=r"not force_generic_plan.*pgbouncer"):
            await claim(unsettled, "eu", fixtures.PATIENT)


async def test_no_request_fails_on_a_plan_that_a_migration_made_stale(
    database: str, open_store: fixtures.OpenStore
) -> None:
    store = await open_store(size=4)
    await store.apply(QUOTA, allocation(10**6, eu=10**5), 10, NOON)
    served, migrated = 0, asyncio.Event()

    async def serve(worker: int) -> None:
        nonlocal served
        for number in range(60):
            name = reservation_name(worker * 1000 + number)
            (granted,) = await store.transact([reserve(1, name=name)], NOON)
            (settled,) = await store.transact([Commit(name)], NOON)
            (adjusted,) = await store.transact([adjust(1, request=name)], NOON)
            assert isinstance(granted, Granted)
            assert isinstance(settled, Settled)
            assert isinstance(adjusted, Adjusted)
            assert await store.holding(QUOTA) is not None
            served += 1
            if served == 20:
                migrated.set()

    async def migrate() -> None:
        """Changes what loads under a lock return, so that every plan of theirs is stale."""
        await migrated.wait()
        for kind in ("bigint", "integer", "bigint"):
            await fixtures.query(database, f"ALTER TABLE quota_counters ALTER COLUMN epoch TYPE {kind}")

    try:
        await asyncio.gather(migrate(), *(serve(worker) for worker in range(1, 5)))
    finally:
        await fixtures.query(database, "ALTER TABLE quota_counters ALTER COLUMN epoch TYPE integer")
    assert 240 == served
    assert 480 == (await store.holdings_of([QUOTA]))[0].counter.used


async def test_concurrent_reads_have_a_connection_each_and_the_pool_recovers(open_store: fixtures.OpenStore) -> None:
    store = await open_store(size=2)
    await store.apply(QUOTA, allocation(1000, eu=1000), 10, NOON)
    for _ in range(3):
        found = await asyncio.gather(*(store.holding(QUOTA) for _ in range(50)))
        assert [1000] * 50 == [held.slice for held in found if held is not None]
