"""The commands of `regionquota reservation`. They call the regions' servers, as a service does."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from regionquota.cli.frame import (
    NEGATIVE_NUMBERS,
    ConfigOption,
    JsonOption,
    command,
    configuration,
    err,
    print_json,
    print_table,
)
from regionquota.cli.region_servers import RegionOption, RegionServer, expect, region_servers
from regionquota.cli.tenants import check_reason
from regionquota.config import Config
from regionquota.core.quota import MAX_AMOUNT
from regionquota.core.reservation import State
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http.decoding import MAX_PAGE, check_identifier
from regionquota.region.ids import bucket_of_id

TIMEOUT_S: Final = 10.0
"""For one call of one region's server."""

app = typer.Typer(no_args_is_help=True, help="Look at reservations, and decide about work of unknown outcome.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Reservation id.")]
ReasonOption = Annotated[str, typer.Option(help="For the ledger and the log.")]


@app.command("list", epilog="Example: regionquota reservation list --region eu · regionquota reservation list --json")
@command
async def list_(
    state: Annotated[str, typer.Option(help="unknown: started work whose deadline passed without a word.")] = "unknown",
    region: RegionOption = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE, help="The most to show per region.")] = 100,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List started work of unknown outcome, longest overdue first. It keeps its capacity until somebody decides.

    Exit status 1 if a region does not answer; the others are shown all the same.
    """
    if tenant is not None:
        check_identifier("tenant", tenant)
    if state.upper() != State.UNKNOWN:
        raise InvalidRequest("--state", f"--state takes unknown, got {state!a}")
    query = {"state": State.UNKNOWN.value, "limit": str(limit)} | ({} if tenant is None else {"tenant_id": tenant})
    async with region_servers(configuration(config), region, TIMEOUT_S) as servers:
        answers = await asyncio.gather(
            *(server.call("GET", "/v1/reservations", query=query) for server in servers), return_exceptions=True
        )
    found: list[dict[str, Any]] = []
    silent: list[BaseException] = []
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, BaseException):
            silent.append(answer)
        else:
            said = expect(*answer)
            found += [{"region": server.region, **one} for one in said["reservations"]]
            if said["next"] is not None:
                err.print(f"{server.region}: {said['count']:,} in all, the first {limit:,} are shown", style="dim")
    found.sort(key=lambda one: str(one["expires_at"]))
    if len(silent) < len(answers):
        _show_all(found, json=json)
    if silent:
        raise silent[0]


@app.command(epilog="Example: regionquota reservation show 0197d3a0-…")
@command
async def show(id_: Id, region: RegionOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show one reservation, wherever it is."""
    async with region_servers(configuration(config), region, TIMEOUT_S) as servers:
        server, held = await _find(id_, servers)
    _show(server.region, held, json=json)


@app.command(
    context_settings=NEGATIVE_NUMBERS,
    epilog='Example: regionquota reservation commit 0197d3a0-… --actual 18 --reason "18 instances run"',
)
@command
async def commit(
    id_: Id,
    reason: ReasonOption,
    actual: Annotated[
        str | None, typer.Option(metavar="N", help=f"Units used, 1 to {MAX_AMOUNT}. Default: what was reserved.")
    ] = None,
    region: RegionOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Say that the work was done: what was held becomes usage."""
    body = {} if actual is None else {"actual_amount": _amount(actual)}
    await _settle("commit", id_, reason, region, config=configuration(config), body=body, json=json)


@app.command(epilog='Example: regionquota reservation release 0197d3a0-… --reason "nothing was created"')
@command
async def release(
    id_: Id, reason: ReasonOption, region: RegionOption = None, config: ConfigOption = None, json: JsonOption = False
) -> None:
    """Say that the work was not done: what was held is free again."""
    await _settle("release", id_, reason, region, config=configuration(config), body={}, json=json)


async def _settle(
    event: str, name: str, reason: str, region: str | None, *, config: Config, body: dict[str, Any], json: bool
) -> None:
    check_reason("--reason", reason)
    async with region_servers(config, region, TIMEOUT_S) as servers:
        server, _ = await _find(name, servers)
        path = f"/v1/reservations/{name}/{event}"
        held = expect(*await server.call("POST", path, body={**body, "reason": reason}))
    _show(server.region, held, json=json)


async def _find(name: str, servers: Sequence[RegionServer]) -> tuple[RegionServer, dict[str, Any]]:
    """The region that has it, and what it says. Raises `RegionQuotaError`: nobody who answers has it."""
    if bucket_of_id(name) is None:
        raise InvalidRequest("ID", f"ID must be a reservation id, such as a reserve answers, got {ascii(name)[:80]}")
    path = f"/v1/reservations/{name}"
    answers = await asyncio.gather(*(server.call("GET", path) for server in servers), return_exceptions=True)
    silent: list[BaseException] = []
    for server, answer in zip(servers, answers, strict=True):
        if isinstance(answer, BaseException):
            silent.append(answer)
        elif answer[0] != 404:
            return server, expect(*answer)
    if silent:
        raise silent[0]  # it may be there
    raise RegionQuotaError(f"no reservation {name} in {', '.join(server.region for server in servers)}")


def _amount(text: str) -> int:
    try:
        amount = int(text)
    except ValueError:
        amount = 0
    if not 1 <= amount <= MAX_AMOUNT:
        raise InvalidRequest("--actual", f"--actual must be an integer from 1 to {MAX_AMOUNT}, got {ascii(text)[:80]}")
    return amount


def _show_all(found: Sequence[Mapping[str, Any]], *, json: bool) -> None:
    if json:
        print_json(found)
        return
    now = datetime.now(UTC)
    print_table(
        ("reservation", "region", "tenant", "resource", "scope", "amount", "operation", "overdue"),
        (
            (
                one["reservation_id"],
                one["region"],
                one["tenant_id"],
                one["resource"],
                one["scope"],
                one["amount"],
                one["operation_id"],
                _age(now, str(one["expires_at"])),
            )
            for one in found
        ),
    )


def _age(now: datetime, since: str) -> str:
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _show(region: str, held: Mapping[str, Any], *, json: bool) -> None:
    if json:
        print_json({"region": region, **held})
        return
    rows: list[tuple[str, object]] = [("region", region)]
    rows += [(name, value) for name, value in held.items() if name not in ("reservation_id", "lines", "receipt")]
    for line in held.get("lines", ()):
        settled = "" if line["actual_amount"] is None else f", settled at {line['actual_amount']:,}"
        rows.append((f"line {line['tenant_id']}/{line['resource']}/{line['scope']}", f"{line['amount']:,}{settled}"))
    rows.append(("receipt", f"digest {held['receipt']['digest']}, generation {held['receipt']['generation']}"))
    print_table(("", str(held["reservation_id"])), rows)
