"""Quotas over HTTP: what a tenant has and uses, and its limits."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from regionquota.core.allocation import UNLIMITED, Allocation, LimitSource, VersionedLimit
from regionquota.core.commands import UnknownQuota
from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.policy import Enforcement
from regionquota.core.quota import GLOBAL_SCOPE, Kind, QuotaKey, Region
from regionquota.core.slice import Holding, at
from regionquota.errors import InvalidRequest
from regionquota.http import answers, problems
from regionquota.http.bodies import LimitBody, LimitsBody, PolicyBody, RegionRulesBody
from regionquota.http.decoding import asked, decode, named, write_time
from regionquota.http.problems import Answer
from regionquota.limits import LimitWord, warnings_of
from regionquota.ports import Clock, Stored
from regionquota.region.follower import Follower
from regionquota.region.service import RegionService


class QuotaApi:
    def __init__(self, region: Region, service: RegionService, follower: Follower, clock: Clock) -> None:
        self._region = region
        self._service = service
        self._follower = follower
        self._clock = clock

    async def usage(self, request: web.Request) -> Answer:
        """What this region holds, with the whole quota as far as it has been heard of."""
        tenant = named(request, "tenant", "tenant_id")
        resource, scope = (asked(request, name) for name in ("resource", "scope"))
        now = self._clock.now()
        held = {holding.key: at(holding, now) for holding in await self._service.usage(tenant)}
        for stored in self._follower.documents(tenant):
            if stored.key not in held and stored.allocation is not None:
                held[stored.key] = _unused_here(stored, now)
        wanted = [
            answers.usage(holding, self._follower.known(key), self._service.denials.last(key), self._region)
            for key, holding in sorted(held.items())
            if resource in (None, key.resource) and scope in (None, key.scope)
        ]
        heard = self._follower.heard_at
        age = max(0, round(now - heard)) if heard else None
        tag = hashlib.blake2b(msgspec.json.encode(wanted), digest_size=8).hexdigest()
        headers = {"ETag": f'"{tag}"', "Cache-Control": "private, max-age=5"}
        if any(known.value in ("*", tag) for known in request.if_none_match or ()):
            return Answer(304, {}, headers)
        body = {"tenant_id": tenant, "region": self._region, "global_age_s": age, "quotas": wanted}
        return Answer(200, body, headers)

    async def set_limit(self, request: web.Request) -> Answer:
        tenant = named(request, "tenant", "tenant_id")
        resource = named(request, "resource", "resource")
        body = decode(await request.read(), LimitBody)
        ((revision, allocation),) = await self._service.set_limits([limit_word(tenant, resource, body)])
        return Answer(200, self._set(QuotaKey(tenant, resource, body.scope), revision, allocation))

    async def set_limits(self, request: web.Request) -> Answer:
        tenant = named(request, "tenant", "tenant_id")
        limits = decode(await request.read(), LimitsBody).limits
        words = [limit_word(tenant, body.resource, body) for body in limits]
        keys = [word.key for word in words]
        repeated = [key for key in keys if keys.count(key) > 1]
        if repeated:
            raise InvalidRequest("limits", f"limits must name each quota once, got {repeated[0]} again")
        done = await self._service.set_limits(words)
        return Answer(200, {"limits": [self._set(key, *one) for key, one in zip(keys, done, strict=True)]})

    async def remove(self, request: web.Request) -> Answer:
        tenant = named(request, "tenant", "tenant_id")
        key = QuotaKey(tenant, named(request, "resource", "resource"), asked(request, "scope") or GLOBAL_SCOPE)
        try:
            removed = await self._service.remove_quota(key)
        except InvalidRequest as error:
            return problems.not_drained(str(error))
        if not removed:
            return problems.unknown_quota(UnknownQuota(key))
        return Answer(200, {"tenant_id": tenant, "resource": key.resource, "scope": key.scope, "removed": True})

    def _set(self, key: QuotaKey, revision: int, allocation: Allocation) -> dict[str, Any]:
        collecting = max(0, -allocation.pool)
        return {
            "tenant_id": key.tenant,
            "resource": key.resource,
            "scope": key.scope,
            "kind": allocation.kind.value,
            "limit": None if allocation.unlimited else allocation.limit,
            "unlimited": allocation.unlimited,
            "policy": answers.policy(allocation.kind, allocation.policy),
            "revision": revision,
            "effective_at": write_time(self._clock.now()) if not collecting else None,
            "collecting": collecting,
            "warnings": warnings_of(allocation),
        }


def limit_word(tenant: str, resource: str, body: LimitBody) -> LimitWord:
    source = LimitSource(body.source)
    if body.limit is None and source is LimitSource.PLAN:
        raise InvalidRequest("limit", "limit null takes an OVERRIDE back; a PLAN must have a limit")
    amount = UNLIMITED if body.limit == "unlimited" else body.limit
    assert not isinstance(amount, str)
    given = {name: getattr(body, name) for name in PolicyBody.__struct_fields__ if name != "kind"}
    changes = {_RENAMED.get(name, name): value for name, value in given.items() if value is not UNSET}
    if "enforcement" in changes:
        changes["enforcement"] = Enforcement(changes["enforcement"])
    if body.regions:
        changes["regions"] = {region: None if said is None else _said(said) for region, said in body.regions.items()}
    return LimitWord(
        QuotaKey(tenant, resource, body.scope),
        source,
        VersionedLimit(amount, body.version),
        None if body.kind is None else Kind(body.kind),
        changes,
    )


_RENAMED: Final = {"max_single_amount": "max_single"}


def _said(rules: RegionRulesBody) -> Mapping[str, int | None]:
    return {name: value for name in rules.__struct_fields__ if (value := getattr(rules, name)) is not UNSET}


def _unused_here(stored: Stored, now: float) -> Holding:
    allocation = stored.allocation
    assert allocation is not None
    epoch = epoch_of(allocation.kind, now, allocation.policy.calendar)
    return Holding(
        stored.key, allocation.kind, allocation.limit, stored.revision, epoch, Counter(), allocation.policy,
        allocation.unlimited,
    )  # fmt: skip
