"""The line is cut when a commit has been carried out and its answer is under way, and at nothing else."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from regionquota.chaos.wire import CommitCutter
from regionquota.embedded import EmbeddedPostgres, TcpProxy, scratch_directory

INSERT = "INSERT INTO adjustments VALUES ($1)"


@pytest.fixture(scope="module")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        yield server
        await server.stop()


@pytest.fixture
async def cutter(postgres: EmbeddedPostgres) -> AsyncIterator[tuple[CommitCutter, str]]:
    """And the address of a Postgres behind it."""
    conn = await asyncpg.connect(postgres.dsn)
    await conn.execute("DROP TABLE IF EXISTS adjustments; CREATE TABLE adjustments (number integer)")
    await conn.close()
    cutter = CommitCutter()
    proxy = TcpProxy("127.0.0.1", postgres.port, inspect=cutter.inspector)
    await proxy.start()
    yield cutter, f"postgresql://postgres@{proxy.endpoint}/postgres"
    await proxy.stop()


async def stored(postgres: EmbeddedPostgres) -> list[int]:
    conn = await asyncpg.connect(postgres.dsn)
    rows = await conn.fetch("SELECT number FROM adjustments ORDER BY number")
    await conn.close()
    return [row["number"] for row in rows]


async def test_a_statement_that_is_a_transaction_of_its_own(
    cutter: tuple[CommitCutter, str], postgres: EmbeddedPostgres
) -> None:
    censor, dsn = cutter
    conn = await asyncpg.connect(dsn)
    await conn.execute(INSERT, 1)
    censor.armed = 1
    assert 1 == await conn.fetchval("SELECT 1")
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await conn.execute(INSERT, 2)
    assert (0, 1) == (censor.armed, censor.cut)
    assert [1, 2] == await stored(postgres)


async def test_a_transaction_is_cut_at_its_commit(cutter: tuple[CommitCutter, str], postgres: EmbeddedPostgres) -> None:
    censor, dsn = cutter
    conn = await asyncpg.connect(dsn)
    censor.armed = 1
    work = conn.transaction()
    await work.start()
    await conn.execute(INSERT, 1)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await work.commit()
    assert [1] == await stored(postgres)
