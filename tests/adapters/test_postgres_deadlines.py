"""A process or a server that stalls must not hold a region: every wait has an end."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.clocks import Clock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.core.commands import Granted
from regionquota.embedded import TcpProxy
from regionquota.errors import StoreUnavailable
from regionquota.region.group_commit import GroupCommit

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

SOON = Deadlines(acquire=0.5, connect=1.0, statement=0.6, lock=0.25, idle_in_transaction=0.5)
SLACK = 3.0
"""What a noisy machine may add to any deadline here."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert seconds + SLACK > time.monotonic() - begun


@asynccontextmanager
async def stalled(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A process of ours that locked the quota's counter and then was paused."""
    pool = await open_pool(database, password=None, size=1, deadlines=SOON)
    conn = await pool.acquire()
    await conn.execute("BEGIN")
    await conn.execute("SELECT FROM quota_counters FOR UPDATE")
    yield conn
    pool.terminate()


async def give(open_store: fixtures.OpenStore, slice_: int = 100) -> None:
    await (await open_store()).apply(QUOTA, allocation(1000, eu=slice_), 10, NOON)


async def test_who_waits_for_a_stalled_process_is_answered_in_time(
    database: str, open_store: fixtures.OpenStore
) -> None:
    await give(open_store)
    store = await open_store(deadlines=SOON)
    async with stalled(database):
        with within(SOON.lock), pytest.raises(StoreUnavailable):
            await store.transact([reserve(1, name=reservation_name(1))], NOON)


async def test_a_stalled_process_loses_its_transaction_and_the_others_go_on(
    database: str, open_store: fixtures.OpenStore
) -> None:
    await give(open_store)
    lane = GroupCommit(await open_store(deadlines=SOON), Clock(NOON), lanes=1, max_batch=10, max_queue=10)
    lane.start()
    async with stalled(database) as conn:
        with within(SOON.idle_in_transaction):
            granted = await lane.submit(reserve(1, name=reservation_name(1)), 0)
        assert isinstance(granted, Granted)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await conn.execute("COMMIT")
    await lane.stop()


async def test_a_statement_that_does_not_end_is_ended(database: str) -> None:
    pool = await open_pool(database, password=None, size=1, deadlines=SOON)
    with within(SOON.statement), pytest.raises(asyncpg.QueryCanceledError):
        await pool.execute("SELECT pg_sleep(60)")
    pool.terminate()


async def test_a_pool_that_is_used_up_is_unavailable_and_not_a_queue_without_end(
    database: str, open_store: fixtures.OpenStore
) -> None:
    store = await open_store(size=1, deadlines=SOON)
    async with store._pool.acquire():
        with within(SOON.acquire), pytest.raises(StoreUnavailable):
            await store.holdings()
    assert [] == list(await store.holdings())


async def test_a_storm_of_cancelled_requests_leaves_a_pool_of_one_usable(
    database: str, open_store: fixtures.OpenStore
) -> None:
    await give(open_store)
    store = await open_store(size=1)
    for n in range(40):
        request = asyncio.create_task(store.transact([reserve(1, name=reservation_name(n))], NOON))
        await asyncio.sleep(0.0005 * (n % 7))
        request.cancel()
    with within(5):
        (granted,) = await store.transact([reserve(1, name=reservation_name(99))], NOON)
    assert isinstance(granted, Granted)
    assert [] == differences(await store.check_balances())


async def test_a_database_that_falls_silent_is_noticed_and_found_again(
    database: str, open_store: fixtures.OpenStore
) -> None:
    await give(open_store)
    address = urlsplit(database)
    assert address.port is not None
    proxy = TcpProxy("127.0.0.1", address.port)
    await proxy.start()
    through = database.replace(f":{address.port}/", f":{proxy.listen_port}/")
    async with fixtures.store_on(through, size=2, deadlines=SOON) as store:
        assert await store.holding(QUOTA) is not None
        proxy.cut()
        with within(2 * SOON.statement + SOON.acquire + SOON.connect), pytest.raises(StoreUnavailable):
            await store.transact([reserve(1, name=reservation_name(1))], NOON)
        proxy.heal()
        with within(5):
            while True:
                try:
                    (granted,) = await store.transact([reserve(1, name=reservation_name(2))], NOON)
                except StoreUnavailable:
                    continue
                break
        assert isinstance(granted, Granted)
    await proxy.stop()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with within(SOON.connect), pytest.raises(StoreUnavailable, match="Postgres does not answer"):
        await open_pool("postgresql://postgres@127.0.0.1:1/postgres", password=None, size=1, deadlines=SOON)
