"""Identifiers as real systems have them, through bodies, paths, queries, Postgres and etcd and back."""

import unicodedata
import uuid
from urllib.parse import quote

import pytest
from tests.http.harness import Api

REAL = [
    "projects/p-1/zones/eu-west",
    "a b",
    "urn:example:a:b",
    "a%2Fb",
    "100%",
    "%",
    "%FF",
    "a+b&c=d?e#f;g",
    "{braces}",
    "..",
    ".",
    "*",
    "'; DROP TABLE reservations; --",
    '"quoted\\"',
    "租户/一",
    "арендатор",
    "مستأجر",
    "🏢👩‍👩‍👧",
    "\u202ereversed",
    "é" * 128,
    "a" * 256,
    " leading and trailing ",
    "global",
    "__proto__",
]


@pytest.fixture(params=REAL, ids=lambda text: ascii(text)[:30])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_every_identifier_goes_all_the_way(api: Api, name: str) -> None:
    request_id = name[:100] + uuid.uuid4().hex
    limit = await api.set_limit(name, 1000, name, scope=name)
    assert (name, name, name) == (limit.body["tenant_id"], limit.body["resource"], limit.body["scope"])
    held = await api.reserve(name, 3, resource=name, scope=name, request_id=request_id)
    assert (201, name, name, name) == (held.status, *(held.body[one] for one in ("tenant_id", "resource", "scope")))
    ask = f"/v1/reservations?tenant_id={quote(name, safe='')}&request_id={quote(request_id, safe='')}"
    assert held.body["reservation_id"] == (await api.get(ask)).body["reservation_id"]
    [shown] = (await api.get(f"/v1/tenants/{quote(name, safe='')}/quotas?resource={quote(name, safe='')}")).body[
        "quotas"
    ]
    assert (name, name, 3, 1000) == (shown["resource"], shown["scope"], shown["reserved"], shown["global"]["limit"])


async def test_two_normal_forms_are_two_tenants(api: Api, tenant: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, f"{tenant}é") for form in ("NFC", "NFD"))
    await api.set_limit(composed, 1)
    assert (201, 404) == ((await api.reserve(composed)).status, (await api.reserve(decomposed)).status)


@pytest.mark.parametrize("other", ["TENANT", "tenant ", " tenant", "tenant%00x", "tenant/", "tenan\u0442"])
async def test_what_looks_alike_is_not_the_same_tenant(api: Api, other: str) -> None:
    await api.set_limit("tenant", 1000)
    assert 404 == (await api.reserve(other)).status


@pytest.mark.parametrize(
    ("one", "two"),
    [(("a/b", "c"), ("a", "b/c")), (("a", "b", "c"), ("a/b", "c", "c")), (("x%2Fy", "z"), ("x/y", "z"))],
)
async def test_slashes_do_not_make_two_quotas_one(
    api: Api, tenant: str, one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    first, resource, *scope = one
    await api.set_limit(tenant + first, 1, resource, scope=(scope or ["global"])[0])
    second, other, *elsewhere = two
    reply = await api.reserve(tenant + second, resource=other, scope=(elsewhere or ["global"])[0])
    assert 404 == reply.status


async def test_a_path_may_be_written_with_small_and_capital_hex_digits(api: Api, tenant: str) -> None:
    await api.set_limit(f"{tenant}/é", 7)
    for escaped in ("%2f%c3%a9", "%2F%C3%A9"):
        assert 200 == (await api.get(f"/v1/tenants/{tenant}{escaped}/quotas")).status
    reply = await api.call("PUT", f"/v1/tenants/{tenant}%2f%c3%a9/quotas/vcpu", {"limit": 7, "version": 1})
    assert f"{tenant}/é" == reply.body["tenant_id"]
