"""regionquota explain: why each region has what it has of a quota, and why the last request was denied."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from regionquota.bootstrap.coordinator import policy_of
from regionquota.bootstrap.operator import operator
from regionquota.cli.explained import pool_in_words, show
from regionquota.cli.frame import (
    ConfigOption,
    JsonOption,
    ScopeOption,
    command,
    configuration,
    print_json,
    quota_key,
    unknown_quota,
)
from regionquota.cli.region_servers import RegionServer, region_servers
from regionquota.config import Config
from regionquota.coordinator.rounds import period_left, state_of
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand, needs_of
from regionquota.core.explaining import Explanation, explain, lasts
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey, Region
from regionquota.errors import Unavailable
from regionquota.http.decoding import write_time
from regionquota.ports import RegionRecord, Suspension

CALL_TIMEOUT_S: Final = 5.0


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
    key = quota_key(tenant, resource, scope)
    async with operator(settings) as connected:
        revision, allocation = await connected.allocations.read(key)
        if allocation is None:
            raise unknown_quota(key)
        records = {name: stored.record for name, stored in (await connected.directory.regions()).items()}
        words = [(region, word) for region, word in await connected.directory.demand() if word.key == key]
        suspension = (await connected.directory.suspensions()).get(tenant)
    now = time.time()
    found = next_plan(allocation, words, records, settings, now)
    denials = await _denials(settings, key)
    if json:
        heard = dict.fromkeys(settings.deployment.regions) | denials
        print_json(_plain(key, revision, allocation, found, heard, suspension))
        return
    frozen = {name: record.frozen for name, record in records.items() if record.frozen is not None}
    show(key, revision, allocation, found, frozen, denials, suspension, now)


def next_plan(
    allocation: Allocation,
    words: Sequence[tuple[Region, Demand]],
    records: Mapping[Region, RegionRecord],
    settings: Config,
    now: float,
) -> Explanation:
    """`words` speak of this one quota; `now` is in seconds since 1970."""
    states = {name: state_of(record) for name, record in records.items()}
    round_s, period_s = settings.coordinator.interval_s, period_left(allocation, now)
    return explain(allocation, needs_of(words, now), states, policy_of(settings), round_s, period_s)


async def _denials(settings: Config, key: QuotaKey) -> dict[str, Any]:
    """The last of each region's server, None for one that has denied nothing; without those that do not answer."""
    if not settings.deployment.regions:
        return {}
    async with region_servers(settings, None, CALL_TIMEOUT_S) as servers:
        found = await asyncio.gather(*(_denial(server, key) for server in servers))
    return {server.region: told[0] for server, told in zip(servers, found, strict=True) if told}


async def _denial(server: RegionServer, key: QuotaKey) -> Sequence[Any]:
    """One, or none if it does not answer."""
    path = f"/v1/tenants/{quote(key.tenant, safe='')}/quotas"
    try:
        status, said = await server.call("GET", path, query={"resource": key.resource, "scope": key.scope})
    except Unavailable:
        return ()
    quotas = said.get("quotas") if status == 200 else None
    return [quotas[0].get("last_denial") if quotas else None]


def _plain(
    key: QuotaKey,
    revision: int,
    allocation: Allocation,
    found: Explanation,
    denials: Mapping[str, Any],
    suspension: Suspension | None,
) -> dict[str, Any]:
    return {
        "tenant_id": key.tenant,
        "resource": key.resource,
        "scope": key.scope,
        "revision": revision,
        "limit": None if allocation.unlimited else allocation.limit,
        "pool": allocation.pool,
        "retired": allocation.retired_units,
        "suspended": None if suspension is None else {"since": write_time(suspension.since), "why": suspension.why},
        "regions": [
            asdict(one) | {"situation": one.situation.name, "why": one.situation.value, "lasts": lasts(one)}
            for one in found.regions
        ],
        "next": {
            "grants": dict(found.next.grants),
            "moves": [{"from": move.source, "to": move.target, "amount": move.amount} for move in found.next.moves],
        },
        "pool_target": {"units": found.pool, "scatters": found.scatters, "why": pool_in_words(allocation, found)},
        "last_denials": denials,
        "left_alone": list(found.left_alone),
        "smallest_moves": {"to_lacking": found.smallest, "idle": found.idle},
    }
