"""Streaming replicas of an embedded Postgres: made, waited for, promoted."""

import asyncio
from pathlib import Path
from typing import Final

import asyncpg

from regionquota.embedded.cluster import make_empty
from regionquota.embedded.install import install, postgres_programs
from regionquota.embedded.ports import LOOPBACK
from regionquota.embedded.postgres import EmbeddedPostgres
from regionquota.embedded.process import run
from regionquota.errors import StoreUnavailable

PROMOTION_SECONDS: Final = 30
_BETWEEN_LOOKS_SECONDS: Final = 0.05
_SETTINGS: Final = {"wal_retrieve_retry_interval": "500ms"}


async def copy_of(data_dir: Path, upstream_port: int, *, port: int, log_path: Path | None = None) -> EmbeddedPostgres:
    """A standby, not started yet, that streams from `upstream_port`: the primary's own, or a proxy's before it.

    Raises `StoreUnavailable` if the primary cannot be copied.
    """
    installation = await asyncio.to_thread(install, postgres_programs())
    make_empty(data_dir, installation)
    command = [str(installation.programs / "pg_basebackup"), "-D", str(data_dir), "-h", LOOPBACK]
    command += ["-p", str(upstream_port), "-U", "postgres", "-X", "stream", "-c", "fast", "-R", "--no-sync"]
    code, said = await run(command[0], command, user=installation.user)
    if code != 0:
        raise StoreUnavailable(f"{' '.join(command)} failed with {code}:\n{said}")
    return EmbeddedPostgres(data_dir, port=port, settings=_SETTINGS, log_path=log_path)


async def reach(primary: EmbeddedPostgres, *, synchronous: bool, within_s: float = 20.0) -> None:
    """Wait until a standby streams; with `synchronous`, from then on every commit waits for it.

    Raises `StoreUnavailable` after `within_s`.
    """
    conn = await asyncpg.connect(primary.dsn, ssl=False)
    try:
        if synchronous:
            await conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await conn.execute("SELECT pg_reload_conf()")
        wanted = ("sync",) if synchronous else ("async", "sync")
        for _ in range(round(within_s / _BETWEEN_LOOKS_SECONDS)):
            if await conn.fetchval("SELECT sync_state FROM pg_stat_replication") in wanted:
                return
            await asyncio.sleep(_BETWEEN_LOOKS_SECONDS)
        raise StoreUnavailable(f"no standby streams from {primary.dsn} after {within_s:g} s")
    finally:
        await conn.close()


async def promote(standby: EmbeddedPostgres) -> None:
    """Returns when it is a primary. Raises `StoreUnavailable` if it does not become one."""
    conn = await asyncpg.connect(standby.dsn, ssl=False)
    try:
        if not await conn.fetchval("SELECT pg_promote(true, $1)", PROMOTION_SECONDS):
            raise StoreUnavailable(f"{standby.dsn} was not promoted within {PROMOTION_SECONDS} s")
    finally:
        await conn.close()
