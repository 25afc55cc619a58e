"""A region's database as a server finds it: is it migrated, is it ours, does it keep its promises?"""

from typing import Final

import structlog

from regionquota.adapters.postgres.migrate import Phase, migrations
from regionquota.adapters.postgres.transaction import LOOKUPS, POOLER, Connection, Deadlines, Pool, connection
from regionquota.core.quota import Region
from regionquota.errors import ConfigError

_log = structlog.get_logger(__name__)

# Without these a crash may lose a committed decrease, and with it the promise that slices sum to the limit.
REQUIRED_SETTINGS: Final = {"fsync": "on", "full_page_writes": "on"}
SYNCHRONOUS: Final = {"sync", "quorum", None}
"""None: the role may not see it (pg_monitor may)."""


async def claim(pool: Pool, region: Region, deadlines: Deadlines) -> None:
    """Bind this database to `region`, for ever. Raises `ConfigError` naming what is wrong and the remedy."""
    async with connection(pool, deadlines) as conn:
        await _check_schema(conn)
        await _check_settings(conn)
        await _check_session(conn)
        await _warn_of_standbys(conn)
        owner = await conn.fetchval("SELECT region FROM region_identity")
        if owner is None:
            await conn.execute("INSERT INTO region_identity (region) VALUES ($1) ON CONFLICT DO NOTHING", region)
            owner = await conn.fetchval("SELECT region FROM region_identity")
    if owner != region:
        raise ConfigError(
            f'this database holds the slices of region "{owner}", not of "{region}": '
            "give each region a database of its own (postgres.dsn), or correct region.name"
        )


async def _check_schema(conn: Connection) -> None:
    newest = max(one.version for one in migrations() if one.phase is Phase.BEFORE)
    present = await conn.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
    version = await conn.fetchval("SELECT max(version) FROM schema_migrations") if present else None
    if version is None or version < newest:
        raise ConfigError(
            f"the database's schema is at version {version or 0}, this program needs {newest}: "
            "run regionquota migrate --config FILE"
        )


async def _check_settings(conn: Connection) -> None:
    for name, wanted in REQUIRED_SETTINGS.items():
        value = await conn.fetchval("SELECT current_setting($1)", name)
        if value != wanted:
            raise ConfigError(
                f"Postgres runs with {name} = {value}: a crash could lose what was committed, "
                f"and slices would no longer sum to the limit; set {name} = {wanted}"
            )


async def _warn_of_standbys(conn: Connection) -> None:
    """A failover to a standby that may be behind loses no limit (see `incarnation`), but what was acknowledged."""
    standbys = await conn.fetch("SELECT application_name, sync_state FROM pg_stat_replication")
    behind = sorted({row["application_name"] for row in standbys if row["sync_state"] not in SYNCHRONOUS})
    if behind and all(row["sync_state"] not in SYNCHRONOUS for row in standbys):
        _log.warning(
            "no standby of this Postgres is synchronous: a failover loses reservations that were acknowledged; "
            "set synchronous_standby_names",
            standbys=behind,
        )


async def _check_session(conn: Connection) -> None:
    """A pooler that passes our settings over would hand us other people's sessions, without our deadlines."""
    for name, wanted in {**LOOKUPS, "synchronous_commit": "on"}.items():
        value = await conn.fetchval("SELECT current_setting($1)", name)
        if value != wanted:
            raise ConfigError(f"the session has {name} = {value}, not {wanted} as was asked for: {POOLER}")
