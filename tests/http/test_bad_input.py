"""What is refused of a body, how, and that a refusal leaves no trace in the ledger or in etcd."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.http import refusals
from tests.http.harness import Api
from tests.http.refusals import CALLS, HELD, LONGEST, RESERVE, TENANT, assert_refused

held, nothing_is_written = refusals.held, refusals.nothing_is_written


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


async def test_a_plan_cannot_be_taken_back(api: Api) -> None:
    assert_refused(await api.set_limit(TENANT, None, version=2), 400, "limit")


async def test_an_adjustment_beyond_what_can_be_counted_is_refused(api: Api, held: str) -> None:
    assert_refused(await api.adjust(TENANT, 2**63 - 1), 400, "delta")


async def test_an_adjustment_below_zero_is_refused(api: Api, held: str) -> None:
    assert_refused(await api.adjust(TENANT, -1), 400, "delta")


async def test_a_body_that_is_not_what_its_encoding_says_is_refused(api: Api) -> None:
    reply = await api.call("POST", RESERVE.path, b"{}", headers={"Content-Encoding": "gzip"})
    assert_refused(reply, 400, "body")
