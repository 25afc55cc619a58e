"""The commands of `regionquota quota`."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from regionquota.bootstrap.operator import operator
from regionquota.cli import policies
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
    quota_key,
    unknown_quota,
    warn,
)
from regionquota.core.allocation import UNLIMITED, Allocation, LimitSource, VersionedLimit
from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT, QuotaKey
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http import answers
from regionquota.http.decoding import check_identifier
from regionquota.http.quota_api import limit_word
from regionquota.limits import LimitWord, put_limits, refuse_unknown_regions, remove_quota, warnings_of
from regionquota.ports import AllocationStore, Stored

app = typer.Typer(no_args_is_help=True, help="Set and look at limits and policies.")

Tenant = Annotated[str, typer.Argument(help="Tenant id.")]
Resource = Annotated[str, typer.Argument(help="Resource name, such as vcpu.")]


@app.command(
    "set",
    context_settings=NEGATIVE_NUMBERS,
    epilog="Examples: regionquota quota set acme vcpu 500 · "
    "regionquota quota set acme calls 1000 --kind rate --refill 100/60s · "
    "regionquota quota set acme mails 5000 --kind consumable --period day --time-zone Europe/Berlin · "
    "regionquota quota set acme vcpu --enforcement soft · "
    "regionquota quota set acme vcpu --region-weight eu=300 --region-floor eu=50 --region-cap us=200 · "
    "regionquota quota set acme vcpu --region-cap us=none · "
    "regionquota quota set acme tokens --low-fill 80",
)
@command
async def set_(
    tenant: Tenant,
    resource: Resource,
    limit: Annotated[
        str | None,
        typer.Argument(
            help=f"0 to {MAX_AMOUNT}, unlimited, or none to take an override back. Left out: as it is, to change the "
            "policy only."
        ),
    ] = None,
    scope: ScopeOption = GLOBAL_SCOPE,
    kind: policies.KindOption = None,
    refill: policies.RefillOption = None,
    period: policies.PeriodOption = None,
    time_zone: policies.ZoneOption = None,
    enforcement: policies.EnforcementOption = None,
    enforced_percent: policies.PercentOption = None,
    admission: policies.AdmissionOption = None,
    max_single: policies.SingleOption = None,
    min_ttl: policies.MinTtlOption = None,
    max_ttl: policies.MaxTtlOption = None,
    max_overdraft: policies.OverdraftOption = None,
    parent: policies.ParentOption = None,
    guarantee: policies.GuaranteeOption = None,
    region_weight: policies.RegionWeightOption = None,
    region_floor: policies.RegionFloorOption = None,
    region_cap: policies.RegionCapOption = None,
    normal_fill: policies.NormalFillOption = None,
    low_fill: policies.LowFillOption = None,
    override: Annotated[bool, typer.Option("--override", help="Set the override, not the plan.")] = False,
    version: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_AMOUNT, help="An older version never replaces a newer one. Default: the next."),
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Set a limit over all regions, and the rules that go with it; what is left out stays as it is.

    It holds at once for what is free; what is in use is collected as it falls.
    """
    fields: dict[str, Any] = {
        **policies.given(
            limit=limit,
            enforced_percent=enforced_percent,
            max_single_amount=max_single,
            min_ttl_s=min_ttl,
            max_ttl_s=max_ttl,
            max_overdraft=max_overdraft,
            guarantee=guarantee,
            normal_fill_percent=normal_fill,
            low_fill_percent=low_fill,
        ),
        **policies.refill_of(refill),
        **policies.rules_of(weight=region_weight, floor=region_floor, cap=region_cap),
        **{
            name: value
            for name, value in (
                ("kind", kind),
                ("period", period),
                ("time_zone", time_zone),
                ("enforcement", enforcement),
                ("parent", parent),
                ("version", version),
            )
            if value is not None
        },
    }
    if admission is not None:
        fields["admission_open"] = admission is policies.Admission.OPEN
    source = LimitSource.OVERRIDE if override else LimitSource.PLAN
    stored = await _set(quota_key(tenant, resource, scope), source, fields, config)
    show_set(stored, source, json=json)


