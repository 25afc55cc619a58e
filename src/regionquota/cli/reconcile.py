"""The commands of `regionquota reconcile`. They ask the regions' servers."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from regionquota.cli.frame import (
    ConfigOption,
    JsonOption,
    command,
    configuration,
    err,
    out,
    print_json,
    print_table,
)
from regionquota.cli.region_servers import RegionOption, RegionServer, expect, region_servers
from regionquota.cli.tenants import check_reason
from regionquota.config import Config
from regionquota.core.reconciling import CaseState
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http.decoding import check_identifier
from regionquota.http.reconcile_api import ANY_STATE, MAX_CASES
from regionquota.region.counts import State

app = typer.Typer(no_args_is_help=True, help="Compare what is used with sources of truth, and decide on differences.")

TIMEOUT_S: Final = 300.0
"""A run looks at every quota."""
MAX_WAITS: Final = 3
"""How often one command waits for a snapshot to be old enough."""

_SHOWN: Final = ("truth", "counted", "difference", "verdict", "done", "why")
"""Of a finding, beside its quota."""

CaseId = Annotated[str, typer.Argument(metavar="ID", help="Case id.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; goes to the ledger.")]


@app.command("list", epilog="Example: regionquota reconcile list --all")
@command
async def list_(
    every: Annotated[bool, typer.Option("--all", help="Also those that are decided.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_CASES, help="The most to show per region.")] = 100,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List differences that wait for a decision, newest first."""
    query = {"state": ANY_STATE if every else CaseState.OPEN.value, "limit": str(limit)}
    found: list[dict[str, Any]] = []
    async with region_servers(configuration(config), region, TIMEOUT_S) as servers:
        for server in servers:
            said = expect(*await server.call("GET", "/v1/reconciliation/cases", query=query))
            found += [{"region": server.region, **case} for case in said["cases"]]
    if json:
        print_json(found)
    else:
        _show_cases(found)


@app.command(epilog='Example: regionquota reconcile approve ID --by ann --reason "the inventory is right"')
@command
async def approve(
    id_: CaseId,
    by: ByOption,
    reason: ReasonOption,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Add a case's difference to what is used, less what happened since. A repeat changes nothing."""
    await _decide("approve", id_, by, reason, region, configuration(config), json=json)


@app.command(epilog='Example: regionquota reconcile reject ID --by ann --reason "the count was wrong"')
@command
async def reject(
    id_: CaseId,
    by: ByOption,
    reason: ReasonOption,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Leave what is used as it is."""
    await _decide("reject", id_, by, reason, region, configuration(config), json=json)


@app.command(epilog="Example: regionquota reconcile run --source inventory --dry-run")
@command
async def run(
    source: Annotated[str, typer.Option("--source", help="Its name in \\[reconcile] of the region's configuration.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the snapshot is old enough to be compared.")] = True,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a source of truth now. A source with apply = false is always a dry run."""
    check_identifier("--source", source)
    body = {"source": source, "dry_run": dry_run}
    async with region_servers(configuration(config), region, TIMEOUT_S) as servers:
        reports = [{"region": server.region, **await _run(server, body, wait=wait)} for server in servers]
    if json:
        print_json(reports)
        return
    for report in reports:
        _show_report(report)


async def _run(server: RegionServer, body: Mapping[str, Any], *, wait: bool) -> dict[str, Any]:
    for _ in range(MAX_WAITS):
        report = expect(*await server.call("POST", "/v1/reconciliation/runs", body=body))
        if report["state"] != State.WAITING or not wait:
            return report
        until = datetime.fromisoformat(report["compare_at"])
        seconds = max(0.0, (until - datetime.now(UTC)).total_seconds())
        with err.status(f"{server.region}: waiting {seconds:.0f} s until what is on its way is in the ledger"):
            await asyncio.sleep(seconds + 0.01)
    return report


async def _decide(
    word: str, name: str, by: str, reason: str, region: str | None, config: Config, *, json: bool
) -> None:
    check_identifier("--by", by)
    check_reason("--reason", reason)
    body = {"by": by, "reason": reason}
    async with region_servers(config, region, TIMEOUT_S) as servers:
        for server in servers:
            status, said = await server.call("POST", f"/v1/reconciliation/cases/{_path(name)}/{word}", body=body)
            if status != 404:
                _show_decided({"region": server.region, **expect(status, said)}, json=json)
                return
    raise RegionQuotaError(f"no case {name} in {', '.join(server.region for server in servers)}")


def _path(name: str) -> str:
    """Raises `InvalidRequest` for what can be no case: it would be another path."""
    if not name or not all(sign.isascii() and (sign.isalnum() or sign == "-") for sign in name):
        raise InvalidRequest("ID", f"ID must be a case id, such as reconcile list shows, got {ascii(name)[:80]}")
    return name


def _quota(one: Mapping[str, Any]) -> str:
    return f"{one['tenant_id']}/{one['resource']}/{one['scope']}"


def _show_cases(found: Sequence[Mapping[str, Any]]) -> None:
    columns = ("case", "region", "state", "quota", "source", "counted at", "truth", "ledger", "difference", "why")
    print_table(
        columns,
        (
            (
                one["case_id"],
                one["region"],
                _state(one),
                _quota(one),
                one["source"],
                one["snapshot_at"],
                one["truth"],
                one["counted"],
                one["difference"],
                one["why"] if one["reason"] is None else f"{one['by']}: {one['reason']}",
            )
            for one in found
        ),
        prose=["why"],
    )


def _state(case: Mapping[str, Any]) -> str:
    waits = case["state"] == CaseState.APPROVED and case["applied_at"] is None
    return f"{case['state']}, not applied yet" if waits else str(case["state"])


def _show_decided(case: Mapping[str, Any], *, json: bool) -> None:
    if json:
        print_json(case)
        return
    change = "" if case["delta"] is None else f", {case['delta']:+,} added to what is used"
    said = f"{_quota(case)} in {case['region']}: {_state(case)} by {case['by']}{change}"
    out.print(said, highlight=False, soft_wrap=True)


def _show_report(report: Mapping[str, Any]) -> None:
    head = f"{report['region']}: {report['source']}, {report['state']}"
    if report["state"] == State.WAITING:
        head += f", the count of {report['snapshot_at']} can be compared from {report['compare_at']}"
    if report["state"] == State.DONE:
        head += f", {report['compared']:,} compared, {report['differences']:,} do not agree"
    if report["dry_run"]:
        head += " (dry run: nothing is changed)"
    out.print(head, highlight=False, soft_wrap=True)
    if report["findings"]:
        columns = ("quota", "truth", "ledger", "difference", "verdict", "done", "why")
        rows = ((_quota(one), *(one[name] for name in _SHOWN)) for one in report["findings"])
        print_table(columns, rows, prose=["why"])
