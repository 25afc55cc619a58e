"""Reservations and usage over HTTP: parse, call the service, word the answer."""

from dataclasses import dataclass
from typing import assert_never

import msgspec
import structlog
from aiohttp import web

from regionquota.core.commands import (
    Adjusted,
    Charge,
    Denied,
    Forbidden,
    Granted,
    Invalid,
    Metered,
    NotFound,
    Outcome,
    Pledged,
    Refusal,
    RequestConflict,
    Settled,
    Suspended,
    UnknownQuota,
)
from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey, Region, home_of
from regionquota.core.reservation import State
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.http import answers, problems
from regionquota.http.bodies import (
    SHOWN,
    AdjustBody,
    BatchBody,
    CommitBody,
    ExtendBody,
    LineBody,
    MeterBody,
    ReleaseBody,
    ReserveBody,
    SettledLineBody,
    StartBody,
)
from regionquota.http.decoding import asked, decode, page_size
from regionquota.http.problems import Answer
from regionquota.region.service import Asked, RegionService

_log = structlog.get_logger(__name__)


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
        bounds: Bounds,
    ) -> None:
        self._region = region
        self._service = service
        self._bounds = bounds

    async def reserve(self, request: web.Request) -> Answer:
        body = decode(await request.read(), ReserveBody)
        return self._word(await self._service.reserve(self._asked(body), body.wait_ms / 1000), body.tenant_id)

    async def reserve_batch(self, request: web.Request) -> Answer:
        wanted = decode(await request.read(), BatchBody).reservations
        if len(wanted) > self._bounds.max_batch:
            most = self._bounds.max_batch
            raise InvalidRequest("reservations", f"reservations takes 1 to {most} requests, got {len(wanted)}")
        read = [self._read_one(raw) for raw in wanted]
        outcomes = iter(await self._service.reserve_all([one for one in read if isinstance(one, Asked)]))
        done = [self._answer_one(one, next(outcomes)) if isinstance(one, Asked) else one for one in read]
        return Answer(207, {"results": [{"status": one.status, "body": one.body} for one in done]})

    def _read_one(self, raw: msgspec.Raw) -> Asked | Answer:
        """One that is wrong is answered for itself."""
        try:
            body = decode(raw, ReserveBody)
            asked = self._asked(body)
        except InvalidRequest as error:
            return problems.invalid(error)
        if body.wait_ms:
            said = "wait_ms must be 0 in a batch, which is answered at once: leave it out"
            return problems.invalid(InvalidRequest("wait_ms", said))
        return asked

    def _answer_one(self, asked: Asked, outcome: Outcome | Unavailable) -> Answer:
        if isinstance(outcome, Unavailable):  # the others were answered, and may have been granted
            return problems.unavailable(outcome)
        return self._word(outcome, asked.charges[0].key.tenant)

    def _asked(self, body: ReserveBody) -> Asked:
        key = QuotaKey(body.tenant_id, body.resource, body.scope)
        self._check_home(key, "scope")
        charges = [Charge(key, body.amount)]
        for place, line in enumerate(body.lines):
            named = _line_key(key, line, f"lines[{place}]")
            self._check_home(named, f"lines[{place}].scope")
            if any(charge.key == named for charge in charges):
                raise InvalidRequest("lines", f"lines must name each quota once, got {named} again")
            charges.append(Charge(named, line.amount or body.amount, () if line.amount else (0,)))
        return Asked(charges, body.request_id, self._ttl(body.ttl_s), Priority(body.priority))

    def _check_home(self, key: QuotaKey, field: str) -> None:
        home = home_of(key.scope)
        if home not in (None, self._region):
            raise InvalidRequest(
                field, f"{field}: {key.scope} belongs to region {home}, this is {self._region}: ask there"
            )

    async def read(self, request: web.Request) -> Answer:
        name = request.match_info["id"]
        held = await self._service.reservation(name)
        return problems.unknown_reservation(name) if held is None else Answer(200, answers.reservation_fields(held))

    async def find(self, request: web.Request) -> Answer:
        if "state" in request.query:
            return await self._list_unknown(request)
        tenant = _asked(request, "tenant_id")
        request_id = _asked(request, "request_id")
        held = await self._service.reservation_of_request(tenant, request_id)
        if held is None:
            return problems.unknown_reservation(f"with request_id {request_id}")
        return Answer(200, answers.reservation_fields(held))

    async def _list_unknown(self, request: web.Request) -> Answer:
        """Oldest deadline first. `next` is what to give as `after` for more; `count` is of all tenants."""
        if request.query["state"] != State.UNKNOWN:
            raise InvalidRequest("state", f'state must be "UNKNOWN", got "{request.query["state"][:SHOWN]}"')
        tenant, after = asked(request, "tenant_id"), asked(request, "after")
        most = page_size(request)
        found = await self._service.unknown(most, tenant=tenant, after=after)
        backlog = await self._service.backlog()
        body = {
            "region": self._region,
            "count": backlog.count,
            "reservations": [answers.reservation_fields(held) for held in found],
            "next": found[-1].id if len(found) == most else None,
        }
        return Answer(200, body)

    async def start(self, request: web.Request) -> Answer:
        body = decode(await request.read(), StartBody)
        return self._word(await self._service.start(request.match_info["id"], body.operation_id))

    async def commit(self, request: web.Request) -> Answer:
        body = decode(await request.read(), CommitBody)
        name = request.match_info["id"]
        lines: dict[QuotaKey, int] = {}
        if body.lines:
            held = await self._service.reservation(name)
            if held is None:
                return problems.unknown_reservation(name)
            lines = {
                _line_key(held.key, line, f"lines[{place}]"): line.actual_amount
                for place, line in enumerate(body.lines)
            }
        outcome = await self._service.commit(name, body.actual_amount, lines, body.reason or "")
        return self._word(_said(outcome, body.reason))

    async def release(self, request: web.Request) -> Answer:
        body = decode(await request.read(), ReleaseBody)
        outcome = await self._service.release(request.match_info["id"], body.reason or "")
        return self._word(_said(outcome, body.reason))

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

    async def meter(self, request: web.Request) -> Answer:
        body = decode(await request.read(), MeterBody)
        outcome = await self._service.meter(
            QuotaKey(body.tenant_id, body.resource, body.scope),
            source=body.source,
            incarnation=body.incarnation,
            sequence=body.sequence,
            total=body.total,
        )
        return self._word(outcome)

    def _ttl(self, asked: int | None) -> int:
        if asked is not None and asked > self._bounds.max_ttl_s:
            most = self._bounds.max_ttl_s
            raise InvalidRequest("ttl_s", f"ttl_s must be an integer from 1 to {most} seconds, got {asked}")
        return self._bounds.default_ttl_s if asked is None else asked

    def _word(self, outcome: Outcome, tenant: str = "") -> Answer:
        match outcome:
            case Granted():
                return answers.granted(outcome)
            case Settled(reservation=held):
                return Answer(200, answers.reservation_fields(held))
            case Adjusted():
                return answers.adjusted(outcome)
            case Metered():
                return answers.metered(outcome)
            case Pledged():
                raise AssertionError("nobody asks for it over HTTP")
            case _:
                return self._refuse(outcome, tenant)

    def _refuse(self, refusal: Refusal, tenant: str) -> Answer:
        match refusal:
            case Denied():
                return problems.denied(refusal, self._region, tenant)
            case Suspended():
                return problems.suspended(refusal)
            case UnknownQuota():
                return problems.unknown_quota(refusal)
            case RequestConflict():
                return problems.conflict(refusal)
            case Forbidden():
                return problems.forbidden(refusal)
            case NotFound(reservation_id=name):
                return problems.unknown_reservation(name)
            case Invalid(field=field, message=message):
                return problems.invalid(InvalidRequest(field, message))
            case _:
                assert_never(refusal)


def _line_key(key: QuotaKey, line: LineBody | SettledLineBody, field: str) -> QuotaKey:
    """What a line leaves out is as in the request. Raises `InvalidRequest` for one that says nothing."""
    if line.tenant_id is None and line.resource is None and line.scope is None:
        raise InvalidRequest(field, f"{field} must name a tenant_id, a resource or a scope of its own")
    return QuotaKey(line.tenant_id or key.tenant, line.resource or key.resource, line.scope or key.scope)


def _said(outcome: Outcome, reason: str | None) -> Outcome:
    """A release leaves no line in the ledger that could hold its reason."""
    if reason is not None and isinstance(outcome, Settled) and not outcome.replayed:
        held = outcome.reservation
        _log.info("settled by hand", reservation=held.id, state=held.state.value, reason=reason)
    return outcome


def _asked(request: web.Request, field: str) -> str:
    value = asked(request, field)
    if value is None:
        raise InvalidRequest(field, f"{field} is missing: ask with ?tenant_id=…&request_id=…, or with ?state=UNKNOWN")
    return value
