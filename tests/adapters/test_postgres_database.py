"""A server finds its database: is it migrated, is it ours, does it keep its promises? And how it gets migrated."""

import asyncio
import dataclasses
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from itertools import count
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs
from tests.contract import region_store_fixtures as fixtures

from regionquota.adapters.postgres import database as database_module
from regionquota.adapters.postgres import migrate as migrate_module
from regionquota.adapters.postgres.database import claim
from regionquota.adapters.postgres.migrate import Migration, Phase, migrate, migrations
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.embedded import EmbeddedPostgres, scratch_directory
from regionquota.embedded.install import postgres_programs
from regionquota.errors import ConfigError, StoreUnavailable

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database

REWRITE = "REWRITE_SCHEMA=1 .venv/bin/pytest tests/adapters/test_postgres_database.py -k schema"
SCHEMA = Path(str(files("regionquota.adapters.postgres"))) / "schema.sql"

_numbers = count(1)


@pytest.fixture
async def blank(server: EmbeddedPostgres) -> str:
    """The DSN of a new database with nothing in it."""
    name = f"blank{next(_numbers)}"
    await fixtures.query(server.dsn, f"CREATE DATABASE {name}")
    return fixtures.dsn_of(server, name)


async def claim_for(region: str, dsn: str) -> None:
    pool = await open_pool(dsn, password=None, size=1, deadlines=fixtures.PATIENT)
    try:
        await claim(pool, region, fixtures.PATIENT)
    finally:
        await pool.close()


async def applied(dsn: str) -> list[tuple[int, str]]:
    conn = await asyncpg.connect(dsn)
    try:
        found = await conn.fetch("SELECT version, phase FROM schema_migrations ORDER BY version, phase DESC")
    finally:
        await conn.close()
    return [tuple(row) for row in found]


def known(*phases: Phase) -> list[tuple[int, str]]:
    return [(one.version, one.phase.value) for one in migrations() if one.phase in phases]


async def test_a_region_claims_a_database_and_finds_it_again(database: str) -> None:
    await claim_for("eu", database)
    await claim_for("eu", database)
    assert "eu" == await fixtures.query(database, "SELECT region FROM region_identity")


async def test_a_server_of_another_region_is_refused(database: str) -> None:
    await claim_for("eu", database)
    with pytest.raises(ConfigError, match=r'holds the slices of region "eu", not of "us".*postgres\.dsn.*region\.name'):
        await claim_for("us", database)


async def test_of_two_regions_that_claim_at_once_one_is_refused(database: str) -> None:
    claims = await asyncio.gather(*(claim_for(f"r{n % 2}", database) for n in range(8)), return_exceptions=True)
    assert 4 == sum(isinstance(one, ConfigError) for one in claims)
    assert 4 == claims.count(None)


async def test_a_database_that_was_never_migrated_is_refused(blank: str) -> None:
    with pytest.raises(ConfigError, match=r"schema is at version 0, this program needs \d+: run regionquota migrate"):
        await claim_for("eu", blank)


