"""Schema migrations: numbered files, applied once each, in order, under one lock.

`NNNN_name.before.sql` is applied before the code that needs it is deployed, `NNNN_name.after.sql` once no older
code runs any more. Each file is one transaction.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Final

import asyncpg

from regionquota.adapters.postgres.transaction import UNAVAILABLE
from regionquota.errors import ConfigError, StoreUnavailable

_FILE: Final = re.compile(r"^(\d{4})_(\w+)\.(before|after)\.sql$")
_LOCK: Final = 0x7265_6771  # "regq": any number that nobody else uses as an advisory lock in this database
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    integer     NOT NULL,
    phase      text        NOT NULL CHECK (phase IN ('before', 'after')),
    name       text        NOT NULL,
    digest     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (version, phase)
)
"""


class Phase(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, order=True)
class Migration:
    version: int
    phase: Phase
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations() -> Sequence[Migration]:
    """All that this version of the code knows, in order."""
    folder = files(__package__) / "migrations"
    found = [
        Migration(int(match[1]), Phase(match[3]), match[2], file.read_text())
        for file in folder.iterdir()
        if (match := _FILE.match(file.name))
    ]
    return sorted(found, key=lambda one: (one.version, one.phase is Phase.AFTER))


async def migrate(
    dsn: str, *, password: str | None = None, phases: Sequence[Phase] = tuple(Phase)
) -> Sequence[Migration]:
    """Apply what is missing; returns what was applied. Safe to run twice, and by several at once.

    Raises `ConfigError` if an applied migration is not the one this code knows, `StoreUnavailable`.
    """
    try:
        conn = await asyncpg.connect(dsn, password=password, timeout=10)
        try:
            await conn.execute("SELECT pg_advisory_lock($1)", _LOCK)
            await conn.execute(_TABLE)
            return await _apply_missing(conn, phases)
        finally:
            await conn.close()
    except UNAVAILABLE as error:
        raise StoreUnavailable(f"Postgres does not answer: {error or type(error).__name__}") from error


async def _apply_missing(conn: "asyncpg.Connection[asyncpg.Record]", phases: Sequence[Phase]) -> Sequence[Migration]:
    known = {
        (row["version"], row["phase"]): row["digest"]
        for row in await conn.fetch("SELECT version, phase, digest FROM schema_migrations")
    }
    applied = []
    for migration in migrations():
        digest = known.get((migration.version, migration.phase.value))
        if digest is None and migration.phase in phases:
            async with conn.transaction():
                await conn.execute(migration.sql)
                await conn.execute(
                    "INSERT INTO schema_migrations (version, phase, name, digest) VALUES ($1, $2, $3, $4)",
                    migration.version, migration.phase.value, migration.name, migration.digest,
                )  # fmt: skip
            applied.append(migration)
        elif digest is not None and digest != migration.digest:
            raise ConfigError(
                f"migration {migration.version:04d}_{migration.name} was applied with other content: "
                "this database belongs to another build of regionquota"
            )
    return applied
