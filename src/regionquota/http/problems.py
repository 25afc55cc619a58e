"""Answers that say no: RFC 9457 problem details, one function per kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from regionquota.core.commands import Denied, Forbidden, RequestConflict, UnknownQuota
from regionquota.errors import InvalidRequest, StaleVersion, Unavailable

RETRY_DENIED_S: Final = 10
"""Conservative: by then the coordinator has planned at least once."""
RETRY_UNAVAILABLE_S: Final = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Transport-free: status, JSON object, headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def problem(status: int, kind: str, title: str, detail: str, **members: Any) -> Answer:
    """`kind` ends the type URI; `members` are the extension members of that type."""
    headers = {"Retry-After": str(members["retry_after_s"])} if "retry_after_s" in members else {}
    body = {"type": f"urn:regionquota:{kind}", "title": title, "status": status, "detail": detail, **members}
    return Answer(status, body, headers)


def invalid(error: InvalidRequest, status: int = 400) -> Answer:
    return problem(status, "invalid-request", "The request is not valid", str(error), field=error.field)


def too_large(most: int) -> Answer:
    detail = f"the body must not be larger than {most} bytes"
    return problem(413, "too-large", "The body is too large", detail, field="body")


def too_slow(within_s: float) -> Answer:
    detail = f"the body must arrive within {within_s:g} s"
    return problem(408, "too-slow", "The body takes too long", detail, field="body")


def unavailable(error: Unavailable) -> Answer:
    detail = f"{error}; the same request with the same id is safe to repeat"
    return problem(503, "unavailable", "Not available right now", detail, retry_after_s=RETRY_UNAVAILABLE_S)


def stale(error: StaleVersion) -> Answer:
    return problem(409, "stale-version", "A newer limit is in force", str(error), field=error.field)


def unknown_quota(outcome: UnknownQuota) -> Answer:
    key = outcome.key
    detail = (
        f"unknown quota {key.resource} ({key.scope}) for tenant {key.tenant}: "
        f"set one with PUT /v1/tenants/{quote(key.tenant, safe='')}/quotas/{quote(key.resource, safe='')}"
    )
    return problem(404, "unknown-quota", "No such quota", detail, field="resource", reason="UNKNOWN_QUOTA")


def unknown_reservation(name: str) -> Answer:
    return problem(404, "unknown-reservation", "No such reservation", f"no reservation {name} in this region")


def conflict(outcome: RequestConflict) -> Answer:
    detail = f"request_id {outcome.request_id} was used before with other content: use a new one"
    return problem(409, "request-id-reused", "This id is known", detail, field="request_id", reason="REQUEST_ID_REUSED")


def forbidden(outcome: Forbidden) -> Answer:
    held = outcome.reservation
    return problem(
        409,
        "wrong-state",
        "The reservation's state forbids it",
        f"reservation {held.id}: {outcome.message}",
        reason="WRONG_STATE",
        reservation_id=held.id,
        reservation_status=held.state.value,
        actual_amount=held.actual,
    )


def denied(outcome: Denied, region: str) -> Answer:
    holding = outcome.holding
    key, counter = holding.key, holding.counter
    if counter.debt:
        detail = f"{region} owes {counter.debt} of {key.resource}: nothing is admitted until it is repaid"
    else:
        detail = (
            f"{outcome.amount} of {key.resource} asked for, {counter.available} available in the slice of "
            f"{holding.slice} that {region} holds of the limit {holding.limit}"
        )
    return problem(
        429,
        "denied",
        "No capacity free in this region",
        detail,
        reason=outcome.reason.value,
        region=region,
        line={"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope},
        requested=outcome.amount,
        available=counter.available,
        slice=holding.slice,
        limit=holding.limit,
        debt=counter.debt,
        revision=holding.revision,
        retry_after_s=RETRY_DENIED_S,
    )
