"""Reconciliation as a region server does it: over HTTP, by itself, and through the command line."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_truth_source import Answers, answering
from tests.http.harness import Api, Reply, Server, Start, running, until

from regionquota.config import (
    Config,
    DeployedRegion,
    DeploymentConfig,
    ReconcileConfig,
    ServiceConfig,
    TruthConfig,
    load,
    render,
)
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres
from regionquota.errors import ConfigError

SETTLE_S = 1.0


def config(url: str, **more: Any) -> dict[str, Any]:
    """Sections of a server with the source `inventory`, which does not run by itself within a test."""
    terms = {"kind": "http", "url": url, "resources": ("vcpu",), "apply": True, "interval_s": 3600.0} | more
    sources = {"inventory": TruthConfig(**terms)}
    return {
        "reconcile": ReconcileConfig(settle_s=SETTLE_S, sources=sources),
        "service": ServiceConfig(shutdown_grace_s=0.5),
    }


@pytest.fixture(scope="module")
async def answers() -> AsyncIterator[Answers]:
    async with answering() as started:
        yield started


class Inventory:
    """Tells the server what is in use. Snapshots are old enough to be compared, and each is newer than the last."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.totals: dict[str, int] = {}

    def say(self, tenant: str, total: int, age_s: float = 2 * SETTLE_S + 0.1) -> None:
        self.totals = {tenant: total}
        snapshot = datetime.now(UTC) - timedelta(seconds=age_s)
        totals = [{"tenant_id": tenant, "resource": "vcpu", "total": total} for tenant, total in self.totals.items()]
        self.answers.bodies[None, None] = {"snapshot_at": snapshot.isoformat(), "totals": totals}


@pytest.fixture
async def inventory(answers: Answers) -> Inventory:
    return Inventory(answers)


@pytest.fixture
async def reconciled(start: Start, answers: Answers, inventory: Inventory) -> Server:
    inventory.say("nobody", 0)
    return await start(**config(answers.url))


@pytest.fixture(scope="module")
async def idle(postgres: EmbeddedPostgres, etcd: EmbeddedEtcd, answers: Answers) -> AsyncIterator[Server]:
    """One server for all who change nothing in it."""
    Inventory(answers).say("nobody", 0)
    async with running(postgres, etcd, **config(answers.url)) as started:
        yield started


async def use(server: Server, tenant: str, amount: int) -> None:
    """Used for long, as the ledger has it."""
    assert 200 == (await server.api.set_limit(tenant, 10_000)).status
    assert 200 == (await server.api.adjust(tenant, amount)).status
    await server.look.execute("SET session_replication_role = replica")
    await server.look.execute("UPDATE usage_ledger SET at = at - interval '1 hour' WHERE tenant_id = $1", tenant)


async def run(api: Api, **more: Any) -> dict[str, Any]:
    """The report of a run; that of the server itself, at its start, may have to end first."""
    while True:
        reply = await api.post("/v1/reconciliation/runs", {"source": "inventory"} | more)
        assert 200 == reply.status, reply
        if reply.body["state"] != "elsewhere":
            return dict(reply.body)


async def cases(api: Api, state: str = "open") -> list[dict[str, Any]]:
    reply = await api.get(f"/v1/reconciliation/cases?state={state}")
    assert 200 == reply.status, reply
    return list(reply.body["cases"])


async def decide(api: Api, name: str, word: str = "approve", **more: Any) -> Reply:
    body = {"by": "ann", "reason": "the inventory is right"} | more
    return await api.post(f"/v1/reconciliation/cases/{name}/{word}", body)


async def test_a_run_puts_a_small_difference_right(reconciled: Server, inventory: Inventory, tenant: str) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1020)
    report = await run(reconciled.api)
    assert ("done", False, 1) == (report["state"], report["dry_run"], report["differences"])
    assert ("adjust", "adjusted", 20) == tuple(
        report["findings"][0][name] for name in ("verdict", "done", "difference")
    )
    assert 1020 == (await reconciled.api.usage(tenant))["used"]


async def test_a_dry_run_says_what_would_be_done(reconciled: Server, inventory: Inventory, tenant: str) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1020)
    report = await run(reconciled.api, dry_run=True)
    assert (True, "adjust", "nothing") == (
        report["dry_run"], report["findings"][0]["verdict"], report["findings"][0]["done"],
    )  # fmt: skip
    assert 1000 == (await reconciled.api.usage(tenant))["used"]


