"""regionquota explain: why each region has what it has of a quota, and why the last request was denied."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from regionquota.bootstrap.coordinator import policy_of
from regionquota.bootstrap.operator import operator
from regionquota.cli.frame import (
    ConfigOption,
    JsonOption,
    ScopeOption,
    command,
    configuration,
    out,
    print_json,
    print_table,
)
from regionquota.cli.region_servers import RegionServer, region_servers
from regionquota.config import Config
from regionquota.coordinator.rounds import state_of
from regionquota.core.allocation import Allocation
from regionquota.core.demand import needs
from regionquota.core.explaining import Explained, Explanation, explain, lasts
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey
from regionquota.errors import InvalidRequest, Unavailable

CALL_TIMEOUT_S: Final = 5.0
_WORDS: Mapping[str, str] = {
    "OVER_LIMIT": "{amount:,} did not fit into {available:,} of a slice of {slice:,}",
    "IN_DEBT": "the region owes what was used beyond its slice: nothing is admitted until that is paid back",
    "OVERDRAFT_EXCEEDED": "the region owes more than the policy allows",
    "MAX_SINGLE_RESERVATION": "{amount:,} is more than the policy allows at once",
    "ADMISSION_CLOSED": "the policy admits nothing (admission closed, or the quota suspended)",
}


@command
async def why(
    tenant: Annotated[str, typer.Argument(help="Whose quota.")],
    resource: Annotated[str, typer.Argument(help="Of what.")],
    scope: ScopeOption = GLOBAL_SCOPE,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Say why each region has what it has of a quota, what the next plan would do, and why the last denial happened."""
    settings = configuration(config)
    key = QuotaKey(tenant, resource, scope)
    async with operator(settings) as connected:
        revision, allocation = await connected.allocations.read(key)
        if allocation is None:
            raise InvalidRequest("resource", f"there is no quota {key}")
        records = await connected.directory.regions()
        words = [(region, word) for region, word in await connected.directory.demand() if word.key == key]
    states = {name: state_of(stored.record) for name, stored in records.items()}
    found = explain(allocation, needs(words).get(key, {}), states, policy_of(settings), settings.coordinator.interval_s)
    denials = await _denials(settings, key)
    if json:
        print_json(_plain(key, revision, allocation, found, denials))
        return
    _show(key, revision, allocation, found)
    _show_denials(denials)


async def _denials(settings: Config, key: QuotaKey) -> Mapping[str, Any]:
    """The last of each region's servers that answers; None for one that has denied nothing, or does not answer."""
    if not settings.deployment.regions:
        return {}
    async with region_servers(settings, None, CALL_TIMEOUT_S) as servers:
        found = await asyncio.gather(*(_denial(server, key) for server in servers))
    return dict(zip((server.region for server in servers), found, strict=True))


async def _denial(server: RegionServer, key: QuotaKey) -> Any:
    path = f"/v1/tenants/{quote(key.tenant, safe='')}/quotas"
    try:
        status, said = await server.call("GET", path, query={"resource": key.resource, "scope": key.scope})
    except Unavailable:
        return None
    quotas = said.get("quotas") if status == 200 else None
    return quotas[0].get("last_denial") if quotas else None


def _plain(
    key: QuotaKey, revision: int, allocation: Allocation, found: Explanation, denials: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "tenant_id": key.tenant,
        "resource": key.resource,
        "scope": key.scope,
        "revision": revision,
        "limit": None if allocation.unlimited else allocation.limit,
        "pool": allocation.pool,
        "retired": allocation.retired_units,
        "regions": [
            asdict(one) | {"situation": one.situation.name, "why": one.situation.value} for one in found.regions
        ],
        "next": {
            "grants": dict(found.next.grants),
            "moves": [{"from": move.source, "to": move.target, "amount": move.amount} for move in found.next.moves],
        },
        "last_denials": dict(denials),
    }


def _show(key: QuotaKey, revision: int, allocation: Allocation, found: Explanation) -> None:
    limit = "unlimited" if allocation.unlimited else f"limit {allocation.limit:,}"
    retired = f", {allocation.retired_units:,} retired with evicted regions" if allocation.retired else ""
    print_table(
        ("region", "slice", "in use", "per s", "denied per s", "lasts", "wants", "next size", "weight"),
        (
            (
                one.region,
                one.slice,
                one.in_use,
                _number(one.rate),
                _number(one.denied),
                _time(one),
                one.wants,
                one.size,
                one.weight,
            )
            for one in found.regions
        ),
        f"{key}: {limit}, {allocation.pool:,} in the pool{retired}, revision {revision}",
    )
    for one in found.regions:
        out.print(f"{one.region}: {one.situation.value}", highlight=False, markup=False)
    steps = [f"grant {amount:,} to {region}" for region, amount in found.next.grants.items()]
    steps += [f"ask {move.source} for {move.amount:,} for {move.target or 'the pool'}" for move in found.next.moves]
    out.print(f"the next plan would {', '.join(steps) or 'change nothing'}", highlight=False, markup=False)


def _show_denials(denials: Mapping[str, Any]) -> None:
    for region, denial in denials.items():
        if denial is None:
            continue
        words = _WORDS.get(denial["reason"], denial["reason"]).format(**denial)
        pool = denial["pool"]
        elsewhere = "" if pool is None or denial["reason"] != "OVER_LIMIT" else f", and the pool held {max(0, pool):,}"
        out.print(f"{region} last denied at {denial['at']}: {words}{elsewhere}", highlight=False, markup=False)


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3g}"


def _time(one: Explained) -> str:
    seconds = lasts(one)
    return "-" if seconds is None else f"{seconds:,.0f} s"
