"""A region's database as a server finds it: is it migrated, is it ours, does it keep its promises?"""

from typing import Final

from regionquota.adapters.postgres.migrate import Phase, migrations
from regionquota.adapters.postgres.transaction import LOOKUPS, POOLER, Connection, Deadlines, Pool, connection
from regionquota.core.quota import Region
from regionquota.errors import ConfigError

# Without these a crash may lose a committed decrease, and with it the promise that slices sum to the limit.
REQUIRED_SETTINGS: Final = {"fsync": "on", "full_page_writes": "on"}


async def claim(pool: Pool, region: Region, deadlines: Deadlines) -> None:
    """Bind this database to `region`, for ever. Raises `ConfigError` naming what is wrong and the remedy."""
    async with connection(pool, deadlines) as conn:
        await _check_schema(conn)
        await _check_settings(conn)
        await _check_session(conn)
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


async def _check_session(conn: Connection) -> None:
    """A pooler that passes our settings over would hand us other people's sessions, without our deadlines."""
    for name, wanted in LOOKUPS.items():
        value = await conn.fetchval("SELECT current_setting($1)", name)
        if value != wanted:
            raise ConfigError(f"the session has {name} = {value}, not {wanted} as was asked for: {POOLER}")