async def test_a_young_count_says_from_when_on_it_is_compared(
    reconciled: Server, inventory: Inventory, tenant: str
) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1020, age_s=0)
    report = await run(reconciled.api)
    assert "waiting" == report["state"]
    waits = datetime.fromisoformat(report["compare_at"]) - datetime.fromisoformat(report["snapshot_at"])
    assert 2 * SETTLE_S == waits.total_seconds()


async def test_a_large_difference_is_listed_and_approved_once(
    reconciled: Server, inventory: Inventory, tenant: str
) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1200)
    await run(reconciled.api)
    (case,) = await cases(reconciled.api)
    assert (1200, 1000, 200, tenant) == tuple(case[name] for name in ("truth", "counted", "difference", "tenant_id"))
    first = await decide(reconciled.api, case["case_id"])
    assert (200, "approved", 200, "ann") == (
        first.status, first.body["state"], first.body["delta"], first.body["by"],
    )  # fmt: skip
    assert first.body == (await decide(reconciled.api, case["case_id"], by="bob")).body
    assert 1200 == (await reconciled.api.usage(tenant))["used"]
    assert [] == await cases(reconciled.api)
    assert [case["case_id"]] == [one["case_id"] for one in await cases(reconciled.api, "approved")]


async def test_a_rejected_case_cannot_be_approved(reconciled: Server, inventory: Inventory, tenant: str) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1200)
    await run(reconciled.api)
    (case,) = await cases(reconciled.api)
    assert 200 == (await decide(reconciled.api, case["case_id"], "reject")).status
    refused = await decide(reconciled.api, case["case_id"])
    assert (409, "CASE_REFUSED", "rejected") == (
        refused.status, refused.body["reason"], refused.body["case_state"],
    )  # fmt: skip
    assert 1000 == (await reconciled.api.usage(tenant))["used"]


async def test_a_source_that_fails_is_503_and_says_why(reconciled: Server, inventory: Inventory, tenant: str) -> None:
    await use(reconciled, tenant, 1000)
    inventory.answers.raw = b"<html>"
    try:
        reply = await reconciled.api.post("/v1/reconciliation/runs", {"source": "inventory"})
    finally:
        inventory.answers.raw = None
    assert 503 == reply.status
    assert "another form" in reply.body["detail"]


@pytest.mark.parametrize("word", ["approve", "reject"])
@pytest.mark.parametrize("name", [str(uuid.UUID(int=7)), "nonsense", "%00"])
async def test_an_unknown_case_is_404(idle: Server, name: str, word: str) -> None:
    assert 404 == (await decide(idle.api, name, word)).status


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("runs", {}, "source"),
        ("runs", {"source": "billing"}, "source"),
        ("runs", {"source": "inventory", "dry_run": 1}, "dry_run"),
        ("cases/x/approve", {"by": "ann"}, "reason"),
        ("cases/x/approve", {"by": "", "reason": "right"}, "by"),
        ("cases/x/reject", {"by": "ann", "reason": "right", "state": "open"}, "state"),
    ],
)
async def test_bad_input_is_refused_by_name(idle: Server, path: str, body: dict[str, Any], field: str) -> None:
    reply = await idle.api.post(f"/v1/reconciliation/{path}", body)
    assert (400, field) == (reply.status, reply.body["field"])


