"""The commands of `regionquota reconcile`. They ask the regions' servers."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import aiohttp
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
from regionquota.config import Config, require_deployment
from regionquota.core.reconciling import CaseState
from regionquota.errors import InvalidRequest, RegionQuotaError, Unavailable
from regionquota.http.reconcile_api import ANY_STATE, MAX_CASES
from regionquota.region.counts import State

app = typer.Typer(no_args_is_help=True, help="Compare what is used with sources of truth, and decide on differences.")

TIMEOUT_S: Final = 300.0
"""A run looks at every quota."""
MAX_WAITS: Final = 3
"""How often one command waits for a snapshot to be old enough."""

_SHOWN: Final = ("truth", "counted", "difference", "verdict", "done", "why")
"""Of a finding, beside its quota."""

RegionOption = Annotated[str | None, typer.Option("--region", help="Only this region. Default: all of them.")]
CaseId = Annotated[str, typer.Argument(metavar="ID", help="Case id.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; goes to the ledger.")]


@dataclass(frozen=True, slots=True)
class _Server:
    region: str
    url: str
    http: aiohttp.ClientSession

    async def call(self, method: str, path: str, **content: Any) -> tuple[int, dict[str, Any]]:
        """Raises `Unavailable` where there is no answer, or none that helps."""
        try:
            async with self.http.request(method, f"{self.url}{path}", **content) as answer:
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"{self.region} ({self.url}) does not answer: {error or type(error).__name__}") from error
        if not isinstance(said, dict) or answer.status >= 500:
            detail = said.get("detail") if isinstance(said, dict) else "no JSON object"
            raise Unavailable(f"{self.region} ({self.url}) answers {answer.status}: {detail}")
        return answer.status, said


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
    async with _servers(configuration(config), region) as servers:
        for server in servers:
            said = _expect(*await server.call("GET", "/v1/reconciliation/cases", params=query))
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
    source: Annotated[str, typer.Option("--source", help="Its name in [reconcile] of the region's configuration.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until the snapshot is old enough to be compared.")] = True,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a source of truth now. A source with apply = false is always a dry run."""
    body = {"source": source, "dry_run": dry_run}
    async with _servers(configuration(config), region) as servers:
        reports = [{"region": server.region, **await _run(server, body, wait=wait)} for server in servers]
    if json:
        print_json(reports)
        return
    for report in reports:
        _show_report(report)


async def _run(server: _Server, body: Mapping[str, Any], *, wait: bool) -> dict[str, Any]:
    for _ in range(MAX_WAITS):
        report = _expect(*await server.call("POST", "/v1/reconciliation/runs", json=body))
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
    body = {"by": by, "reason": reason}
    async with _servers(config, region) as servers:
        for server in servers:
            status, said = await server.call("POST", f"/v1/reconciliation/cases/{_path(name)}/{word}", json=body)
            if status != 404:
                _show_decided({"region": server.region, **_expect(status, said)}, json=json)
                return
    raise RegionQuotaError(f"no case {name} in {', '.join(server.region for server in servers)}")


def _path(name: str) -> str:
    """Raises `InvalidRequest` for what can be no case: it would be another path."""
    if not name or not all(sign.isascii() and (sign.isalnum() or sign == "-") for sign in name):
        raise InvalidRequest("ID", f"ID must be a case id, such as reconcile list shows, got {ascii(name)[:80]}")
    return name


@asynccontextmanager
async def _servers(config: Config, region: str | None) -> AsyncIterator[Sequence[_Server]]:
    """Raises `ConfigError` where none is known, `InvalidRequest` for a region that is not."""
    require_deployment(config)
    regions = config.deployment.regions
    if region is not None and region not in regions:
        raise InvalidRequest("--region", f'--region: unknown region "{region}": known are {", ".join(sorted(regions))}')
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as http:
        wanted = sorted(regions) if region is None else [region]
        yield [_Server(name, regions[name].url.rstrip("/"), http) for name in wanted]


def _expect(status: int, said: dict[str, Any]) -> dict[str, Any]:
    """Raises `InvalidRequest` or `RegionQuotaError` in the server's own words."""
    if status < 400:
        return said
    detail = str(said.get("detail", f"the server answers {status}"))
    raise InvalidRequest(str(said.get("field")), detail) if status == 400 else RegionQuotaError(detail)


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
    out.print(said, markup=False, highlight=False, soft_wrap=True)


def _show_report(report: Mapping[str, Any]) -> None:
    head = f"{report['region']}: {report['source']}, {report['state']}"
    if report["state"] == State.WAITING:
        head += f", the count of {report['snapshot_at']} can be compared from {report['compare_at']}"
    if report["state"] == State.DONE:
        head += f", {report['compared']:,} compared, {report['differences']:,} do not agree"
    if report["dry_run"]:
        head += " (dry run: nothing is changed)"
    out.print(head, markup=False, highlight=False, soft_wrap=True)
    if report["findings"]:
        columns = ("quota", "truth", "ledger", "difference", "verdict", "done", "why")
        print_table(columns, ((_quota(one), *(one[name] for name in _SHOWN)) for one in report["findings"]))
