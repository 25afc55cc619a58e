"""Holds by the hundred thousand: how fast one sweeper ends them, and whether open ones slow anybody."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import asyncpg

from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.bench.tenants import create_counters
from regionquota.bootstrap.clock import SystemClock
from regionquota.region.sweeper import sweep_all

SWEPT: Final = 200_000
_AT_ONCE: Final = 100_000
_HOLD: Final = """
WITH held AS (
    INSERT INTO reservations
           (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at)
    SELECT uuidv7(), 'tenant-' || (n % $2::integer + 1), 'unit', 'global', 0, gen_random_uuid()::text,
           decode(repeat('7b', 16), 'hex'), 1, 'PENDING', now(), now() + $3::interval
      FROM generate_series(1, $1::integer) AS n
 RETURNING tenant_id, amount
), sums AS (
    SELECT tenant_id, sum(amount)::bigint AS amount
      FROM held
     GROUP BY tenant_id
)
UPDATE quota_counters AS q
   SET available = available - s.amount, reserved = reserved + s.amount, version = version + 1
  FROM sums AS s
 WHERE q.tenant_id = s.tenant_id AND q.resource = 'unit' AND q.scope = 'global'
"""


async def hold(dsn: str, holds: int, tenants: int, ends_in: timedelta) -> None:
    """Make `holds` open holds of one unit, spread over `tenants`."""
    connection = await asyncpg.connect(dsn)
    try:
        for _ in range(0, holds, _AT_ONCE):
            await connection.execute(_HOLD, min(holds, _AT_ONCE), tenants, ends_in)
        await connection.execute("VACUUM ANALYZE reservations")
    finally:
        await connection.close()


async def sweep_rate(dsn: str, tenants: int, batch: int) -> float:
    """Holds that one sweeper ends in a second, each of 200,000 in one of `tenants`, in a database of its own."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE DATABASE swept")
    finally:
        await connection.close()
    swept = dsn.rpartition("/")[0] + "/swept"
    await migrate(swept)
    await create_counters(swept, None, tenants)
    await hold(swept, SWEPT, tenants, -timedelta(minutes=1))
    async with _store(swept) as store:
        began = time.perf_counter()
        ended, _ = await sweep_all(store, SystemClock(), batch, lambda _key, _units: None)
        seconds = time.perf_counter() - began
    assert ended == SWEPT, f"{ended} ended"
    return ended / seconds


@asynccontextmanager
async def _store(dsn: str) -> AsyncIterator[PostgresRegionStore]:
    deadlines = Deadlines()
    pool = await open_pool(dsn, password=None, size=1, deadlines=deadlines)
    try:
        yield PostgresRegionStore(pool, "here", deadlines)
    finally:
        await pool.close()
