"""Calls that could be answered, and what a refusal looks like."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.http.harness import Reply, Server

TENANT = "acme"
HELD = "the id of a hold"
SOME_ID = "dee6ed7e-7c7e-4be7-a518-c7384719fe14"
LONGEST = "é" * 128


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    fields: dict[str, object]


RESERVE = Call(
    "POST",
    "/v1/reservations",
    {"request_id": "r", "tenant_id": TENANT, "resource": "vcpu", "scope": "global", "amount": 1, "ttl_s": 5},
)
COMMIT = Call("POST", f"/v1/reservations/{HELD}/commit", {"actual_amount": 1})
RELEASE = Call("POST", f"/v1/reservations/{HELD}/release", {})
EXTEND = Call("POST", f"/v1/reservations/{HELD}/extend", {"ttl_s": 5})
BATCH = Call("POST", "/v1/reservations/batch", {"reservations": [RESERVE.fields]})
ADJUST = Call(
    "POST",
    "/v1/adjustments",
    {"request_id": "r", "tenant_id": TENANT, "resource": "vcpu", "scope": "global", "delta": 1, "reason": "why"},
)
LIMIT = Call(
    "PUT",
    f"/v1/tenants/{TENANT}/quotas/vcpu",
    {"limit": 5, "version": 9, "source": "PLAN", "scope": "global", "kind": "allocated"},
)
CALLS = {
    "reserve": RESERVE,
    "batch": BATCH,
    "commit": COMMIT,
    "release": RELEASE,
    "extend": EXTEND,
    "adjust": ADJUST,
    "set_limit": LIMIT,
}


def assert_refused(reply: Reply, status: int, field: str | None = None) -> None:
    assert status == reply.status, reply
    assert reply.kind == "application/problem+json"
    assert {"type", "title", "status", "detail"} <= reply.body.keys()
    assert status == reply.body["status"]
    assert "Traceback" not in reply.text
    assert 'File "' not in reply.text
    if field is not None:
        assert field == reply.body["field"], reply


@pytest.fixture(scope="module")
async def held(server: Server) -> str:
    """A hold on a quota that this region holds all of."""
    assert 200 == (await server.api.set_limit(TENANT, 10)).status
    return await server.api.hold(TENANT, 4, request_id="known", ttl_s=3600)


@pytest.fixture(autouse=True)
async def nothing_is_written(server: Server, held: str) -> AsyncIterator[None]:
    """Around every test of this module."""
    before = (await server.contents(), await server.documents())
    yield
    assert before == (await server.contents(), await server.documents())
