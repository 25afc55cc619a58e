"""What `regionquota simulate --from-live` asks a running deployment."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from regionquota.bootstrap.operator import operator
from regionquota.cli.frame import err
from regionquota.cli.region_servers import RegionServer, expect
from regionquota.config import Config
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import InvalidRequest
from regionquota.simulator.live import Live

LOOKS: Final = 4
"""At the regions' reports, one report interval apart."""
CALL_TIMEOUT_S: Final = 5.0
_SHORTEST_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """`tenant` and `resource` None: the quota that is asked for most."""

    url: str
    tenant: str | None
    resource: str | None
    scope: str


@dataclass(frozen=True, slots=True)
class _Seen:
    weights: Mapping[Region, int]
    rates: Mapping[QuotaKey, Mapping[Region, float]]
    seconds: float


_FILLS: Final = ("normal_fill_percent", "low_fill_percent")


async def look(config: Config, wanted: Wanted) -> Live:
    """Limits, slices and usage from the region's server, demand from what the regions report to etcd.

    Raises `InvalidRequest`, `Unavailable`.
    """
    server = wanted.url.rstrip("/")
    if wanted.tenant is not None and wanted.resource is not None:
        key = QuotaKey(wanted.tenant, wanted.resource, wanted.scope)
        said = await _quota(server, key)  # before anybody waits for what is to be seen of it
        seen = await _watch(config)
    else:
        seen = await _watch(config)
        key = _busiest(wanted, seen)
        said = await _quota(server, key)
    whole = said["global"] or {}
    return Live(
        name=str(key),
        period=said["policy"]["period"],
        limit=said["limit"],
        slices=whole.get("slices", {}),
        weights=seen.weights,
        rates=seen.rates.get(key, {}),
        watched_s=seen.seconds,
        rules=said["policy"].get("regions", {}),
        fills={name: said["policy"][name] for name in _FILLS if name in said["policy"]},
    )


async def _watch(config: Config) -> _Seen:
    interval_s = config.agent.report_interval_s
    sums: dict[QuotaKey, dict[Region, float]] = {}
    async with operator(config) as connected:
        records = await connected.directory.regions()
        for number in range(LOOKS):
            if number:
                err.print(f"watching demand, {(LOOKS - number) * interval_s:.0f} s more", highlight=False)
                await asyncio.sleep(interval_s)
            for region, word in await connected.directory.demand():
                rates = sums.setdefault(word.key, {})
                asked = (word.granted + word.denied) / max(word.seconds, _SHORTEST_S)
                rates[region] = rates.get(region, 0.0) + asked / LOOKS
    weights = {name: stored.record.weight for name, stored in records.items()}
    return _Seen(weights, sums, LOOKS * interval_s)


def _busiest(wanted: Wanted, seen: _Seen) -> QuotaKey:
    """Of those that may be meant."""
    found = [
        key
        for key in seen.rates
        if key.scope == wanted.scope and wanted.tenant in {None, key.tenant} and wanted.resource in {None, key.resource}
    ]
    if not found:
        raise InvalidRequest("tenant", "no region reports any demand now: say which quota with --tenant and --resource")
    return min(found, key=lambda key: (-sum(seen.rates[key].values()), key))


async def _quota(url: str, key: QuotaKey) -> dict[str, Any]:
    path = f"/v1/tenants/{quote(key.tenant, safe='')}/quotas"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)) as http:
        server = RegionServer("the region's server", url, http)
        said = expect(*await server.call("GET", path, query={"resource": key.resource, "scope": key.scope}))
    if not said["quotas"]:
        raise InvalidRequest("tenant", f"{url} knows no quota {key}")
    found: dict[str, Any] = said["quotas"][0]
    if found["kind"] != Kind.CONSUMABLE or found["limit"] is None:
        raise InvalidRequest("resource", f"{key} is {found['kind']}: only consumable quotas with a limit are simulated")
    return found
