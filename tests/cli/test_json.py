"""What programs read: whatever is listed, the last line is one object."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON
from typer.testing import CliRunner

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import MemoryHistoryStore
from regionquota.bootstrap.operator import Databases, Operator
from regionquota.cli import app


class NoReservations:
    """A region's server that has nothing to tell."""

    region = "eu"

    async def call(self, _method: str, path: str, **_: Any) -> tuple[int, dict[str, Any]]:
        answers = {
            "/v1/reservations": {"reservations": [], "next": None, "count": 0},
            "/v1/reconciliation/cases": {"cases": [], "open": 0},
            "/v1/reconciliation/runs": {"source": "inventory", "state": "DONE"},
        }
        return 200, answers[path]


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = MemoryCoordination(HandClock(NOON))

    async def history(*_: object) -> Sequence[Any]:
        return ()

    @asynccontextmanager
    async def operator(*_: object, **__: object) -> AsyncIterator[Operator]:
        yield Operator(etcd, etcd, {}, MemoryHistoryStore(etcd), lambda _: etcd, history)

    @asynccontextmanager
    async def databases(*_: object) -> AsyncIterator[Databases]:
        yield Databases({}, {})

    @asynccontextmanager
    async def servers(*_: object) -> AsyncIterator[Sequence[NoReservations]]:
        yield [NoReservations()]

    for module in ("quotas", "regions", "tenants"):
        monkeypatch.setattr(f"regionquota.cli.{module}.operator", operator)
    for module in ("ledger", "looking"):
        monkeypatch.setattr(f"regionquota.cli.{module}.region_databases", databases)
    for module in ("reservations", "reconcile"):
        monkeypatch.setattr(f"regionquota.cli.{module}.region_servers", servers)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("region list", {"coordinators", "regions"}),
        ("quota list", {"quotas"}),
        ("quota set-many {limits}", {"quotas"}),
        ("tenant list", {"tenants"}),
        ("ledger list acme", {"lines"}),
        ("transfers", {"transfers"}),
        ("reservation list", {"reservations"}),
        ("reconcile list", {"cases"}),
        ("reconcile run --source inventory", {"runs"}),
        ("explore --ablate decrease-first", {"missed", "unmissed"}),
    ],
)
def test_the_last_line_is_one_object(tmp_path: Path, command: str, names: set[str]) -> None:
    config, limits = tmp_path / "deployment.toml", tmp_path / "limits.toml"
    config.write_text('[deployment]\nregions = { eu = { url = "http://127.0.0.1:1" } }\n')
    limits.write_text('[[limits]]\ntenant_id = "acme"\nresource = "vcpu"\nlimit = 5\n')
    arguments = [*command.format(limits=limits).split(), "--json"]
    result = CliRunner().invoke(app, arguments, env={"REGIONQUOTA_CONFIG": str(config)})
    assert 0 == result.exit_code, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    assert names == told.keys()
