"""Callers that mean no good."""

import asyncio
import gzip
import json
import time
import zlib

import pytest
from tests.http.harness import Api, Server

HEAD = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


def status(heard: bytes) -> int:
    return int(heard.split(b" ", 2)[1])


SMUGGLED = b"POST /v1/adjustments HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 5\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: -4\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length: 4_0\r\n",
        b"Content-Length: \xb2\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b" Transfer-Encoding: chunked\r\n",
        b"Content-Length\r\n",
    ],
    ids=ascii,
)
async def test_a_body_of_ambiguous_length_is_refused_and_nothing_after_it_is_read(api: Api, headers: bytes) -> None:
    heard = await api.say(b"POST /v1/reservations HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n0\r\n\r\n" + SMUGGLED)
    assert 400 == status(heard)
    assert 1 == heard.count(b"HTTP/1.")


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz" + HEAD + b"X: a\r\n\tfolded\r\n\x00: b\r\n\r\n",
        b"GET /healthz" + HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /healthz" + HEAD + b"".join(b"X%d: a\r\n" % number for number in range(20_000)) + b"\r\n",
        b"GET /" + b"a" * 100_000 + HEAD + b"\r\n",
        b"GET /v1/tenants/\xff/quotas" + HEAD + b"\r\n",
        b"GET /v1/reservations?tenant_id=\xff&request_id=a" + HEAD + b"\r\n",
        b"POST /v1/reservations" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
        b"POST /v1/reservations" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    ],
    ids=lambda raw: ascii(raw[:24]),
)
async def test_what_is_no_http_is_refused_and_the_connection_closed(api: Api, raw: bytes) -> None:
    heard = await api.say(raw)
    assert 400 == status(heard)
    assert b"Traceback" not in heard
    assert 200 == (await api.get("/healthz")).status


async def test_a_compressed_body_counts_by_its_full_size(api: Api) -> None:
    bomb = gzip.compress(b" " * 100_000_000, 1)
    began = time.monotonic()
    reply = await api.call("POST", "/v1/reservations", bomb, headers={"Content-Encoding": "gzip"})
    assert 413 == reply.status
    assert time.monotonic() - began < 2


async def test_a_compressed_body_is_read(api: Api, quota: str) -> None:
    body = json.dumps({"request_id": "z", "tenant_id": quota, "resource": "vcpu", "amount": 1}).encode()
    reply = await api.call("POST", "/v1/reservations", zlib.compress(body), headers={"Content-Encoding": "deflate"})
    assert 201 == reply.status


async def test_callers_who_send_slowly_delay_nobody_else(server: Server, api: Api, quota: str) -> None:
    slow = [await asyncio.open_connection(*api.address) for _ in range(50)]
    for number, (_, writer) in enumerate(slow):
        head = b"POST /v1/reservations HTTP/1.1\r\nHost: x\r\nContent-Length: 200\r\n\r\n{"
        writer.write(head[: 20 + number * 2])
        await writer.drain()
    began = time.monotonic()
    await api.hold(quota)
    assert time.monotonic() - began < 1
    for _, writer in slow:
        writer.transport.abort()


async def test_of_a_name_written_twice_the_last_value_counts(api: Api, quota: str) -> None:
    body = f'{{"request_id": "a", "tenant_id": "{quota}", "resource": "vcpu", "amount": 9, "amount": 2}}'
    assert 2 == (await api.post("/v1/reservations", body.encode())).body["amount"]


async def test_a_wrong_value_is_refused_although_the_name_comes_again(api: Api, quota: str) -> None:
    body = f'{{"request_id": "a", "tenant_id": "{quota}", "resource": "vcpu", "amount": "9", "amount": 2}}'
    assert 400 == (await api.post("/v1/reservations", body.encode())).status


async def test_names_are_compared_as_they_are_written(api: Api, quota: str) -> None:
    body = f'{{"request_id": "a", "tenant_id": "{quota}", "resource": "vcpu", "Amount": 9, "amount": 2}}'
    reply = await api.post("/v1/reservations", body.encode())
    assert (400, "Amount") == (reply.status, reply.body["field"])


async def test_escapes_in_names_and_values_are_the_characters_they_stand_for(api: Api, quota: str) -> None:
    body = f'{{"request_id": "\\u0061", "tenant_id": "{quota}", "resource": "vc\\u0070u", "\\u0061mount": 2}}'
    reply = await api.post("/v1/reservations", body.encode())
    assert (201, "a", 2) == (reply.status, reply.body["request_id"], reply.body["amount"])


async def test_thousands_of_unknown_quotas_leave_nothing_behind(server: Server, api: Api, quota: str) -> None:
    before = (await server.contents(), await server.documents())
    replies = []
    for part in range(20):
        replies += await asyncio.gather(
            *(api.reserve(f"nobody-{part}-{number}", resource=f"nothing-{number}") for number in range(100))
        )
    assert {404} == {reply.status for reply in replies}
    assert before == (await server.contents(), await server.documents())


async def test_a_flood_for_unknown_quotas_leaves_known_ones_served(api: Api, quota: str) -> None:
    flood = asyncio.gather(*(api.reserve(f"flood-{number}") for number in range(300)))
    began = time.monotonic()
    await api.hold(quota)
    took = time.monotonic() - began
    await flood
    assert took < 2


async def test_sql_in_an_identifier_is_text(server: Server, api: Api, quota: str) -> None:
    evil = "x'); DELETE FROM quota_counters; --"
    await api.reserve(quota, request_id=evil)
    assert 1 == await server.rows("quota_counters", quota)
    assert evil == (await api.reserve(quota, request_id=evil)).body["request_id"]


async def test_html_in_an_identifier_is_never_served_as_html(api: Api) -> None:
    reply = await api.get("/v1/reservations/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert "application/problem+json" == reply.kind


async def test_a_line_break_in_an_identifier_makes_no_header(api: Api, quota: str) -> None:
    reply = await api.get("/v1/reservations/x%0D%0ASet-Cookie:%20a=b")
    assert "Set-Cookie" not in reply.headers


async def test_an_error_repeats_little_of_a_long_value(api: Api, quota: str) -> None:
    reply = await api.reserve(quota, "x" * 900_000)  # type: ignore[arg-type]
    assert 400 == reply.status
    assert len(reply.text) < 1000


async def test_an_error_repeats_little_of_a_long_name(api: Api, quota: str) -> None:
    reply = await api.reserve(quota, **{"x" * 900_000: 1})
    assert 400 == reply.status
    assert len(reply.text) < 1000
