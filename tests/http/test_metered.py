"""Running totals: absolute, numbered, and therefore never added twice."""

from typing import Any

import pytest
from tests.http.harness import Api, Reply, Server


async def report(api: Api, tenant: str, sequence: int, total: int, **more: Any) -> Reply:
    body = {"tenant_id": tenant, "resource": "vcpu", "source": "host-1", "sequence": sequence, "total": total}
    return await api.post("/v1/usage", body | more)


async def used(api: Api, tenant: str) -> int:
    return int((await api.usage(tenant))["used"])


async def test_a_total_counts_from_nothing_at_first(api: Api, quota: str) -> None:
    body = (await report(api, quota, 1, 4)).body
    assert (4, 4, 4, 1) == (body["added"], body["used"], body["total"], body["sequence"])


async def test_a_later_total_adds_the_difference(api: Api, quota: str) -> None:
    await report(api, quota, 1, 4)
    assert 3 == (await report(api, quota, 2, 7)).body["added"]
    assert 7 == await used(api, quota)


async def test_a_retransmitted_word_adds_nothing_and_says_so(api: Api, quota: str) -> None:
    await report(api, quota, 1, 4)
    again = await report(api, quota, 1, 4)
    assert (200, 0, "true") == (again.status, again.body["added"], again.headers["Idempotency-Replayed"])
    assert 4 == await used(api, quota)


async def test_a_word_that_was_overtaken_adds_nothing(api: Api, quota: str) -> None:
    await report(api, quota, 2, 7)
    late = await report(api, quota, 1, 4)
    assert (0, 2, 7) == (late.body["added"], late.body["sequence"], late.body["total"])
    assert 7 == await used(api, quota)


async def test_a_restarted_source_counts_from_nothing_as_a_new_incarnation(api: Api, quota: str) -> None:
    await report(api, quota, 5, 4, incarnation="monday")
    await report(api, quota, 1, 2, incarnation="tuesday")
    assert 6 == await used(api, quota)


async def test_a_total_that_falls_is_refused_with_the_remedy(api: Api, quota: str) -> None:
    await report(api, quota, 1, 4)
    reply = await report(api, quota, 2, 3)
    assert (400, "total") == (reply.status, reply.body["field"])
    assert "new incarnation" in reply.body["detail"]
    assert 4 == await used(api, quota)


async def test_sources_count_apart(api: Api, quota: str) -> None:
    await report(api, quota, 1, 4)
    await report(api, quota, 1, 2, source="host-2")
    assert 6 == await used(api, quota)


async def test_what_was_metered_beyond_the_slice_is_debt(api: Api, quota: str) -> None:
    await report(api, quota, 1, 12)
    assert 2 == (await api.usage(quota))["debt"]
    assert "IN_DEBT" == (await api.reserve(quota)).body["reason"]


async def test_what_was_metered_in_a_scope_counts_above_it_as_well(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.set_limit(tenant, 5, scope="project:x")
    await report(api, tenant, 1, 4, scope="project:x")
    assert (4, 4) == ((await api.usage(tenant, scope="project:x"))["used"], await used(api, tenant))


async def test_usage_of_an_unknown_quota_is_refused(api: Api, tenant: str) -> None:
    reply = await report(api, tenant, 1, 4)
    assert (404, "UNKNOWN_QUOTA") == (reply.status, reply.body["reason"])


async def test_the_first_word_of_a_quota_that_was_never_used_here_counts(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    assert 4 == (await report(api, tenant, 1, 4)).body["used"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence", 0),
        ("sequence", 1.5),
        ("sequence", None),
        ("total", -1),
        ("total", 2**63),
        ("total", "4"),
        ("source", ""),
        ("source", "a\nb"),
        ("incarnation", None),
        ("resource", 5),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_counts(
    server: Server, api: Api, quota: str, field: str, value: object
) -> None:
    before = await server.contents()
    reply = await report(api, quota, **{"sequence": 1, "total": 4} | {field: value})  # type: ignore[arg-type]
    assert (400, field) == (reply.status, reply.body["field"])
    assert before == await server.contents()
