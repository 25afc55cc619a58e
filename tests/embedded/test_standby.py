"""A copy follows its primary until the way between them is cut, and becomes a primary without what came later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from regionquota.embedded import EmbeddedPostgres, TcpProxy, copy_of, free_port, promote, reach


async def ask(server: EmbeddedPostgres, sql: str) -> Any:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.fixture
async def primary(scratch: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(scratch / "primary")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def link(primary: EmbeddedPostgres) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy("127.0.0.1", primary.port)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def standby(link: TcpProxy, scratch: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = await copy_of(scratch / "standby", link.listen_port, port=free_port())
    await server.start()
    yield server
    await server.stop()


async def test_a_copy_lacks_what_was_committed_after_it_was_cut_off(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, link: TcpProxy
) -> None:
    await reach(primary, synchronous=False)
    await ask(primary, "CREATE TABLE seen AS SELECT 1 AS what")
    while await ask(standby, "SELECT to_regclass('seen') IS NULL"):
        await asyncio.sleep(0.05)
    link.cut()
    await ask(primary, "CREATE TABLE unseen AS SELECT 1 AS what")
    await primary.kill()
    await promote(standby)
    assert not await ask(standby, "SELECT pg_is_in_recovery()")
    assert await ask(standby, "SELECT to_regclass('seen') IS NOT NULL")
    assert await ask(standby, "SELECT to_regclass('unseen') IS NULL")


async def test_commits_wait_for_a_synchronous_copy(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, link: TcpProxy
) -> None:
    await reach(primary, synchronous=True)
    await ask(primary, "CREATE TABLE seen AS SELECT 1 AS what")
    link.cut()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(primary, "CREATE TABLE unseen AS SELECT 1 AS what"), 0.5)
