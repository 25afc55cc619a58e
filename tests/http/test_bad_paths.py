"""What is refused of a path, a query or an id, and that a refusal leaves no trace in the ledger or in etcd."""

import uuid

import pytest
from tests.http import refusals
from tests.http.harness import Api
from tests.http.refusals import (
    ADJUST,
    COMMIT,
    EXTEND,
    HELD,
    LIMIT,
    RELEASE,
    RESERVE,
    SOME_ID,
    TENANT,
    Call,
    assert_refused,
)

held, nothing_is_written = refusals.held, refusals.nothing_is_written


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/reservations/batch/x"),
        ("GET", "/"),
        ("POST", "/v2/reservations"),
        ("GET", "//healthz"),
        ("GET", "/v1/tenants//quotas"),
        ("GET", "/v1/tenants/a/b/quotas"),
        ("GET", "/v1/../v1/reservations%2F"),
        ("OPTIONS", "*"),
    ],
)
async def test_an_unknown_path_is_a_problem_document(api: Api, method: str, path: str) -> None:
    raw = await api.say(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert raw.startswith(b"HTTP/1.1 404 ")
    assert b"Content-Type: application/problem+json" in raw


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/reservations", {"GET", "POST"}),
        ("PUT", "/v1/reservations/batch", {"POST", "GET"}),
        ("GET", f"/v1/reservations/{SOME_ID}/commit", {"POST"}),
        ("PATCH", "/v1/adjustments", {"POST"}),
        ("POST", "/v1/tenants/acme/quotas", {"GET", "PUT"}),
        ("PATCH", "/v1/tenants/acme/quotas/vcpu", {"PUT", "DELETE"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_refused_with_those_that_are_allowed(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    reply = await api.call(method, path, b"{}")
    assert_refused(reply, 405)
    assert allowed == set(reply.headers["Allow"].split(","))


@pytest.mark.parametrize("call", [RESERVE, ADJUST], ids=["reserve", "adjust"])
async def test_an_unknown_quota_is_answered_with_the_call_that_sets_one(api: Api, call: Call) -> None:
    reply = await api.post(call.path, call.fields | {"resource": "no such/thing", "request_id": "x"})
    assert_refused(reply, 404, "resource")
    assert "PUT /v1/tenants/acme/quotas/no%20such%2Fthing" in reply.body["detail"]


def no_ids(held: str) -> list[str]:
    """What is no reservation's id, however close it comes to one."""
    return [
        "x",
        "%20",
        "%00",
        "%FF",
        "..%2F..%2Fetc%2Fpasswd",
        "1" * 2000,
        "%EF%BC%91" * 32,
        "'; DROP TABLE reservations; --".replace(" ", "%20"),
        str(uuid.uuid4()),
        "00000000-0000-7000-8000-000000000000",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        held.upper(),
        held.replace("-", ""),
        held.replace("-", "_"),
        f"urn:uuid:{held}",
        f"%7B{held}%7D",
        f"{held[:-1]}%D9%A3",
        f"{held}%0A",
        f"%20{held}",
    ]


@pytest.mark.parametrize("number", range(len(no_ids(SOME_ID))))
async def test_what_is_no_reservation_is_not_found_by_reading(api: Api, held: str, number: int) -> None:
    assert_refused(await api.get(f"/v1/reservations/{no_ids(held)[number]}"), 404)


@pytest.mark.parametrize("number", range(len(no_ids(SOME_ID))))
@pytest.mark.parametrize("call", [COMMIT, RELEASE, EXTEND], ids=["commit", "release", "extend"])
async def test_what_is_no_reservation_cannot_be_settled(api: Api, held: str, call: Call, number: int) -> None:
    reply = await api.post(call.path.replace(HELD, no_ids(held)[number]), call.fields)
    assert_refused(reply, 404)


async def test_a_known_request_id_with_another_amount_is_a_conflict(api: Api, held: str) -> None:
    reply = await api.reserve(TENANT, 5, request_id="known", ttl_s=3600)
    assert_refused(reply, 409, "request_id")
    assert "known" in reply.body["detail"]


async def test_a_known_request_id_with_another_time_is_a_conflict(api: Api, held: str) -> None:
    assert_refused(await api.reserve(TENANT, 4, request_id="known", ttl_s=3599), 409, "request_id")


async def test_a_request_id_reused_for_an_unknown_quota_is_refused(api: Api, held: str) -> None:
    assert_refused(await api.reserve(TENANT, 4, request_id="known", resource="nothing", ttl_s=3600), 409, "request_id")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "tenant_id"),
        ("?tenant_id=acme", "request_id"),
        ("?request_id=known", "tenant_id"),
        ("?tenant_id=&request_id=known", "tenant_id"),
        ("?tenant_id=acme&request_id=", "request_id"),
        ("?tenant_id=acme&request_id=a%00", "request_id"),
        ("?tenant_id=%FF&request_id=known", "tenant_id"),
        ("?tenant_id=%ED%A0%80&request_id=known", "tenant_id"),
        (f"?tenant_id={'a' * 257}&request_id=known", "tenant_id"),
        (f"?tenant_id={'%C3%A9' * 129}&request_id=known", "tenant_id"),
    ],
)
async def test_a_search_without_two_identifiers_is_refused(api: Api, query: str, field: str) -> None:
    assert_refused(await api.get(f"/v1/reservations{query}"), 400, field)


async def test_a_request_id_that_nobody_used_is_not_found(api: Api) -> None:
    assert_refused(await api.get("/v1/reservations?tenant_id=acme&request_id=never"), 404)


NO_SEGMENT = ["%00", "%0A", "%7F", "%C2%85", "%FF", "%ff", "%ED%A0%80", "%C3", "a" * 257, "%C3%A9" * 129]


@pytest.mark.parametrize("segment", NO_SEGMENT, ids=lambda text: text[:9])
async def test_a_tenant_that_is_no_identifier_has_no_usage_to_show(api: Api, segment: str) -> None:
    assert_refused(await api.get(f"/v1/tenants/{segment}/quotas"), 400, "tenant_id")


@pytest.mark.parametrize("segment", NO_SEGMENT, ids=lambda text: text[:9])
async def test_a_tenant_that_is_no_identifier_gets_no_limit(api: Api, segment: str) -> None:
    assert_refused(await api.call("PUT", f"/v1/tenants/{segment}/quotas/vcpu", LIMIT.fields), 400, "tenant_id")


@pytest.mark.parametrize("segment", NO_SEGMENT, ids=lambda text: text[:9])
async def test_a_resource_that_is_no_identifier_gets_no_limit(api: Api, segment: str) -> None:
    assert_refused(await api.call("PUT", f"/v1/tenants/acme/quotas/{segment}", LIMIT.fields), 400, "resource")


@pytest.mark.parametrize("field", ["resource", "scope"])
async def test_a_filter_that_is_no_identifier_is_refused(api: Api, field: str) -> None:
    assert_refused(await api.get(f"/v1/tenants/acme/quotas?{field}=%00"), 400, field)