@app.command(
    epilog="Example: regionquota quota suspend acme vcpu · regionquota quota suspend acme vcpu --undo",
)
@command
async def suspend(
    tenant: Tenant,
    resource: Resource,
    scope: ScopeOption = GLOBAL_SCOPE,
    undo: Annotated[bool, typer.Option("--undo", help="Admit again.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Admit nothing new to one quota; what is held is still settled. The same as quota set … --admission closed."""
    key = quota_key(tenant, resource, scope)
    stored = await _set(key, None, {"admission_open": undo}, config)
    show_set(stored, LimitSource.PLAN, json=json)


@app.command(
    "set-many",
    epilog="Example: regionquota quota set-many limits.toml, which holds tables \\[\\[limits]]: "
    'tenant_id = "acme", resource = "vcpu", limit = 500, …',
)
@command
async def set_many(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml|json", help="limits: a list; fields as in the HTTP API.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Set several limits, of any tenants, all or none."""
    limits = policies.read_limits(file)
    keys = [_file_word(file, limit, 1, place).key for place, limit in enumerate(limits)]
    repeated = [key for key in keys if keys.count(key) > 1]
    if repeated:
        raise InvalidRequest("limits", f"{file}: limits must name each quota once, got {repeated[0]} again")
    async with operator(configuration(config)) as connected:
        versions = [await _version(connected.allocations, limit) for limit in limits]
        words = [_file_word(file, limit, versions[place], place) for place, limit in enumerate(limits)]
        try:
            await refuse_unknown_regions(connected.directory, words)
        except InvalidRequest as error:
            raise InvalidRequest(error.field, f"{file}: {error}") from None
        done = await put_limits(connected.allocations, words)
    found = [Stored(key, revision, allocation) for key, (revision, allocation) in zip(keys, done, strict=True)]
    if json:
        print_json([_describe_set(stored) for stored in found])
        return
    for word, stored in zip(words, found, strict=True):
        show_set(stored, word.source, json=False)


@app.command(epilog="Example: regionquota quota remove acme vcpu")
@command
async def remove(
    tenant: Tenant,
    resource: Resource,
    scope: ScopeOption = GLOBAL_SCOPE,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """End a quota that no region owns a part of any more: set the limit 0 first, and let what is used come back."""
    key = quota_key(tenant, resource, scope)
    async with operator(configuration(config)) as connected:
        try:
            removed = await remove_quota(connected.allocations, key)
        except InvalidRequest as error:
            raise RegionQuotaError(str(error)) from None  # nothing is wrong with what was asked
    if not removed:
        raise unknown_quota(key)
    if json:
        print_json({"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope, "removed": True})
    else:
        out.print(f"{key}: removed", highlight=False, soft_wrap=True)


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
    key = quota_key(tenant, resource, scope)
    async with operator(configuration(config)) as connected:
        revision, allocation = await connected.allocations.read(key)
    if allocation is None:
        raise unknown_quota(key)
    if json:
        print_json(_describe(Stored(key, revision, allocation)))
        return
    rows: list[tuple[str, object]] = [
        ("kind", allocation.kind.value),
        ("limit", _limit(allocation)),
        ("plan", _word(allocation.plan)),
        ("override", _word(allocation.override)),
        *policies.in_words(allocation),
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
    if tenant is not None:
        check_identifier("tenant", tenant)
    async with operator(configuration(config)) as connected:
        _, documents = await connected.allocations.list()
    found = [stored for stored in documents if stored.allocation is not None and tenant in (None, stored.key.tenant)]
    if json:
        print_json([_describe(stored) for stored in found])
        return
    regions = sorted({region for stored in found for region in _allocation(stored).slices})
    print_table(
        ("tenant", "resource", "scope", "kind", "limit", "policy", "pool", *regions),
        (
            (
                stored.key.tenant,
                stored.key.resource,
                stored.key.scope,
                _allocation(stored).kind.value,
                _limit(_allocation(stored)),
                _policy(_allocation(stored)),
                _allocation(stored).pool,
                *(_allocation(stored).slices.get(region) for region in regions),
            )
            for stored in found
        ),
        prose=["policy"],
    )


async def _set(key: QuotaKey, source: LimitSource | None, fields: dict[str, Any], config: Path | None) -> Stored:
    """`source` None: whichever there is of a quota that must exist."""
    policies.check(fields if source is None else {**fields, "source": source.value})
    async with operator(configuration(config)) as connected:
        _, known = await connected.allocations.read(key)
        if known is None and (source is None or fields.get("limit", ...) is None):
            raise unknown_quota(key)
        if source is None:
            source = LimitSource.OVERRIDE if known is not None and known.plan is None else LimitSource.PLAN
        body = policies.complete({**fields, "scope": key.scope, "source": source.value}, known, source)
        word = policies.word_for(key.tenant, key.resource, body)
        try:
            await refuse_unknown_regions(connected.directory, [word])
            [(revision, allocation)] = await put_limits(connected.allocations, [word])
        except InvalidRequest as error:
            raise policies.as_option(error) from None
    return Stored(key, revision, allocation)


def show_set(stored: Stored, source: LimitSource, *, json: bool) -> None:
    if json:
        print_json(_describe_set(stored))
        return
    allocation = _allocation(stored)
    said = policies.word_of(allocation, source)
    limit = "unlimited" if allocation.unlimited else f"{allocation.limit:,}"
    collecting = max(0, -allocation.pool)
    state = f"{collecting:,} units are still being collected" if collecting else "in force"
    version = "" if said is None else f" ({source} version {said.version})"
    out.print(
        f"{stored.key}: limit {limit}{version}, policy {_policy(allocation)}, {state}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    for warning in warnings_of(allocation):
        warn(f"{stored.key}: {warning}")


def _file_word(file: Path, limit: policies.NamedLimit, version: int, place: int) -> LimitWord:
    """Raises `InvalidRequest` that names the place in the file."""
    try:
        return limit_word(limit.tenant_id, limit.resource, msgspec.structs.replace(limit, version=version))
    except InvalidRequest as error:
        raise InvalidRequest(error.field, f"{file}: limits[{place}].{error}") from None


async def _version(allocations: AllocationStore, limit: policies.NamedLimit) -> int:
    """The one that the file says, else the next."""
    if limit.version is not None:
        return limit.version
    _, known = await allocations.read(QuotaKey(limit.tenant_id, limit.resource, limit.scope))
    word = policies.word_of(known, LimitSource(limit.source))
    return 1 if word is None else word.version + 1


def _allocation(stored: Stored) -> Allocation:
    assert stored.allocation is not None
    return stored.allocation


def _word(limit: VersionedLimit | None) -> str:
    if limit is None or limit.amount is None:
        return "-"
    amount = "unlimited" if limit.amount is UNLIMITED else f"{limit.amount:,}"
    return f"{amount} (version {limit.version})"


def _limit(allocation: Allocation) -> int | str:
    return "unlimited" if allocation.unlimited else allocation.limit


def _policy(allocation: Allocation) -> str:
    """In one cell: the generation, and what is not the default."""
    (_, generation), *others = policies.in_words(allocation)
    return ", ".join([f"no. {generation}", *(f"{name} {value}" for name, value in others)])


def _describe_set(stored: Stored) -> dict[str, Any]:
    return _describe(stored) | {"warnings": warnings_of(_allocation(stored))}


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
        "policy": answers.policy(allocation.kind, allocation.policy),
        **(answers.whole(stored) or {}),
    }
