"""Answers that say yes."""

from typing import Any, Final

from regionquota.core.commands import Adjusted, Granted, Metered
from regionquota.core.counter import Counter
from regionquota.core.periods import period_end
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.reservation import Line, Reservation
from regionquota.core.slice import Holding
from regionquota.http import problems
from regionquota.http.decoding import write_time
from regionquota.http.problems import Answer
from regionquota.ports import Stored
from regionquota.region.denials import Denial

MAX_STRUCTURED_INTEGER: Final = 10**15 - 1
"""RFC 9651: no larger integer may stand in a structured header field; `remaining` and `limit` say it exactly."""


def reservation_fields(held: Reservation) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "reservation_id": held.id,
        "status": held.state.value,
        "tenant_id": held.key.tenant,
        "resource": held.key.resource,
        "scope": held.key.scope,
        "amount": held.amount,
        "actual_amount": held.actual,
        "request_id": held.request_id,
        "operation_id": held.operation_id,
        "created_at": write_time(held.created_at),
        "expires_at": write_time(held.expires_at),
        "settled_at": None if held.settled_at is None else write_time(held.settled_at),
        "receipt": receipt(held),
    }
    if held.also:
        fields["lines"] = [_line(line) for line in held.also]
    return fields


def receipt(held: Reservation) -> dict[str, Any]:
    """What a caller can keep and show. `epoch` is the period of the reserve, whenever it was settled."""
    return {
        "reservation_id": held.id,
        "digest": held.digest.hex(),
        "generation": held.generation,
        "epoch": held.epoch,
        "units": held.amount if held.actual is None else held.actual,
        "state": held.state.value,
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "tenant_id": line.key.tenant,
        "resource": line.key.resource,
        "scope": line.key.scope,
        "amount": line.amount,
        "actual_amount": line.actual,
        "epoch": line.epoch,
    }


def granted(outcome: Granted) -> Answer:
    """`remaining` is what this region may still grant of its slice; other regions may have more."""
    holding = outcome.holding
    remaining = holding.counter.available
    body = reservation_fields(outcome.reservation) | {
        "remaining": None if holding.unlimited else remaining,
        "limit": None if holding.unlimited else holding.limit,
    }
    end = period_end(holding.kind, outcome.reservation.epoch, holding.policy.calendar)
    if end is not None:
        body["charged_until"] = write_time(end.timestamp())
    if outcome.would_deny is not None:
        body |= {"would_deny": outcome.would_deny.value, "enforcement": holding.policy.enforcement.value}
    headers = {"Location": f"/v1/reservations/{outcome.reservation.id}"}
    if not holding.unlimited:
        headers |= {
            "RateLimit-Policy": f'"quota";q={min(holding.limit, MAX_STRUCTURED_INTEGER)}',
            "RateLimit": f'"quota";r={min(remaining, MAX_STRUCTURED_INTEGER)}',
        }
    if outcome.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Answer(201, body, headers)


def adjusted(outcome: Adjusted) -> Answer:
    done = outcome.adjustment
    body = {
        "tenant_id": done.key.tenant,
        "resource": done.key.resource,
        "scope": done.key.scope,
        "request_id": done.request_id,
        "delta": done.delta,
        "used": done.used,
        "available": done.available,
    }
    return Answer(200, body, {"Idempotency-Replayed": "true"} if outcome.replayed else {})


def metered(outcome: Metered) -> Answer:
    """`counted` and `sequence` are the furthest that the source has been heard of."""
    reading = outcome.reading
    body = {
        "tenant_id": reading.key.tenant,
        "resource": reading.key.resource,
        "scope": reading.key.scope,
        "source": reading.source,
        "incarnation": reading.incarnation,
        "sequence": reading.sequence,
        "total": reading.total,
        "added": 0 if outcome.replayed else reading.added,
        "used": outcome.holding.counter.used,
    }
    return Answer(200, body, {"Idempotency-Replayed": "true"} if outcome.replayed else {})


