"""The commands of `regionquota quota`."""

from typing import Annotated, Any

import typer

from regionquota.bootstrap.operator import operator
from regionquota.cli.frame import (
    NEGATIVE_NUMBERS,
    ConfigOption,
    JsonOption,
    ScopeOption,
    command,
    configuration,
    out,
    print_json,
    print_table,
)
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit
from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT, Kind, QuotaKey
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http.answers import whole
from regionquota.http.decoding import check_identifier
from regionquota.limits import put_limit
from regionquota.ports import AllocationStore, Stored

app = typer.Typer(no_args_is_help=True, help="Set and look at limits.")

Tenant = Annotated[str, typer.Argument(help="Tenant id.")]
Resource = Annotated[str, typer.Argument(help="Resource name, such as vcpu.")]


@app.command("set", context_settings=NEGATIVE_NUMBERS, epilog="Example: regionquota quota set acme vcpu 500")
@command
async def set_(
    tenant: Tenant,
    resource: Resource,
    limit: Annotated[str, typer.Argument(help=f"0 to {MAX_AMOUNT}, or none to take an override back.")],
    scope: ScopeOption = GLOBAL_SCOPE,
    kind: Annotated[Kind | None, typer.Option(help="Of a new quota; allocated if left out.")] = None,
    override: Annotated[bool, typer.Option("--override", help="Set the override, not the plan.")] = False,
    version: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_AMOUNT, help="An older version never replaces a newer one. Default: the next."),
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Set a limit over all regions. It holds at once for what is free; what is in use is collected as it falls."""
    key = _key(tenant, resource, scope)
    source = LimitSource.OVERRIDE if override else LimitSource.PLAN
    amount = _amount(limit, source)
    async with operator(configuration(config)) as connected:
        chosen = version or await _next_version(connected.allocations, key, source)
        revision, allocation = await put_limit(connected.allocations, key, kind, source, VersionedLimit(amount, chosen))
    if json:
        print_json(_describe(Stored(key, revision, allocation)))
        return
    collecting = max(0, -allocation.pool)
    state = f"{collecting:,} units are still being collected" if collecting else "in force"
    out.print(f"{key}: limit {allocation.limit:,} ({source} version {chosen}), {state}", highlight=False)


@app.command(epilog="Example: regionquota quota get acme vcpu --json")
@command
async def get(
    tenant: Tenant,
    resource: Resource,
    scope: ScopeOption = GLOBAL_SCOPE,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show one quota: its limit, its pool, who owns how much, and what is to be moved."""
    key = _key(tenant, resource, scope)
    async with operator(configuration(config)) as connected:
        revision, allocation = await connected.allocations.read(key)
    if allocation is None:
        raise RegionQuotaError(f"unknown quota {key}: set one with regionquota quota set {tenant} {resource} LIMIT")
    if json:
        print_json(_describe(Stored(key, revision, allocation)))
        return
    rows: list[tuple[str, object]] = [
        ("kind", allocation.kind.value),
        ("limit", allocation.limit),
        ("plan", _word(allocation.plan)),
        ("override", _word(allocation.override)),
        ("pool", allocation.pool),
        *((f"slice of {region}", size) for region, size in sorted(allocation.slices.items())),
        *(
            (f"move {move.id}", f"{move.amount:,} {move.source} -> {move.target or 'pool'}")
            for move in allocation.moves
        ),
        ("revision", revision),
    ]
    print_table(("", str(key)), rows)


@app.command("list", epilog="Example: regionquota quota list --tenant acme")
@command
async def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List quotas with their limits and slices."""
    async with operator(configuration(config)) as connected:
        _, documents = await connected.allocations.list()
    found = [stored for stored in documents if stored.allocation is not None and tenant in (None, stored.key.tenant)]
    if json:
        print_json([_describe(stored) for stored in found])
        return
    regions = sorted({region for stored in found for region in _allocation(stored).slices})
    print_table(
        ("tenant", "resource", "scope", "kind", "limit", "pool", *regions),
        (
            (
                stored.key.tenant,
                stored.key.resource,
                stored.key.scope,
                _allocation(stored).kind.value,
                _allocation(stored).limit,
                _allocation(stored).pool,
                *(_allocation(stored).slices.get(region) for region in regions),
            )
            for stored in found
        ),
    )


def _key(tenant: str, resource: str, scope: str) -> QuotaKey:
    named = (("tenant", tenant), ("resource", resource), ("scope", scope))
    return QuotaKey(*(check_identifier(field, value) for field, value in named))


def _amount(text: str, source: LimitSource) -> int | None:
    if text == "none" and source is LimitSource.OVERRIDE:
        return None
    try:
        amount = int(text.replace("_", ""))
    except ValueError:
        amount = -1
    if not 0 <= amount <= MAX_AMOUNT:
        more = ", or none" if source is LimitSource.OVERRIDE else ""
        raise InvalidRequest("limit", f"limit must be an integer from 0 to {MAX_AMOUNT}{more}, got {text!r}")
    return amount


async def _next_version(allocations: AllocationStore, key: QuotaKey, source: LimitSource) -> int:
    _, allocation = await allocations.read(key)
    if allocation is None:
        return 1
    known = allocation.plan if source is LimitSource.PLAN else allocation.override
    return 1 if known is None else known.version + 1


def _allocation(stored: Stored) -> Allocation:
    assert stored.allocation is not None
    return stored.allocation


def _word(limit: VersionedLimit | None) -> str:
    if limit is None or limit.amount is None:
        return "-"
    return f"{limit.amount:,} (version {limit.version})"


def _describe(stored: Stored) -> dict[str, Any]:
    allocation = _allocation(stored)
    key = stored.key
    return {
        "tenant_id": key.tenant,
        "resource": key.resource,
        "scope": key.scope,
        "kind": allocation.kind.value,
        "plan": allocation.plan,
        "override": allocation.override,
        "epoch": allocation.epoch,
        **(whole(stored) or {}),
    }
