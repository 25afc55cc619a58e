"""Answers that say yes."""

from typing import Any, Final

from regionquota.core.commands import Adjusted, Granted
from regionquota.core.periods import period_end
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding
from regionquota.http.bodies import write_time
from regionquota.http.problems import Answer
from regionquota.ports import Stored

MAX_STRUCTURED_INTEGER: Final = 10**15 - 1
"""RFC 9651: no larger integer may stand in a structured header field; `remaining` and `limit` say it exactly."""


def reservation_fields(held: Reservation) -> dict[str, Any]:
    return {
        "reservation_id": held.id,
        "status": held.state.value,
        "tenant_id": held.key.tenant,
        "resource": held.key.resource,
        "scope": held.key.scope,
        "amount": held.amount,
        "actual_amount": held.actual,
        "request_id": held.request_id,
        "created_at": write_time(held.created_at),
        "expires_at": write_time(held.expires_at),
        "settled_at": None if held.settled_at is None else write_time(held.settled_at),
    }


def granted(outcome: Granted) -> Answer:
    """`remaining` is what this region may still grant of its slice; other regions may have more."""
    holding = outcome.holding
    remaining = holding.counter.available
    body = reservation_fields(outcome.reservation) | {"remaining": remaining, "limit": holding.limit}
    headers = {
        "Location": f"/v1/reservations/{outcome.reservation.id}",
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


def usage(holding: Holding, stored: Stored | None) -> dict[str, Any]:
    """`global` is what this region last heard of the whole quota; null if it never did."""
    counter = holding.counter
    end = period_end(holding.kind, holding.epoch)
    return {
        "resource": holding.key.resource,
        "scope": holding.key.scope,
        "kind": holding.kind.value,
        "limit": holding.limit,
        "slice": counter.slice,
        "used": counter.used,
        "reserved": counter.reserved,
        "available": counter.available,
        "debt": counter.debt,
        "period_end": None if end is None else write_time(end.timestamp()),
        "global": None if stored is None else whole(stored),
    }


def whole(stored: Stored) -> dict[str, Any] | None:
    allocation = stored.allocation
    if allocation is None:
        return None
    return {
        "revision": stored.revision,
        "limit": allocation.limit,
        "pool": allocation.pool,
        "retired": allocation.retired,
        "slices": dict(allocation.slices),
        "moves": [
            {"id": move.id, "from": move.source, "to": move.target, "amount": move.amount} for move in allocation.moves
        ],
    }
