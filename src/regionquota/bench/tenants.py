"""Counters to measure with: as a region has them after it heard of each quota, made in one statement."""

from typing import Final

import asyncpg

from regionquota.core.quota import Region

HOT: Final = "hot"
SLICE: Final = 10**12
WAL_SEGMENTS: Final = 96
"""Of 16 MB each: more than a run of the default length writes between two checkpoints."""
_CREATE: Final = """
WITH names AS (
    SELECT prefix || n AS tenant_id
      FROM generate_series(1, $1::integer) AS n CROSS JOIN (VALUES ('tenant-'), ('pgbench-')) AS p (prefix)
     UNION ALL
    SELECT $2
), opened AS (
    INSERT INTO quota_counters
           (tenant_id, resource, scope, kind, limit_total, revision, epoch, slice, available, reserved, used, retired,
            overdraft_issued, overdraft_repaid)
    SELECT tenant_id, 'unit', 'global', 'allocated', $3, 1, 0, $3, $3, 0, 0, 0, 0, 0
      FROM names
)
INSERT INTO slice_ledger (at, tenant_id, resource, scope, revision, epoch, before, after)
SELECT now(), tenant_id, 'unit', 'global', 1, 0, 0, $3
  FROM names
"""


async def create_counters(dsn: str, region: Region | None, tenants: int) -> None:
    """`tenants` each for the product (tenant-N) and for pgbench (pgbench-N), and one that is hot.

    `region` is whose database it must be; None: nobody's yet.
    """
    connection = await asyncpg.connect(dsn)
    try:
        owner = await connection.fetchval("SELECT region FROM region_identity")
        assert owner == region, f"this database belongs to {owner}"
        await connection.execute(_CREATE, tenants, HOT, SLICE)
        await connection.execute("VACUUM ANALYZE quota_counters")
    finally:
        await connection.close()


async def prepare_wal(dsn: str) -> None:
    """Fill and recycle log segments as a server has them that runs for a while: to make a new one in mid-run stops
    everybody, pgbench and us, for tens of milliseconds.
    """
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("ALTER SYSTEM SET min_wal_size = '2GB'")
        await connection.execute("SELECT pg_reload_conf()")
        for _ in range(WAL_SEGMENTS):
            await connection.execute("SELECT pg_logical_emit_message(false, 'regionquota', 'bench')")
            await connection.execute("SELECT pg_switch_wal()")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
