"""What is refused, how, and that a refusal leaves no trace in the ledger or in etcd."""

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from tests.http.harness import Api, Reply, Server

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

NO_INTEGER = ('"4.5"', '"4"', "4.5", "1.0", "1e3", "1e400", "true", "false", "[1]", '{"a":1}', "9" * 5000, f"{2**64}")
NO_COUNT = (*NO_INTEGER, "0", "-1", f"{-(2**63)}", f"{2**63}")
NO_TEXT = ("5", "1.5", "true", "[]", "{}", '""', r'"a\u0000b"', r'"\n"', r'"\u001f"', r'"\u007f"', r'"\u0085"')
NO_IDENTIFIER = (*NO_TEXT, json.dumps("a" * 257), json.dumps(LONGEST + "a", ensure_ascii=False))
NO_WORD = ("5", "true", "[]", '""', '"plan"', '"Allocated"')

WRONG: Sequence[tuple[str, str, str]] = [
    (call, field, value)
    for call, fields in {
        "reserve": {
            "request_id": (*NO_IDENTIFIER, "null"),
            "tenant_id": (*NO_IDENTIFIER, "null"),
            "resource": (*NO_IDENTIFIER, "null"),
            "scope": (*NO_IDENTIFIER, "null"),
            "amount": (*NO_COUNT, "null"),
            "ttl_s": NO_COUNT,
        },
        "commit": {"actual_amount": NO_COUNT, "reason": NO_TEXT},
        "release": {"reason": NO_TEXT},
        "extend": {"ttl_s": (*NO_COUNT, "null")},
        "batch": {"reservations": ("5", "null", "{}", "[]", '"a"')},
        "adjust": {
            "request_id": (*NO_IDENTIFIER, "null"),
            "tenant_id": (*NO_IDENTIFIER, "null"),
            "resource": (*NO_IDENTIFIER, "null"),
            "scope": (*NO_IDENTIFIER, "null"),
            "delta": (*NO_INTEGER, "null", "0", "-0", f"{2**63}", f"{-(2**63)}"),
            "reason": (*NO_TEXT, "null", json.dumps("a" * 1001)),
        },
        "set_limit": {
            "limit": (*NO_INTEGER, "null", "-1", f"{2**63}"),
            "version": (*NO_COUNT, "null"),
            "scope": (*NO_IDENTIFIER, "null"),
            "source": (*NO_WORD, "null"),
            "kind": NO_WORD,
        },
    }.items()
    for field, values in fields.items()
    for value in values
]
REQUIRED = [
    (call, field)
    for call, fields in {
        "reserve": ("request_id", "tenant_id", "resource", "amount"),
        "batch": ("reservations",),
        "extend": ("ttl_s",),
        "adjust": ("request_id", "tenant_id", "resource", "delta", "reason"),
        "set_limit": ("limit", "version"),
    }.items()
    for field in fields
]
MISSPELT = [
    ("reserve", "amuont", "did you mean amount?"),
    ("batch", "reservation", "did you mean reservations?"),
    ("commit", "actual_ammount", "did you mean actual_amount?"),
    ("release", "amount", "known are reason"),
    ("extend", "ttl", "did you mean ttl_s?"),
    ("adjust", "reasons", "did you mean reason?"),
    ("set_limit", "vesrion", "did you mean version?"),
    ("reserve", "", "known are request_id"),
    ("reserve", "a`b", "known are request_id"),
    ("reserve", "line\nbreak", "known are request_id"),
]
NO_JSON = {
    "half an object": b'{"amount": 1',
    "an error before the end": b'{"amount": "x", "ttl_s": "x", "actual_amount": "x", "delta": "x", "limit": "x",',
    "a comma too many": b'{"amount": 1,}',
    "single quotes": b"{'amount': 1}",
    "not a number": b'{"amount": NaN}',
    "a bare word": b"amount",
    "invalid UTF-8": b'{"tenant_id": "\xff"}',
    "invalid UTF-8 in a number's place": b'{"amount": "\xff", "ttl_s": "\xff", "limit": "\xff", "delta": "\xff"}',
    "UTF-16": '{"amount": 1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "half a surrogate pair": rb'{"tenant_id": "\ud800"}',
    "a surrogate and a letter": rb'{"tenant_id": "\ud800A"}',
    "a raw NUL": b'{"tenant_id": "a\x00b"}',
    "NULs": b"\x00" * 100,
    "an array": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"a"',
    "100,000 brackets": b"[" * 100_000,
    "100,000 nested objects": b'{"a":' * 100_000,
}