def policy(kind: Kind, policy: QuotaPolicy) -> dict[str, Any]:
    """As a limit is set: what belongs to other kinds is left out."""
    fields: dict[str, Any] = {
        "generation": policy.generation,
        "enforcement": policy.enforcement.value,
        "enforced_percent": policy.enforced_percent,
        "admission_open": policy.admission_open,
        "max_single_amount": policy.max_single,
        "min_ttl_s": policy.min_ttl_s,
        "max_ttl_s": policy.max_ttl_s,
        "max_overdraft": policy.max_overdraft,
        "parent": policy.parent,
        "guarantee": policy.guarantee,
        "regions": {
            region: {"weight": rules.weight, "floor": rules.floor, "cap": rules.cap}
            for region, rules in policy.regions.items()
        },
        "normal_fill_percent": policy.normal_fill_percent,
        "low_fill_percent": policy.low_fill_percent,
    }
    if kind is Kind.CONSUMABLE:
        fields |= {"period": policy.calendar.period.value, "time_zone": policy.calendar.time_zone}
    if policy.refill is not None:
        refill = policy.refill
        fields |= {"refill_amount": refill.amount, "refill_interval_s": refill.interval_s, "refill_per": refill.per}
    return fields


def usage(holding: Holding, stored: Stored | None, denial: Denial | None, region: Region) -> dict[str, Any]:
    """`global`: what this region last heard of the whole quota, null if it never did; `last_denial`: this server's."""
    counter = holding.counter
    end = period_end(holding.kind, holding.epoch, holding.policy.calendar)
    return {
        "resource": holding.key.resource,
        "scope": holding.key.scope,
        "kind": holding.kind.value,
        "limit": None if holding.unlimited else holding.limit,
        "unlimited": holding.unlimited,
        "policy": policy(holding.kind, holding.policy),
        "slice": counter.slice,
        "used": counter.used,
        "reserved": counter.reserved,
        "available": counter.available,
        "debt": counter.debt,
        "overage": counter.overage,
        "over_limit_by": 0 if holding.unlimited else _over_limit_by(counter, stored),
        "period_end": None if end is None else write_time(end.timestamp()),
        "global": None if stored is None else whole(stored),
        "last_denial": None if denial is None else _last_denial(denial, holding.key, region),
    }


def _last_denial(denial: Denial, of: QuotaKey, region: Region) -> dict[str, Any]:
    """`detail` is what the caller was told; all of it is as it was then. `line` has denied it: what is charged with the
    quota `of`, perhaps, and then that quota's balances are told there.
    """
    answer, key = denial.answer, denial.answer.holding.key
    said = {
        "at": write_time(denial.at),
        "reason": answer.reason.value,
        "detail": problems.why(answer, region, of.tenant),
        "line": {"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope},
        "priority": answer.priority.value,
        "amount": answer.amount,
    }
    return said | _balances(denial) if key == of else said


def _balances(denial: Denial) -> dict[str, Any]:
    holding, pool = denial.answer.holding, denial.pool
    said: dict[str, Any] = {
        "kept": denial.answer.kept,
        "available": holding.counter.available,
        "slice": holding.slice,
        "limit": None if holding.unlimited else holding.limit,
        "generation": holding.policy.generation,
        "pool": None,
    }
    if pool is None:
        return said
    return said | {
        "pool": pool.units,
        "pool_within_reach": pool.within_reach,
        "takes_part": pool.takes_part,
        "below_floor": sorted(pool.below_floor),
    }


def _over_limit_by(counter: Counter, stored: Stored | None) -> int:
    """What has to go before anything fits again: here beyond the slice, and anywhere beyond a limit that was lowered.

    A slice never shrinks below what is in use, so the latter shows in the pool alone; what is free here will fill it.
    """
    known = None if stored is None else stored.allocation
    uncollected = 0 if known is None else -known.pool - counter.available
    return max(0, counter.in_use - counter.slice) + max(0, uncollected)


def whole(stored: Stored) -> dict[str, Any] | None:
    allocation = stored.allocation
    if allocation is None:
        return None
    return {
        "revision": stored.revision,
        "limit": None if allocation.unlimited else allocation.limit,
        "unlimited": allocation.unlimited,
        "pool": allocation.pool,
        "retired": allocation.retired_units,
        "retired_of": {region: gone.units for region, gone in allocation.retired.items()},
        "slices": dict(allocation.slices),
        "moves": [
            {"id": move.id, "from": move.source, "to": move.target, "amount": move.amount} for move in allocation.moves
        ],
    }