@pytest.mark.parametrize(
    ("query", "field"), [("state=closed", "state"), ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit")]
)
async def test_a_bad_query_is_refused_by_name(idle: Server, query: str, field: str) -> None:
    reply = await idle.api.get(f"/v1/reconciliation/cases?{query}")
    assert (400, field) == (reply.status, reply.body["field"])


async def test_a_server_reconciles_by_itself_and_tells_in_its_metrics(
    start: Start, answers: Answers, inventory: Inventory, tenant: str
) -> None:
    inventory.say("nobody", 0)
    server = await start(**config(answers.url, interval_s=1.0))
    await use(server, tenant, 1000)
    inventory.say(tenant, 1020)

    async def corrected() -> bool:
        return bool(1020 == (await server.api.usage(tenant))["used"])

    await until(corrected)
    wanted = {
        'regionquota_reconcile_adjustments_total{source="inventory"} 1.0',
        "regionquota_reconcile_open_cases 0.0",
    }

    async def told() -> bool:
        text = (await server.api.get("/metrics")).text
        return wanted <= set(text.splitlines()) and 'regionquota_reconcile_age_seconds{source="inventory"}' in text

    await until(told)


# -- the command line --


async def command(server: Server, folder: Path, *arguments: str) -> tuple[int, str, str]:
    file = folder / "deployment.toml"
    deployment = DeploymentConfig(regions={"eu": DeployedRegion(url=server.api.url)})
    file.write_text(render(Config(deployment=deployment), ["deployment"]))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "regionquota", "reconcile", *arguments,
        env={**os.environ, "COLUMNS": "250", "REGIONQUOTA_CONFIG": str(file)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, error = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode is not None
    return child.returncode, said.decode(), error.decode()


async def test_the_command_line_runs_lists_and_approves(
    reconciled: Server, inventory: Inventory, tenant: str, tmp_path: Path
) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1200, age_s=SETTLE_S)  # it has to wait for the rest
    status, said, error = await command(reconciled, tmp_path, "run", "--source", "inventory", "--dry-run")
    assert (0, True) == (status, "1 do not agree (dry run: nothing is changed)" in said), (said, error)
    inventory.say(tenant, 1200)
    await command(reconciled, tmp_path, "run", "--source", "inventory")
    status, said, error = await command(reconciled, tmp_path, "list", "--json")
    assert 0 == status, error
    (case,) = json.loads(said)
    decision = ("--by", "ann", "--reason", "the inventory is right")
    status, said, error = await command(reconciled, tmp_path, "approve", case["case_id"], *decision)
    assert (0, True) == (status, "approved by ann, +200 added to what is used" in said), error
    assert 1200 == (await reconciled.api.usage(tenant))["used"]
    assert "approved" in (await command(reconciled, tmp_path, "list", "--all"))[1]


async def test_the_command_line_rejects(reconciled: Server, inventory: Inventory, tenant: str, tmp_path: Path) -> None:
    await use(reconciled, tenant, 1000)
    inventory.say(tenant, 1200)
    await run(reconciled.api)
    (case,) = await cases(reconciled.api)
    decision = ("--by", "ann", "--reason", "a wrong count")
    assert 0 == (await command(reconciled, tmp_path, "reject", case["case_id"], *decision))[0]
    status, _, error = await command(reconciled, tmp_path, "approve", case["case_id"], *decision)
    assert (1, True) == (status, "it is rejected" in error), error


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("run", "--source", "billing"), 2, "unknown source billing: known are inventory"),
        (("run", "--source", "inventory", "--region", "us"), 2, 'unknown region "us": known are eu'),
        (("approve", str(uuid.UUID(int=7)), "--by", "ann", "--reason", "right"), 1, "no case"),
        (("approve", "../../healthz", "--by", "ann", "--reason", "right"), 2, "ID must be a case id"),
    ],
)
async def test_the_command_line_says_what_is_wrong(
    idle: Server, tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    ended, _, error = await command(idle, tmp_path, *arguments)
    assert (status, True) == (ended, message in error), error


# -- configuration --


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ('kind = "http", resources = ["vcpu"]', 'reconcile.sources.inventory.url is missing: kind "http" needs url'),
        ('kind = "sql", resources = ["vcpu"], dsn = "postgresql://x"', "query is missing"),
        ('kind = "http", resources = ["vcpu"], url = "http://x", query = "SELECT"', "query does not belong to kind"),
        ('kind = "http", url = "http://x"', "takes a table with kind, resources at least"),
        ('kind = "http", resources = [], url = "http://x"', "takes a list of resources or patterns"),
        ('kind = "http", resources = ["vcpu"], url = "http://x", aply = true', 'did you mean "apply"?'),
        ('kind = "http", resources = ["vcpu"], url = "http://x", apply = 1', "takes true or false"),
        ('kind = "sql", resources = ["vcpu"], dsn = "postgresql://me:hush@x", query = "SELECT"', "holds a password"),
    ],
)
def test_a_source_that_cannot_work_is_refused_at_start(tmp_path: Path, terms: str, message: str) -> None:
    file = tmp_path / "region.toml"
    file.write_text(f"[reconcile]\nsources = {{ inventory = {{ {terms} }} }}\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_sources_that_are_rendered_read_back(tmp_path: Path) -> None:
    sources = {
        "logs": TruthConfig(
            kind="sql", resources=("calls", "api-*"), dsn="postgresql://db/logs", query="SELECT 1\nFROM logs",
            password_file=Path("/run/secret"), counts="consumable", apply=True, floor=5, interval_s=60.0,
        )
    }  # fmt: skip
    wanted = Config(reconcile=ReconcileConfig(settle_s=5.0, sources=sources))
    file = tmp_path / "region.toml"
    file.write_text(render(wanted, ["reconcile"]))
    assert wanted == load(file, {})