def written(fields: dict[str, object], **instead: str) -> bytes:
    """JSON with some values replaced by what JSON writers would not write."""
    texts = {name: json.dumps(value) for name, value in fields.items()} | instead
    return ("{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items()) + "}").encode()


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


@pytest.mark.parametrize(("name", "field", "value"), WRONG, ids=lambda text: text[:20])
async def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    api: Api, held: str, name: str, field: str, value: str
) -> None:
    call = CALLS[name]
    reply = await api.call(call.method, call.path.replace(HELD, held), written(call.fields, **{field: value}))
    assert_refused(reply, 400, field)
    assert reply.body["detail"].startswith(field)


@pytest.mark.parametrize(("name", "field"), REQUIRED)
async def test_a_missing_field_is_named_with_what_it_takes(api: Api, held: str, name: str, field: str) -> None:
    call = CALLS[name]
    left = {key: value for key, value in call.fields.items() if key != field}
    reply = await api.call(call.method, call.path.replace(HELD, held), left)
    assert_refused(reply, 400, field)
    assert f"{field} is missing: it takes " in reply.body["detail"]


@pytest.mark.parametrize(("name", "field", "hint"), MISSPELT)
async def test_an_unknown_field_is_refused_with_the_nearest_known_one(
    api: Api, held: str, name: str, field: str, hint: str
) -> None:
    call = CALLS[name]
    reply = await api.call(call.method, call.path.replace(HELD, held), {**call.fields, field: 1})
    assert_refused(reply, 400, field)
    assert hint in reply.body["detail"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("what", NO_JSON)
async def test_a_body_that_is_no_json_object_is_refused(api: Api, held: str, name: str, what: str) -> None:
    call = CALLS[name]
    reply = await api.call(call.method, call.path.replace(HELD, held), NO_JSON[what])
    assert_refused(reply, 400)
    assert "field" in reply.body


@pytest.mark.parametrize("name", ["reserve", "batch", "extend", "adjust", "set_limit"])
async def test_an_empty_body_is_refused_where_fields_are_required(api: Api, held: str, name: str) -> None:
    call = CALLS[name]
    assert_refused(await api.call(call.method, call.path.replace(HELD, held), b""), 400)


@pytest.mark.parametrize("ttl", [2_592_001, 2**31, 2**50, 2**63, 2**64])
@pytest.mark.parametrize("name", ["reserve", "extend"])
async def test_a_time_too_long_is_refused_with_the_largest_allowed(api: Api, held: str, name: str, ttl: int) -> None:
    call = CALLS[name]
    reply = await api.call(call.method, call.path.replace(HELD, held), written(call.fields, ttl_s=str(ttl)))
    assert_refused(reply, 400, "ttl_s")
    assert "2592000" in reply.body["detail"]


@pytest.mark.parametrize("name", CALLS)
async def test_ten_megabytes_are_refused_by_their_announced_length(api: Api, held: str, name: str) -> None:
    call = CALLS[name]
    assert_refused(await api.call(call.method, call.path.replace(HELD, held), b" " * 10_000_000), 413, "body")


async def test_ten_megabytes_in_chunks_are_refused(api: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    assert_refused(await api.post(RESERVE.path, chunks()), 413, "body")


async def test_a_body_one_byte_above_the_largest_is_refused(api: Api) -> None:
    assert_refused(await api.post(RESERVE.path, b"{}".ljust(1_048_577)), 413, "body")


async def test_the_largest_body_is_read(api: Api) -> None:
    assert_refused(await api.post(RESERVE.path, b"{}".ljust(1_048_576)), 400, "request_id")


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


async def test_a_plan_cannot_be_taken_back(api: Api) -> None:
    assert_refused(await api.set_limit(TENANT, None, version=2), 400, "limit")


async def test_an_adjustment_beyond_what_can_be_counted_is_refused(api: Api, held: str) -> None:
    assert_refused(await api.adjust(TENANT, 2**63 - 1), 400, "delta")


async def test_an_adjustment_below_zero_is_refused(api: Api, held: str) -> None:
    assert_refused(await api.adjust(TENANT, -1), 400, "delta")


async def test_a_body_that_is_not_what_its_encoding_says_is_refused(api: Api) -> None:
    reply = await api.call("POST", RESERVE.path, b"{}", headers={"Content-Encoding": "gzip"})
    assert_refused(reply, 400, "body")
