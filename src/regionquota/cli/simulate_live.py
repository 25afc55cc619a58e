"""What `regionquota simulate --from-live` asks a running deployment."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from regionquota.bootstrap.operator import Operator, operator
from regionquota.cli.frame import err, quota_key
from regionquota.cli.region_servers import RegionServer, expect
from regionquota.config import Config
from regionquota.core.allocation import Allocation
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey, Region
from regionquota.errors import EtcdUnavailable, InvalidRequest, RegionQuotaError, Unavailable, UnreadableDocument
from regionquota.ports import AllocationStore
from regionquota.simulator.live import PERIODS_S, Live

LOOKS: Final = 4
"""At the regions' reports, one report interval apart."""
CALL_TIMEOUT_S: Final = 5.0
MOST_LOOKED_AT: Final = 100
"""Of the busiest quotas, for one that can be simulated."""
SHOWN_BUSIER: Final = 3
_URL: Final = re.compile(r"https?://[^\s/]\S*")
_SHORTEST_S: Final = 0.1
BY_HAND: Final = "in units per second of each region, as in --set demand.rates.eu=2.5"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`tenant` or `resource` None: the quota that is asked for most of those that can be simulated."""

    url: str
    tenant: str | None
    resource: str | None
    scope: str


_FILLS: Final = ("normal_fill_percent", "low_fill_percent")


async def look(config: Config, wanted: Wanted, check: Callable[[Live], object]) -> Live:
    """Limits, slices and usage from the region's server, demand from what the regions report to etcd.

    `check` refuses what cannot be played; it is called with what is known before demand is watched. Where no quota is
    named that is one without a limit to speak of. Raises `InvalidRequest`, `RegionQuotaError` where there is no such
    quota, `Unavailable`.
    """
    server = _url(wanted.url)
    named = quota_key(wanted.tenant or "any", wanted.resource or "any", wanted.scope)
    key = None if wanted.tenant is None or wanted.resource is None else named
    said = await _reach(server, wanted) if key is None else await _quota(server, key)
    async with operator(config) as connected:
        weights = await _weights(connected)
        check(_any(weights) if key is None else _live(key, said, weights))
        rates = await _watch(config, connected)
        chosen = []
        if key is None:
            choice = await choose(wanted, rates, connected.allocations)
            key, chosen = choice.key, [choice.in_words()]
            err.print(chosen[0], highlight=False, soft_wrap=True)
            said = await _quota(server, key)
    seen = _live(key, said, weights)
    return replace(seen, rates=rates.get(key, {}), watched_s=LOOKS * config.agent.report_interval_s, notes=chosen)


async def _weights(connected: Operator) -> Mapping[Region, int]:
    try:
        return {name: one.record.weight for name, one in (await connected.directory.regions()).items()}
    except EtcdUnavailable as error:
        raise EtcdUnavailable(f"{error}: --config names the deployment's configuration, with its [etcd]") from error


def _any(weights: Mapping[Region, int]) -> Live:
    return Live("any quota", "minute", MAX_AMOUNT, {}, weights, {}, 0.0)


def _live(key: QuotaKey, said: Mapping[str, Any], weights: Mapping[Region, int]) -> Live:
    policy = said["policy"]
    return Live(
        name=str(key),
        period=policy["period"],
        limit=said["limit"],
        slices=(said["global"] or {}).get("slices", {}),
        weights=weights,
        rates={},
        watched_s=0.0,
        rules=policy.get("regions", {}),
        fills={name: policy[name] for name in _FILLS if name in policy},
    )


async def _watch(config: Config, connected: Operator) -> Mapping[QuotaKey, Mapping[Region, float]]:
    """Units per second that are asked for, of each quota in each region."""
    interval_s = config.agent.report_interval_s
    sums: dict[QuotaKey, dict[Region, float]] = {}
    for number in range(LOOKS):
        if number:
            err.print(f"watching demand, {(LOOKS - number) * interval_s:.0f} s more", highlight=False)
            await asyncio.sleep(interval_s)
        for region, word in await connected.directory.demand():
            rates = sums.setdefault(word.key, {})
            asked = (word.granted + word.denied) / max(word.seconds, _SHORTEST_S)
            rates[region] = rates.get(region, 0.0) + asked / LOOKS
    return sums


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
        raise InvalidRequest(
            "tenant",
            "no region reports any demand now: try again while something is asked for, or name a quota with --tenant "
            f"and --resource, and its demand {BY_HAND}",
        )
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


def refuse_idle(live: Live, rates: Mapping[Region, float] | None) -> None:
    """`rates` None: demand is something else than what was seen. Raises `InvalidRequest`."""
    if rates is not None and not any(rates.values()):
        raise InvalidRequest(
            "tenant",
            f"{live.name}: no region reported any demand for it in {live.watched_s:.0f} s: try again while it is asked "
            f"for, take another with --tenant and --resource, or say its demand, {BY_HAND}",
        )


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise InvalidRequest(
            "from_live", f'--from-live takes the URL of a region\'s server, as in http://127.0.0.1:8080, got "{text}"'
        )
    return text.rstrip("/")


async def _reach(url: str, wanted: Wanted) -> dict[str, Any]:
    """Whether a region's server is there, and knows the tenant, if one is named."""
    said = await _ask(url, wanted.tenant or "any", {"scope": wanted.scope})
    if wanted.tenant is not None and not said["quotas"]:
        raise RegionQuotaError(f"--tenant: {url} knows no quota of {wanted.tenant} in scope {wanted.scope}")
    return said


async def _quota(url: str, key: QuotaKey) -> dict[str, Any]:
    said = await _ask(url, key.tenant, {"resource": key.resource, "scope": key.scope})
    if not said["quotas"]:
        raise RegionQuotaError(
            f"{url} knows no quota {key} (--tenant, --resource, --scope): regionquota quota list shows what there is"
        )
    found: dict[str, Any] = said["quotas"][0]
    if found["kind"] != Kind.CONSUMABLE or found["limit"] is None:
        raise InvalidRequest("resource", f"{key} is {found['kind']}: only consumable quotas with a limit are simulated")
    return found


async def _ask(url: str, tenant: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The quotas of a tenant. Raises `Unavailable` where no region's server answers."""
    remedy = "--from-live takes the URL of a region's server, which `regionquota dev` prints"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)) as http:
            server = RegionServer("the region's server", url, http)
            status, said = await server.call("GET", f"/v1/tenants/{quote(tenant, safe='')}/quotas", query=query)
    except Unavailable as error:
        raise Unavailable(f"{error}: {remedy}") from error
    if status == HTTPStatus.NOT_FOUND or (status < HTTPStatus.BAD_REQUEST and "quotas" not in said):
        raise Unavailable(f"{url} is no region's server, or one of another release: {remedy}")
    return expect(status, said)
