"""Every call of a region server, in one table."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from aiohttp import web

from regionquota.http.bodies import (
    AdjustBody,
    BatchBody,
    CommitBody,
    ExtendBody,
    LimitBody,
    LimitsBody,
    MeterBody,
    ReleaseBody,
    ReserveBody,
    StartBody,
)
from regionquota.http.ledger_api import LedgerApi
from regionquota.http.problems import Answer
from regionquota.http.quota_api import QuotaApi
from regionquota.http.reconcile_api import DecisionBody, ReconcileApi, RunBody
from regionquota.http.region_api import RegionApi

Handler: TypeAlias = Callable[[web.Request], Awaitable[Answer]]


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


def routes(api: RegionApi, quotas: QuotaApi, ledger: LedgerApi) -> Sequence[Route]:
    reservation = "/v1/reservations/{id}"
    return (
        Route("POST", "/v1/reservations", "reserve", api.reserve, "Hold an amount", ReserveBody, (201, 404, 409, 429)),
        Route("POST", "/v1/reservations/batch", "reserve_batch", api.reserve_batch,
              "Independent reserves, one answer each", BatchBody, (207,)),
        Route("GET", "/v1/reservations", "find", api.find,
              "What became of a request id (tenant_id and request_id), or what is of unknown outcome (state=UNKNOWN)",
              None, (200, 404),
              {"tenant_id": False, "request_id": False, "state": False, "limit": False, "after": False}),
        Route("GET", reservation, "read", api.read, "What became of a reservation", None, (200, 404)),
        Route("POST", f"{reservation}/start", "start", api.start, "Begin the work, as one named operation", StartBody,
              (200, 404, 409)),
        Route("POST", f"{reservation}/commit", "commit", api.commit, "Turn a hold into usage", CommitBody,
              (200, 404, 409)),
        Route("POST", f"{reservation}/release", "release", api.release, "Give a hold back", ReleaseBody,
              (200, 404, 409)),
        Route("POST", f"{reservation}/extend", "extend", api.extend, "Let a hold last longer", ExtendBody,
              (200, 404, 409)),
        Route("POST", "/v1/adjustments", "adjust", api.adjust, "Change what is used", AdjustBody, (200, 404, 409)),
        Route("POST", "/v1/usage", "meter", api.meter, "Report a running total", MeterBody, (200, 404)),
        Route("GET", "/v1/tenants/{tenant}/quotas", "usage", quotas.usage, "What a tenant has and uses here", None,
              (200, 304), {"resource": False, "scope": False}),
        Route("GET", "/v1/tenants/{tenant}/ledger", "ledger", ledger.page, "Why usage is what it is, page by page",
              None, (200,), {"resource": False, "scope": False, "after": False, "limit": False}),
        Route("PUT", "/v1/tenants/{tenant}/quotas", "set_limits", quotas.set_limits, "Set several limits, or none",
              LimitsBody, (200, 409)),
        Route("PUT", "/v1/tenants/{tenant}/quotas/{resource}", "set_limit", quotas.set_limit, "Set limit and policy",
              LimitBody, (200, 409)),
        Route("DELETE", "/v1/tenants/{tenant}/quotas/{resource}", "remove_quota", quotas.remove, "End a drained quota",
              None, (200, 404, 409), {"scope": False}),
    )  # fmt: skip


def reconciliation_routes(api: ReconcileApi) -> Sequence[Route]:
    case = "/v1/reconciliation/cases/{id}"
    return (
        Route("GET", "/v1/reconciliation/cases", "list_cases", api.list_cases, "Differences that people decide on",
              None, (200,), {"state": False, "limit": False}),
        Route("POST", f"{case}/approve", "approve_case", api.approve, "Add the difference to what is used",
              DecisionBody, (200, 404, 409)),
        Route("POST", f"{case}/reject", "reject_case", api.reject, "Leave what is used as it is", DecisionBody,
              (200, 404, 409)),
        Route("POST", "/v1/reconciliation/runs", "reconcile", api.run, "Compare a source of truth now", RunBody),
    )  # fmt: skip
