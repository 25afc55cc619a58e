"""The commands of `regionquota tenant`."""

import time
from typing import Annotated, Any

import msgspec
import typer

from regionquota.bootstrap.operator import operator
from regionquota.cli.frame import ConfigOption, JsonOption, command, configuration, out, print_json, print_table
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http.bodies import Reason
from regionquota.http.decoding import check_identifier, describe, write_time
from regionquota.ports import Suspension

app = typer.Typer(no_args_is_help=True, help="Suspend and resume tenants.")

Tenant = Annotated[str, typer.Argument(help="Tenant id.")]


@app.command(epilog='Example: regionquota tenant suspend acme --why "unpaid since May"')
@command
async def suspend(
    tenant: Tenant,
    why: Annotated[str, typer.Option(help="Callers are told. A later word replaces it.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Let a tenant reserve nothing more, in any region, within [agent] report_interval_s.

    What it holds is settled, released and extended as before; what it uses can be adjusted. Where etcd does not answer,
    what was last heard of it holds.
    """
    check_identifier("tenant", tenant)
    check_reason("--why", why)
    suspension = Suspension(tenant, round(time.time(), 3), why)
    async with operator(configuration(config)) as connected:
        await connected.directory.suspend(tenant, suspension.since, why)
    if json:
        print_json(_describe(suspension))
    else:
        out.print(f"{tenant}: suspended ({why})", highlight=False, soft_wrap=True)


@app.command(epilog="Example: regionquota tenant resume acme")
@command
async def resume(tenant: Tenant, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Take a suspension back."""
    check_identifier("tenant", tenant)
    async with operator(configuration(config)) as connected:
        resumed = await connected.directory.resume(tenant)
    if not resumed:
        raise RegionQuotaError(f"tenant {tenant} is not suspended: regionquota tenant list shows who is")
    if json:
        print_json({"tenant_id": tenant, "suspended": False})
    else:
        out.print(f"{tenant}: resumed", highlight=False, soft_wrap=True)


@app.command("list", epilog="Example: regionquota tenant list --json")
@command
async def list_(config: ConfigOption = None, json: JsonOption = False) -> None:
    """List suspended tenants: since when, and why."""
    async with operator(configuration(config)) as connected:
        found = [one for _, one in sorted((await connected.directory.suspensions()).items())]
    if json:
        print_json([_describe(one) for one in found])
    else:
        print_table(
            ("tenant", "suspended since", "why"),
            ((one.tenant, write_time(one.since), one.why) for one in found),
            prose=["why"],
        )


def check_reason(option: str, text: str) -> None:
    """Raises `InvalidRequest` that names the option."""
    try:
        msgspec.convert(text.encode(errors="surrogateescape").decode(), Reason)
    except (msgspec.ValidationError, UnicodeDecodeError):
        raise InvalidRequest(option, f"{option} must be {describe(Reason)}, got {ascii(text)[:80]}") from None


def _describe(one: Suspension) -> dict[str, Any]:
    return {"tenant_id": one.tenant, "suspended": True, "since": write_time(one.since), "why": one.why}
