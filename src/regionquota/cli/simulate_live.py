"""What `regionquota simulate --from-live` asks a running deployment."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from regionquota.bootstrap.operator import Operator, operator
from regionquota.cli.frame import err, quota_key
from regionquota.cli.region_servers import RegionServer, expect
from regionquota.config import Config
from regionquota.core.allocation import Allocation
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import InvalidRequest, RegionQuotaError, UnreadableDocument
from regionquota.ports import AllocationStore
from regionquota.simulator.live import PERIODS_S, Live

LOOKS: Final = 4
"""At the regions' reports, one report interval apart."""
CALL_TIMEOUT_S: Final = 5.0
MOST_LOOKED_AT: Final = 100
"""Of the busiest quotas, for one that can be simulated."""
SHOWN_BUSIER: Final = 3
_SHORTEST_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """`tenant` or `resource` None: the quota that is asked for most of those that can be simulated."""

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

    Raises `InvalidRequest`, `RegionQuotaError` where there is no such quota, `Unavailable`.
    """
    server = wanted.url.rstrip("/")
    named = quota_key(wanted.tenant or "any", wanted.resource or "any", wanted.scope)
    if wanted.tenant is not None and wanted.resource is not None:
        key, chosen = named, []
        said = await _quota(server, key)  # before anybody waits for what is to be seen of it
        async with operator(config) as connected:
            seen = await _watch(config, connected)
    else:
        async with operator(config) as connected:
            seen = await _watch(config, connected)
            choice = await choose(wanted, seen.rates, connected.allocations)
        key, chosen = choice.key, [choice.in_words()]
        err.print(chosen[0], highlight=False, soft_wrap=True)
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
        notes=chosen,
    )


async def _watch(config: Config, connected: Operator) -> _Seen:
    interval_s = config.agent.report_interval_s
    sums: dict[QuotaKey, dict[Region, float]] = {}
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


@dataclass(frozen=True, slots=True)
class Choice:
    """`busier` are quotas that are asked for more and cannot be simulated, and why."""

    key: QuotaKey
    busier: Sequence[str]

    def in_words(self) -> str:
        passed = f" (busier, but not to be simulated: {_some(self.busier)})" if self.busier else ""
        return f"{self.key} is the busiest that can be simulated{passed}; --tenant and --resource choose another"


async def choose(
    wanted: Wanted, rates: Mapping[QuotaKey, Mapping[Region, float]], allocations: AllocationStore
) -> Choice:
    """The busiest of those that may be meant and can be simulated. Raises `InvalidRequest`, `EtcdUnavailable`."""
    meant = [
        key
        for key, asked in rates.items()
        if any(asked.values())
        and key.scope == wanted.scope
        and wanted.tenant in {None, key.tenant}
        and wanted.resource in {None, key.resource}
    ]
    if not meant:
        raise InvalidRequest("tenant", "no region reports any demand now: say which quota with --tenant and --resource")
    busiest = sorted(meant, key=lambda key: (-sum(rates[key].values()), key))[:MOST_LOOKED_AT]
    busier: list[str] = []
    for key in busiest:
        try:
            _, allocation = await allocations.read(key)
        except UnreadableDocument:
            busier.append(f"{key} cannot be read")
            continue
        why_not = "removed by now" if allocation is None else _why_not(allocation)
        if why_not is None:
            return Choice(key, busier)
        busier.append(f"{key} is {why_not}")
    raise InvalidRequest(
        "resource",
        f"none of the {len(busiest)} busiest quotas can be simulated ({_some(busier)}): it takes "
        "a consumable one with a limit, counted per minute, hour or day",
    )


def _why_not(allocation: Allocation) -> str | None:
    if allocation.kind is not Kind.CONSUMABLE:
        return str(allocation.kind.value)
    if allocation.unlimited:
        return "unlimited"
    period = allocation.policy.calendar.period.value
    return None if period in PERIODS_S else f"counted per {period}"


def _some(busier: Sequence[str]) -> str:
    more = f" and {len(busier) - SHOWN_BUSIER} more" if len(busier) > SHOWN_BUSIER else ""
    return ", ".join(busier[:SHOWN_BUSIER]) + more


async def _quota(url: str, key: QuotaKey) -> dict[str, Any]:
    path = f"/v1/tenants/{quote(key.tenant, safe='')}/quotas"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)) as http:
        server = RegionServer("the region's server", url, http)
        said = expect(*await server.call("GET", path, query={"resource": key.resource, "scope": key.scope}))
    if not said["quotas"]:
        raise RegionQuotaError(f"{url} knows no quota {key}: regionquota quota list shows what there is")
    found: dict[str, Any] = said["quotas"][0]
    if found["kind"] != Kind.CONSUMABLE or found["limit"] is None:
        raise InvalidRequest("resource", f"{key} is {found['kind']}: only consumable quotas with a limit are simulated")
    return found
