"""The region server's HTTP surface: parse, call the service, word the answer."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never
from urllib.parse import unquote

import msgspec
from aiohttp import web

from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.commands import (
    Adjusted,
    Denied,
    Forbidden,
    Granted,
    Invalid,
    NotFound,
    Outcome,
    RequestConflict,
    Settled,
    UnknownQuota,
)
from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.slice import Holding, roll_over
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.http import answers, problems
from regionquota.http.bodies import (
    AdjustBody,
    BatchBody,
    CommitBody,
    ExtendBody,
    Identifier,
    LimitBody,
    NoBody,
    ReserveBody,
    check_identifier,
    decode,
    describe,
    write_time,
)
from regionquota.http.problems import Answer
from regionquota.ports import Clock, Stored
from regionquota.region.follower import Follower
from regionquota.region.service import RegionService

Handler: TypeAlias = Callable[[web.Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may ask for. Seconds and counts."""

    default_ttl_s: int
    max_ttl_s: int
    max_batch: int


class RegionApi:
    def __init__(
        self,
        region: Region,
        service: RegionService,
        follower: Follower,
        clock: Clock,
        bounds: Bounds,
    ) -> None:
        self._region = region
        self._service = service
        self._follower = follower
        self._clock = clock
        self._bounds = bounds

    async def reserve(self, request: web.Request) -> Answer:
        return await self._reserve(decode(await request.read(), ReserveBody))

    async def reserve_batch(self, request: web.Request) -> Answer:
        wanted = decode(await request.read(), BatchBody).reservations
        if len(wanted) > self._bounds.max_batch:
            most = self._bounds.max_batch
            raise InvalidRequest("reservations", f"reservations takes 1 to {most} requests, got {len(wanted)}")
        done = await asyncio.gather(*(self._reserve_one(raw) for raw in wanted))
        return Answer(207, {"results": [{"status": one.status, "body": one.body} for one in done]})

    async def _reserve_one(self, raw: msgspec.Raw) -> Answer:
        try:
            return await self._reserve(decode(raw, ReserveBody))
        except InvalidRequest as error:
            return problems.invalid(error)
        except Unavailable as error:  # the others were answered, and may have been granted
            return problems.unavailable(error)

    async def _reserve(self, body: ReserveBody) -> Answer:
        key = QuotaKey(body.tenant_id, body.resource, body.scope)
        outcome = await self._service.reserve(
            key, amount=body.amount, request_id=body.request_id, ttl_s=self._ttl(body.ttl_s)
        )
        return self._word(outcome)

    async def read(self, request: web.Request) -> Answer:
        name = request.match_info["id"]
        held = await self._service.reservation(name)
        return problems.unknown_reservation(name) if held is None else Answer(200, answers.reservation_fields(held))

    async def find(self, request: web.Request) -> Answer:
        tenant = _asked(request, "tenant_id")
        request_id = _asked(request, "request_id")
        held = await self._service.reservation_of_request(tenant, request_id)
        if held is None:
            return problems.unknown_reservation(f"with request_id {request_id}")
        return Answer(200, answers.reservation_fields(held))

    async def commit(self, request: web.Request) -> Answer:
        body = decode(await request.read(), CommitBody)
        return self._word(await self._service.commit(request.match_info["id"], body.actual_amount))

    async def release(self, request: web.Request) -> Answer:
        decode(await request.read(), NoBody)
        return self._word(await self._service.release(request.match_info["id"]))

    async def extend(self, request: web.Request) -> Answer:
        body = decode(await request.read(), ExtendBody)
        return self._word(await self._service.extend(request.match_info["id"], self._ttl(body.ttl_s)))

    async def adjust(self, request: web.Request) -> Answer:
        body = decode(await request.read(), AdjustBody)
        if body.delta == 0:
            raise InvalidRequest("delta", "delta must not be 0")
        key = QuotaKey(body.tenant_id, body.resource, body.scope)
        outcome = await self._service.adjust(key, delta=body.delta, request_id=body.request_id, reason=body.reason)
        return self._word(outcome)

    async def usage(self, request: web.Request) -> Answer:
        """What this region holds, with the whole quota as far as it has been heard of."""
        tenant = _named(request, "tenant", "tenant_id")
        resource, scope = (_filter(request, name) for name in ("resource", "scope"))
        now = self._clock.now()
        held = {holding.key: roll_over(holding, now) for holding in await self._service.usage(tenant)}
        for stored in self._follower.documents(tenant):
            if stored.key not in held and stored.allocation is not None:
                held[stored.key] = _unused_here(stored, now)
        wanted = [
            answers.usage(holding, self._follower.known(key))
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
        tenant = _named(request, "tenant", "tenant_id")
        resource = _named(request, "resource", "resource")
        body = decode(await request.read(), LimitBody)
        source = LimitSource(body.source)
        if body.limit is None and source is LimitSource.PLAN:
            raise InvalidRequest("limit", "limit null takes an OVERRIDE back; a PLAN must have a limit")
        key = QuotaKey(tenant, resource, body.scope)
        kind = None if body.kind is None else Kind(body.kind)
        limit = VersionedLimit(body.limit, body.version)
        revision, allocation = await self._service.set_limit(key, kind, source, limit)
        collecting = max(0, -allocation.pool)
        return Answer(
            200,
            {
                "tenant_id": tenant,
                "resource": resource,
                "scope": key.scope,
                "kind": allocation.kind.value,
                "limit": allocation.limit,
                "revision": revision,
                "effective_at": write_time(self._clock.now()) if not collecting else None,
                "collecting": collecting,
            },
        )

    def _ttl(self, asked: int | None) -> int:
        if asked is not None and asked > self._bounds.max_ttl_s:
            most = self._bounds.max_ttl_s
            raise InvalidRequest("ttl_s", f"ttl_s must be an integer from 1 to {most} seconds, got {asked}")
        return self._bounds.default_ttl_s if asked is None else asked

    def _word(self, outcome: Outcome) -> Answer:
        match outcome:
            case Granted():
                return answers.granted(outcome)
            case Settled(reservation=held):
                return Answer(200, answers.reservation_fields(held))
            case Adjusted():
                return answers.adjusted(outcome)
            case Denied():
                return problems.denied(outcome, self._region)
            case UnknownQuota():
                return problems.unknown_quota(outcome)
            case RequestConflict():
                return problems.conflict(outcome)
            case Forbidden():
                return problems.forbidden(outcome)
            case NotFound(reservation_id=name):
                return problems.unknown_reservation(name)
            case Invalid(field=field, message=message):
                return problems.invalid(InvalidRequest(field, message))
            case _:
                assert_never(outcome)


def _named(request: web.Request, part: str, field: str) -> str:
    """An identifier out of the path. aiohttp would take what is no UTF-8, %FF, for the text of an identifier, %25FF."""
    resource = request.match_info.route.resource
    assert resource is not None
    raw = request.rel_url.raw_path.split("/")[resource.canonical.split("/").index(f"{{{part}}}")]
    try:
        return check_identifier(field, unquote(raw, errors="strict"))
    except UnicodeDecodeError:
        raise InvalidRequest(field, f"{field} must be {describe(Identifier)}, percent-encoded, got {raw}") from None


def _filter(request: web.Request, field: str) -> str | None:
    value = request.query.get(field)
    return None if value is None else check_identifier(field, value)


def _asked(request: web.Request, field: str) -> str:
    if field not in request.query:
        raise InvalidRequest(field, f"{field} is missing: ask with ?tenant_id=…&request_id=…")
    return check_identifier(field, request.query[field])


def _unused_here(stored: Stored, now: float) -> Holding:
    allocation = stored.allocation
    assert allocation is not None
    epoch = epoch_of(allocation.kind, now)
    return Holding(stored.key, allocation.kind, allocation.limit, stored.revision, epoch, Counter())


@dataclass(frozen=True, slots=True)
class Route:
    """One call: the router, the metrics and the OpenAPI document are made from these."""

    method: str
    path: str
    operation: str
    handler: Handler
    says: str
    body: type[msgspec.Struct] | None = None
    statuses: Sequence[int] = (200,)
    query: Mapping[str, bool] = field(default_factory=dict)
    """Parameters, and whether each is required."""


def routes(api: RegionApi) -> Sequence[Route]:
    reservation = "/v1/reservations/{id}"
    return (
        Route("POST", "/v1/reservations", "reserve", api.reserve, "Hold an amount", ReserveBody, (201, 404, 409, 429)),
        Route("POST", "/v1/reservations/batch", "reserve_batch", api.reserve_batch,
              "Independent reserves, one answer each", BatchBody, (207,)),
        Route("GET", "/v1/reservations", "find", api.find, "What became of a request id", None, (200, 404),
              {"tenant_id": True, "request_id": True}),
        Route("GET", reservation, "read", api.read, "What became of a reservation", None, (200, 404)),
        Route("POST", f"{reservation}/commit", "commit", api.commit, "Turn a hold into usage", CommitBody,
              (200, 404, 409)),
        Route("POST", f"{reservation}/release", "release", api.release, "Give a hold back", NoBody, (200, 404, 409)),
        Route("POST", f"{reservation}/extend", "extend", api.extend, "Let a hold last longer", ExtendBody,
              (200, 404, 409)),
        Route("POST", "/v1/adjustments", "adjust", api.adjust, "Change what is used", AdjustBody, (200, 404, 409)),
        Route("GET", "/v1/tenants/{tenant}/quotas", "usage", api.usage, "What a tenant has and uses here", None,
              (200, 304), {"resource": False, "scope": False}),
        Route("PUT", "/v1/tenants/{tenant}/quotas/{resource}", "set_limit", api.set_limit, "Set a limit",
              LimitBody, (200, 409)),
    )  # fmt: skip
