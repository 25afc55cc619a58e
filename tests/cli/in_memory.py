"""A deployment without anything in it, in memory, for commands of operators."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import MemoryHistoryStore
from regionquota.bootstrap.operator import Databases, Operator


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


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
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
