"""Answers that say no: RFC 9457 problem details, one function per kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never
from urllib.parse import quote

from regionquota.core.commands import Denied, DenyReason, Forbidden, RequestConflict, Suspended, UnknownQuota
from regionquota.core.policy import Priority
from regionquota.core.quota import GLOBAL_SCOPE, QuotaKey
from regionquota.core.region_rules import NO_RULES
from regionquota.errors import InvalidRequest, StaleVersion, Unavailable

RETRY_DENIED_S: Final = 10
"""Conservative: by then the coordinator has planned at least once."""
RETRY_SUSPENDED_S: Final = 60
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


def not_drained(detail: str) -> Answer:
    return problem(409, "not-drained", "The quota is in use", detail, reason="NOT_DRAINED")


def suspended(outcome: Suspended) -> Answer:
    detail = f"tenant {outcome.tenant} is suspended ({outcome.why}): an operator has to resume it"
    return problem(
        429, "denied", "The tenant is suspended", detail, reason="TENANT_SUSPENDED", retry_after_s=RETRY_SUSPENDED_S
    )


def denied(outcome: Denied, region: str, tenant: str) -> Answer:
    """Names the line that does not fit; balances only to `tenant` whose they are."""
    holding, key = outcome.holding, outcome.holding.key
    members: dict[str, Any] = {
        "reason": outcome.reason.value,
        "region": region,
        "line": {"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope},
        "requested": outcome.amount,
        "priority": outcome.priority.value,
        "generation": holding.policy.generation,
        "retry_after_s": _retry_after(outcome),
    }
    if key.tenant == tenant:
        members |= {
            "available": outcome.free,
            "kept_for_higher_priority": outcome.kept,
            "slice": holding.slice,
            "limit": holding.limit,
            "debt": holding.counter.debt,
            "revision": holding.revision,
        }
    return problem(429, "denied", _TITLES[outcome.reason], why(outcome, region, tenant), **members)


_TITLES: Final = {
    DenyReason.OVER_LIMIT: "No capacity free in this region",
    DenyReason.KEPT_FOR_HIGHER_PRIORITY: "What is free is kept for requests of higher priority",
    DenyReason.IN_DEBT: "No capacity free in this region",
    DenyReason.OVERDRAFT_EXCEEDED: "The largest overdraft is exceeded",
    DenyReason.MAX_SINGLE_RESERVATION: "More than one reservation may hold",
    DenyReason.ADMISSION_CLOSED: "Nothing new is admitted",
}


def why(outcome: Denied, region: str, tenant: str) -> str:
    """Names balances only to `tenant` whose they are."""
    holding = outcome.holding
    resource, policy, debt = _named(holding.key), holding.policy, holding.counter.debt
    if holding.key.tenant != tenant:
        return f"{holding.key.resource} ({holding.key.scope}) has no room"
    match outcome.reason:
        case DenyReason.ADMISSION_CLOSED:
            return f"admission to {resource} is closed, what is held is still settled: an operator has to open it"
        case DenyReason.MAX_SINGLE_RESERVATION:
            most = policy.max_single
            return f"{outcome.amount} of {resource} asked for, one reservation may hold {most}: ask for less"
        case DenyReason.IN_DEBT:
            return f"{region} owes {debt} of {resource}: nothing is admitted until it is repaid"
        case DenyReason.OVERDRAFT_EXCEEDED:
            return (
                f"{region} owes {debt} of {resource}, more than the {policy.max_overdraft} that the policy allows: "
                "nothing is admitted until it is repaid"
            )
        case DenyReason.OVER_LIMIT if outcome.amount > holding.limit and not holding.unlimited:
            return f"{outcome.amount} of {resource} asked for, more than the whole limit {holding.limit}: ask for less"
        case DenyReason.OVER_LIMIT:
            return _does_not_fit(outcome, region)
        case DenyReason.KEPT_FOR_HIGHER_PRIORITY:
            return _kept(outcome, region)
        case _:
            assert_never(outcome.reason)


def _named(key: QuotaKey) -> str:
    return key.resource if key.scope == GLOBAL_SCOPE else f"{key.resource} ({key.scope})"


def _does_not_fit(outcome: Denied, region: str) -> str:
    holding, named = outcome.holding, outcome.priority.value
    resource = _named(holding.key)
    guaranteed = holding.counter.available - outcome.room
    priority = "" if outcome.priority is Priority.NORMAL else f" at {named} priority"
    reserved = f", none of it at {named} priority," if outcome.room and not outcome.free else ""
    guarantees = f" ({guaranteed} more are kept for others' guarantees)" if guaranteed else ""
    cap = holding.policy.regions.get(region, NO_RULES).cap
    capped = "" if cap is None or holding.slice < cap else f"; its cap lets {region} own no more than {cap}"
    return (
        f"{outcome.amount} of {resource} asked for{priority}, {outcome.room} available{reserved}{guarantees} "
        f"in the slice of {holding.slice} that {region} holds of the limit {holding.limit}{capped}. "
        f"Wait with wait_ms, ask for less, or come back in {_retry_after(outcome)} s"
    )


def _kept(outcome: Denied, region: str) -> str:
    holding, named = outcome.holding, outcome.priority.value
    resource, field_ = _named(holding.key), f"{named}_fill_percent"
    percent = getattr(holding.policy, field_)
    asked = f"{outcome.amount} of {resource} asked for at {named} priority"
    most = holding.policy.may_fill(holding.limit, outcome.priority)
    if outcome.amount > most:
        remedy = "ask for less, or at higher priority" if most else "ask at higher priority"
        return f"{asked}, which may fill {most} of the whole limit {holding.limit} ({field_} {percent}): {remedy}"
    kept = "all" if outcome.kept >= outcome.room else f"{outcome.kept}"
    return (
        f"{asked}, {outcome.free} available to it: of the {outcome.room} that are free, {kept} are kept for "
        f"higher priority in the slice of {holding.slice} that {region} holds ({field_} {percent}). Wait with wait_ms, "
        f"ask for less or at higher priority, or raise {field_}"
    )


def _retry_after(outcome: Denied) -> int:
    """Seconds, conservative: for a rate quota those in which as much as is missing leaks away."""
    holding = outcome.holding
    refill = holding.policy.refill
    if refill is None or outcome.amount > holding.policy.may_fill(holding.slice, outcome.priority):
        return RETRY_DENIED_S
    missing = outcome.amount + outcome.kept - outcome.room
    return max(1, -(-missing * refill.per * refill.interval_s // (holding.slice * refill.amount)))
