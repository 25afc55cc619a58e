import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from regionquota.embedded import EmbeddedPostgres
from regionquota.embedded.cluster import processes_in
from regionquota.errors import ConfigError, StoreUnavailable


async def query(server: EmbeddedPostgres, sql: str) -> Any:
    connection = await asyncpg.connect(server.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def remember(server: EmbeddedPostgres, what: str) -> None:
    await query(server, "DROP TABLE IF EXISTS remembered")
    await query(server, f"CREATE TABLE remembered AS SELECT '{what}' AS what")


async def recall(server: EmbeddedPostgres) -> Any:
    return await query(server, "SELECT what FROM remembered")


async def test_data_and_port_outlive_a_restart(postgres: EmbeddedPostgres) -> None:
    dsn = postgres.dsn
    await remember(postgres, "stopped")
    await postgres.stop()
    assert 0 == postgres.exit_code
    await postgres.start()
    assert "stopped" == await recall(postgres)
    assert dsn == postgres.dsn


@pytest.mark.parametrize("hard", [False, True])
async def test_committed_data_outlives_a_crash(postgres: EmbeddedPostgres, hard: bool) -> None:
    await remember(postgres, "crashed")
    session = await asyncpg.connect(postgres.dsn)
    await postgres.kill(hard=hard)
    assert not processes_in(postgres.data_dir)
    await postgres.start()
    assert "crashed" == await recall(postgres)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await session.fetchval("SELECT 1")
    session.terminate()


async def test_another_object_takes_over_data_and_port(postgres: EmbeddedPostgres) -> None:
    await remember(postgres, "handed over")
    await postgres.stop()
    heir = EmbeddedPostgres(postgres.data_dir, port=postgres.port)
    await heir.start()
    assert "handed over" == await recall(heir)
    await heir.stop()


async def test_two_at_once_are_strangers(postgres: EmbeddedPostgres, scratch: Path) -> None:
    eu, us = postgres, EmbeddedPostgres(scratch / "us")
    await us.start()
    await asyncio.gather(remember(eu, "eu"), remember(us, "us"))
    assert ("eu", "us") == tuple(await asyncio.gather(recall(eu), recall(us)))
    await us.stop()


async def test_settings_have_durable_defaults_that_the_caller_can_override(postgres: EmbeddedPostgres) -> None:
    await postgres.stop()
    server = EmbeddedPostgres(postgres.data_dir, settings={"max_connections": "17"})
    await server.start()
    shown = [await query(server, f"SHOW {name}") for name in ("fsync", "synchronous_commit", "max_connections")]
    assert ["on", "on", "17"] == shown
    assert "127.0.0.1" == await query(server, "SHOW listen_addresses")
    await server.stop()


async def test_a_second_postmaster_on_the_same_data_is_refused_by_pid(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(ConfigError, match=rf"already runs on {postgres.data_dir} \(pid {postgres.pid}\)"):
        await EmbeddedPostgres(postgres.data_dir).start()
    assert postgres.running


async def test_a_pid_file_whose_pid_now_is_someone_elses_does_not_matter(postgres: EmbeddedPostgres) -> None:
    await postgres.kill(hard=True)
    pid_file = postgres.data_dir / "postmaster.pid"
    _, _, rest = pid_file.read_text().partition("\n")
    pid_file.write_text(f"{os.getpid()}\n{rest}")
    await postgres.start()
    assert 1 == await query(postgres, "SELECT 1")


async def test_a_taken_port_is_named(postgres: EmbeddedPostgres, scratch: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{postgres.port}"):
        await EmbeddedPostgres(scratch / "other", port=postgres.port).start()


async def test_last_words_are_in_the_error_when_it_cannot_start(postgres: EmbeddedPostgres) -> None:
    await postgres.stop()
    server = EmbeddedPostgres(postgres.data_dir, settings={"no_such_setting": "1"})
    with pytest.raises(StoreUnavailable, match="no_such_setting"):
        await server.start()
    assert not server.running


async def test_a_directory_with_something_else_in_it_is_left_alone(scratch: Path) -> None:
    (scratch / "full").mkdir()
    (scratch / "full" / "letter").write_text("do not lose me")
    with pytest.raises(ConfigError, match="neither empty nor a Postgres data directory"):
        await EmbeddedPostgres(scratch / "full").start()
    assert "do not lose me" == (scratch / "full" / "letter").read_text()


async def test_an_unexpected_end_wakes_whoever_waits(postgres: EmbeddedPostgres) -> None:
    waiting = asyncio.create_task(postgres.wait())
    await postgres.kill(hard=True)
    assert -9 == await waiting
