"""A quota that was named well and is not there: the same words and the same exit status from every command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON
from typer.testing import CliRunner

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.bootstrap.operator import Operator
from regionquota.cli import app


@pytest.fixture
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The configuration of a deployment whose etcd is empty."""

    @asynccontextmanager
    async def operator(*_: object, **__: object) -> AsyncIterator[Operator]:
        etcd = MemoryCoordination(HandClock(NOON))
        yield Operator(etcd, etcd, {}, None, None, None)  # type: ignore[arg-type]  # nobody asks for the rest

    for module in ("quotas", "explaining"):
        monkeypatch.setattr(f"regionquota.cli.{module}.operator", operator)
    file = tmp_path / "deployment.toml"
    file.write_text("")
    return file


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "acme", "vcpu"],
        ["explain", "acme", "vcpu", "--json"],
        ["quota", "get", "acme", "vcpu"],
        ["quota", "remove", "acme", "vcpu"],
        ["quota", "suspend", "acme", "vcpu"],
        ["quota", "suspend", "acme", "vcpu", "--undo"],
        ["quota", "set", "acme", "vcpu", "none", "--override"],
    ],
    ids=" ".join,
)
def test_it_is_said_to_be_unknown_with_exit_status_1(nothing_there: Path, arguments: list[str]) -> None:
    env = {"REGIONQUOTA_CONFIG": str(nothing_there), "COLUMNS": "200", "TERM": "dumb"}
    result = CliRunner().invoke(app, [*arguments, "--scope", "user:y"], env=env)
    said = " ".join(result.output.split())
    assert "unknown quota acme/vcpu/user:y: regionquota quota list shows what there is" in said
    assert "set one with regionquota quota set acme vcpu LIMIT --scope user:y" in said
    assert 1 == result.exit_code
