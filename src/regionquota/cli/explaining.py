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
from regionquota.coordinator.rounds import period_left, state_of
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand, needs_of
from regionquota.core.explaining import Explained, Explanation, explain, lasts, ruling_in_words
from regionquota.core.floors_and_caps import below_floor
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey, Region
from regionquota.core.region_rules import NO_RULES
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.http.decoding import write_time
from regionquota.ports import Frozen, RegionRecord

CALL_TIMEOUT_S: Final = 5.0
_WORDS: Mapping[str, str] = {
    "OVER_LIMIT": "{amount:,} did not fit into {available:,} of a slice of {slice:,}",
    "KEPT_FOR_HIGHER_PRIORITY": "{amount:,} asked for at {priority} priority; of the {available:,} available in a "
    "slice of {slice:,}, {kept:,} are kept for higher priority",
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
        records = {name: stored.record for name, stored in (await connected.directory.regions()).items()}
        words = [(region, word) for region, word in await connected.directory.demand() if word.key == key]
    found = next_plan(allocation, words, records, settings, time.time())
    denials = await _denials(settings, key)
    if json:
        print_json(_plain(key, revision, allocation, found, denials))
        return
    frozen = {name: record.frozen for name, record in records.items() if record.frozen is not None}
    _show(key, revision, allocation, found, frozen)
    for region, denial in denials.items():
        if denial is not None:
            said = denial_in_words(region, denial, allocation, is_frozen=region in frozen)
            out.print(said, highlight=False, markup=False)


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
        "pool_target": {"units": found.pool, "scatters": found.scatters, "why": pool_in_words(allocation, found)},
        "last_denials": dict(denials),
    }


def _show(
    key: QuotaKey, revision: int, allocation: Allocation, found: Explanation, frozen: Mapping[Region, Frozen]
) -> None:
    print_table(
        (
            "region",
            "slice",
            "in use",
            "per s",
            "denied per s",
            "expected per s",
            "lasts",
            "wants",
            "next size",
            "weight",
        ),
        (
            (
                one.region,
                one.slice,
                one.in_use,
                _number(one.rate),
                _denied(one),
                _number(one.expected or None),
                _time(one),
                one.wants,
                one.size,
                one.weight,
            )
            for one in found.regions
        ),
        f"{key}: {in_words(allocation)}, revision {revision}",
    )
    for one in found.regions:
        since = f" ({frozen_in_words(frozen[one.region])})" if one.region in frozen else ""
        said = "; ".join([f"{one.situation.value}{since}", *ruling_in_words(one)])
        out.print(f"{one.region}: {said}", highlight=False, markup=False)
    if not allocation.unlimited:
        out.print(pool_in_words(allocation, found), highlight=False, markup=False)
    steps = [f"grant {amount:,} to {region}" for region, amount in found.next.grants.items()]
    steps += [f"ask {move.source} for {move.amount:,} for {move.target or 'the pool'}" for move in found.next.moves]
    out.print(f"the next plan would {', '.join(steps) or 'change nothing'}", highlight=False, markup=False)


def in_words(allocation: Allocation) -> str:
    limit = "unlimited" if allocation.unlimited else f"limit {allocation.limit:,}"
    pool = allocation.pool
    rest = f"{pool:,} in the pool" if pool >= 0 else f"{-pool:,} above it still to be given back"
    retired = f", {allocation.retired_units:,} retired with evicted regions" if allocation.retired else ""
    policy = allocation.policy
    fills = (("normal", policy.normal_fill_percent), ("low", policy.low_fill_percent))
    kept = "".join(f", {name} priority may fill {percent} %" for name, percent in fills if percent < 100)
    return f"{limit}, {rest}{retired}{kept}"


def pool_in_words(allocation: Allocation, found: Explanation) -> str:
    """Of a limited quota."""
    share = f" ({found.pool / allocation.limit:.0%} of the limit)" if allocation.limit else ""
    why = (
        f"busy minutes ask {found.scatters:,.0f} beyond the mean"
        if found.scatters
        else "nothing is learnt of bursts yet"
    )
    return f"while the needs fit the pool is to hold {found.pool:,}{share}: {why}"


def frozen_in_words(frozen: Frozen) -> str:
    return f"by {frozen.by} since {write_time(frozen.since)}: {frozen.why}"


def denial_in_words(region: Region, denial: Mapping[str, Any], allocation: Allocation, *, is_frozen: bool) -> str:
    """`denial` as `last_denial` of the HTTP API; what is said of the limit and of the region is as of now."""
    words = _WORDS.get(denial["reason"], denial["reason"]).format(**denial)
    if denial["reason"] == "OVER_LIMIT":
        rules = allocation.policy.regions.get(region, NO_RULES)
        if rules.cap is not None and denial["slice"] >= rules.cap:
            words += f", which is all that its cap {rules.cap:,} lets it own"
        else:
            words += _elsewhere(region, denial, allocation, is_frozen=is_frozen)
    priority = denial.get("priority", "normal")  # a server of an older release says none
    asked = "" if priority == "normal" else f" a request of {priority} priority"
    return f"{region} last denied{asked} at {denial['at']}: {words}"


def _elsewhere(region: Region, denial: Mapping[str, Any], allocation: Allocation, *, is_frozen: bool) -> str:
    if denial["amount"] > allocation.limit and not allocation.unlimited:
        return f"; it is more than the whole limit {allocation.limit:,}, so no region can grant it"
    pool = denial["pool"]
    if pool is None:
        return ""
    if pool > 0 and is_frozen:
        return f", and the pool's {pool:,} are out of reach while the region is frozen"
    lacking = sorted(below_floor(allocation) - {region})
    kept = f", of which is kept what {', '.join(lacking)} still lacks of a floor" if pool > 0 and lacking else ""
    return f", and the pool held {max(0, pool):,}{kept}"


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3g}"


def _denied(one: Explained) -> str:
    """With what of it was asked for at another priority than normal."""
    named = ((one.denied_high, "high"), (one.denied_low, "low"))
    parts = ", ".join(f"{_number(rate)} {name}" for rate, name in named if rate)
    return f"{_number(one.denied)} ({parts})" if parts else _number(one.denied)


def _time(one: Explained) -> str:
    seconds = lasts(one)
    return "-" if seconds is None else f"{seconds:,.0f} s"