async def test_a_database_of_an_older_version_is_refused(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_another_migration(monkeypatch, "SELECT 1")
    with pytest.raises(ConfigError, match="this program needs 9999"):
        await claim_for("eu", database)


@asynccontextmanager
async def server_with(**settings: str) -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        careless = EmbeddedPostgres(directory / "postgres", settings=settings)
        await careless.start()
        await migrate(careless.dsn)
        yield careless
        await careless.kill()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_may_lose_what_was_committed_is_refused(setting: str) -> None:
    async with server_with(**{setting: "off"}) as careless:
        with pytest.raises(ConfigError, match=f"{setting} = off.*set {setting} = on"):
            await claim_for("eu", careless.dsn)


async def test_our_sessions_commit_synchronously_whatever_the_database_says(database: str) -> None:
    name = database.rpartition("/")[2]
    await fixtures.query(database, f"ALTER DATABASE {name} SET synchronous_commit = off")
    pool = await open_pool(database, password=None, size=1, deadlines=fixtures.PATIENT)
    shown = await pool.fetchval("SHOW synchronous_commit")
    await pool.close()
    await fixtures.query(database, f"ALTER DATABASE {name} RESET synchronous_commit")
    assert "on" == shown


@asynccontextmanager
async def standby_of(server: EmbeddedPostgres, directory: Path) -> AsyncIterator[None]:
    """A receiver of the log, which a server sees as it sees a standby."""
    where = server.dsn.removesuffix("/postgres")
    child = await asyncio.create_subprocess_exec(
        str(postgres_programs() / "pg_receivewal"),
        "--synchronous",
        "-D",
        str(directory),
        "-d",
        f"{where}/?application_name=copy",
    )
    try:
        async with asyncio.timeout(20):
            while not await fixtures.query(server.dsn, "SELECT count(*) FROM pg_stat_replication"):
                await asyncio.sleep(0.05)
        yield
    finally:
        child.terminate()
        await child.wait()


async def test_a_standby_that_may_be_behind_is_warned_of(tmp_path: Path) -> None:
    async with server_with(wal_level="replica", max_wal_senders="4") as primary:
        with capture_logs() as said:
            await claim_for("eu", primary.dsn)
        assert [] == said
        async with standby_of(primary, tmp_path):
            with capture_logs() as said:
                await claim_for("eu", primary.dsn)
            (warning,) = said
            assert ["copy"] == warning["standbys"]
            assert "synchronous_standby_names" in warning["event"]
            await fixtures.query(primary.dsn, "ALTER SYSTEM SET synchronous_standby_names = 'copy'")
            await fixtures.query(primary.dsn, "SELECT pg_reload_conf()")
            async with asyncio.timeout(20):
                while "sync" != await fixtures.query(primary.dsn, "SELECT sync_state FROM pg_stat_replication"):
                    await asyncio.sleep(0.05)
            with capture_logs() as said:
                await claim_for("eu", primary.dsn)
            assert [] == said


def with_another_migration(monkeypatch: pytest.MonkeyPatch, sql: str, phase: Phase = Phase.BEFORE) -> None:
    more = [*migrations(), Migration(9999, phase, "test", sql)]
    for module in (migrate_module, database_module):
        monkeypatch.setattr(module, "migrations", lambda: more)


async def test_migrating_applies_everything_once(blank: str) -> None:
    assert list(migrations()) == list(await migrate(blank))
    assert [] == list(await migrate(blank))


async def test_several_may_migrate_at_once(blank: str) -> None:
    done = await asyncio.gather(*(migrate(blank) for _ in range(5)))
    assert list(migrations()) == [one for some in done for one in some]


async def test_what_an_applied_migration_said_cannot_be_changed_afterwards(database: str, blank: str) -> None:
    await migrate(blank)
    await fixtures.query(blank, "UPDATE schema_migrations SET digest = 'another' WHERE version = 1")
    with pytest.raises(ConfigError, match="migration 0001_ledger was applied with other content"):
        await migrate(blank)


@pytest.mark.parametrize(
    "failure", ["SELECT 1 / 0", "INSERT INTO schema_migrations VALUES (9999, 'before', 'so that ours', 'fails')"]
)
async def test_a_migration_that_fails_leaves_nothing_behind_and_can_be_tried_again(
    blank: str, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    with monkeypatch.context() as broken:
        with_another_migration(broken, f"CREATE TABLE half (x int); {failure}")
        with pytest.raises((asyncpg.DivisionByZeroError, asyncpg.UniqueViolationError)):
            await migrate(blank)
    assert await fixtures.query(blank, "SELECT to_regclass('half') IS NULL")
    assert known(*Phase) == await applied(blank)
    with_another_migration(monkeypatch, "CREATE TABLE half (x int)")
    assert [9999] == [one.version for one in await migrate(blank)]


async def test_what_must_wait_for_the_new_code_waits(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_another_migration(monkeypatch, "CREATE TABLE later (x int)", Phase.AFTER)
    await migrate(blank, phases=(Phase.BEFORE,))
    assert known(Phase.BEFORE) == await applied(blank)
    await migrate(blank)
    assert (9999, "after") in await applied(blank)


async def test_migrations_are_numbered_without_gaps_and_each_phase_once() -> None:
    versions = sorted({one.version for one in migrations()})
    assert list(range(1, len(versions) + 1)) == versions
    assert len(known(*Phase)) == len(set(known(*Phase)))


async def test_a_file_changed_by_one_letter_is_another_migration() -> None:
    one = migrations()[0]
    assert one.digest != dataclasses.replace(one, sql=one.sql + " ").digest


async def test_a_database_that_does_not_answer_cannot_be_migrated() -> None:
    with pytest.raises(StoreUnavailable, match="Postgres does not answer"):
        await migrate("postgresql://postgres@127.0.0.1:1/postgres")


def dumped(dsn: str) -> str:
    """The schema without what depends on the moment or the version of pg_dump."""
    command = [str(postgres_programs() / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", dsn]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [line for line in dump.splitlines() if not re.match(r"--|SET |SELECT pg_catalog|\\", line)]
    return re.sub(r"\n{2,}", "\n\n", "\n".join(kept)).strip() + "\n"


async def test_schema_sql_equals_all_migrations_applied(blank: str) -> None:
    await migrate(blank)
    found = "-- All migrations applied, as pg_dump sees it; a test keeps it so.\n\n" + dumped(blank)
    if os.environ.get("REWRITE_SCHEMA"):
        SCHEMA.write_text(found)
    assert SCHEMA.read_text() == found, f"the migrations make another schema; if that is meant: {REWRITE}"
