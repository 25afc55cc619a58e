import os
from collections.abc import Callable
from pathlib import Path

import pytest

from regionquota.embedded import EmbeddedPostgres
from regionquota.embedded.install import closed_to, etcd_program, install, postgres_programs
from regionquota.embedded.process import SystemUser, run
from regionquota.errors import ConfigError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as another user")
STRANGER = SystemUser(54321, 54321)


def test_the_first_closed_directory_is_named(scratch: Path) -> None:
    inner = scratch / "closed" / "inner" / "data"
    inner.mkdir(parents=True)
    scratch.chmod(0o711)
    (scratch / "closed").chmod(0o700)
    assert scratch / "closed" == closed_to(STRANGER, inner)
    assert closed_to(None, inner) is None
    (scratch / "closed").chmod(0o711)
    assert closed_to(STRANGER, inner) is None


@needs_root
async def test_a_data_directory_closed_to_the_postgres_user_is_refused_and_not_opened(scratch: Path) -> None:
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match=f"{closed} is closed"):
        await EmbeddedPostgres(closed / "data").start()
    assert 0o700 == closed.stat().st_mode & 0o777


@needs_root
async def test_programs_closed_to_the_postgres_user_are_copied_with_their_libraries(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, replicate_postgres: Callable[[Path], Path]
) -> None:
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    cache = scratch / "cache"
    cache.mkdir()
    monkeypatch.setattr("regionquota.embedded.install.cache_directory", lambda: cache)

    installation = install(replicate_postgres(closed))

    assert installation.programs.is_relative_to(cache)
    said = await run("initdb", [str(installation.programs / "initdb"), "--version"], user=installation.user)
    assert (0, "initdb (PostgreSQL)") == (said.code, said.output.rpartition(" ")[0])
    assert 0o700 == closed.stat().st_mode & 0o777
    assert not list(cache.glob("*.partial"))


def test_missing_wheels_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    for find in (postgres_programs, etcd_program):
        with pytest.raises(ConfigError, match="pip install"):
            find()


def test_etcd_on_the_path_will_do(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = scratch / "etcd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(scratch))
    assert program == etcd_program()
