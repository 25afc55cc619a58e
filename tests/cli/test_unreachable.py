"""What an operator's command says when what it needs is not there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.bootstrap.operator import operator
from regionquota.cli import app
from regionquota.cli.evictions import progress
from regionquota.config import load
from regionquota.embedded import EmbeddedEtcd, free_port


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    server = EmbeddedEtcd(tmp_path / "etcd", unsafe_no_fsync=True)
    await server.start()
    yield server
    await server.kill()


def configured(directory: Path, *endpoints: str) -> Path:
    file = directory / "deployment.toml"
    postgres = f"postgresql://user@127.0.0.1:{free_port()}/postgres"
    file.write_text(
        f"[etcd]\nendpoints = {list(endpoints)}\n"
        f'[deployment]\nregions = {{ eu = {{ url = "http://127.0.0.1:1", dsn = "{postgres}" }} }}\n'
    )
    return file


def failure(file: Path, *arguments: str) -> str:
    """The one line of it."""
    result = CliRunner().invoke(app, [*arguments, "--config", str(file)])
    assert 1 == result.exit_code
    (line,) = result.output.splitlines()
    return line


@pytest.mark.parametrize(
    "command",
    [
        ["region", "list"],
        ["region", "evict", "eu", "--attest", "powered off"],
        ["region", "readmit", "eu"],
        ["region", "recover"],
        ["quota", "set", "acme", "vcpu", "5"],
        ["tenant", "list"],
        ["audit"],
    ],
)
def test_etcd_that_does_not_run_is_named_with_what_may_be_done(tmp_path: Path, command: list[str]) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    said = failure(configured(tmp_path, nobody), *command)
    assert f"no etcd answers at {nobody} (etcd.endpoints): is `regionquota dev` or your etcd running?" in said


@pytest.mark.parametrize("command", [["transfers"], ["ledger", "list", "acme"]])
def test_what_reads_databases_alone_asks_for_no_etcd(tmp_path: Path, command: list[str]) -> None:
    said = failure(configured(tmp_path, f"127.0.0.1:{free_port()}"), *command)
    assert "no Postgres answers for eu at 127.0.0.1:" in said
    assert "deployment.regions.eu.dsn" in said


async def test_a_member_of_etcd_that_is_away_is_passed_over(tmp_path: Path, etcd: EmbeddedEtcd) -> None:
    file = configured(tmp_path, f"127.0.0.1:{free_port()}", etcd.endpoint)
    async with operator(load(file, {})) as connected:
        assert {} == await connected.directory.regions()


def test_a_progress_bar_leaves_no_empty_line_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("documents") as told:
        told(1, 2)
    assert ("", "") == capsys.readouterr()
