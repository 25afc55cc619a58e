"""Many independent reserves in one call."""

import asyncio
import uuid
from typing import Any

from tests.http.harness import Api, Reply, Server


def reserve(tenant: str, request_id: str = "", **more: Any) -> dict[str, Any]:
    known = {"request_id": request_id or uuid.uuid4().hex, "tenant_id": tenant, "resource": "vcpu", "amount": 1}
    return known | more


async def batch(api: Api, *reserves: object) -> Reply:
    return await api.post("/v1/reservations/batch", {"reservations": reserves})


async def statuses(api: Api, *reserves: object) -> list[int]:
    return [one["status"] for one in (await batch(api, *reserves)).body["results"]]


async def test_each_reserve_is_answered_in_its_place(api: Api, quota: str) -> None:
    asked = [
        reserve(quota, amount=4),
        reserve(quota, amount=0),
        reserve(quota, amount=99),
        reserve(quota, resource="unheard of"),
        {},
        7,
        "text",
        None,
        [],
        reserve(quota, amonut=1),
        reserve(quota, ttl_s=2**50),
        reserve(quota, amount=4),
    ]
    assert [201, 400, 429, 404, 400, 400, 400, 400, 400, 400, 400, 201] == await statuses(api, *asked)


async def test_a_batch_is_answered_as_several(api: Api, quota: str) -> None:
    assert 207 == (await batch(api, reserve(quota))).status


async def test_each_answer_is_what_the_single_call_would_have_said(api: Api, quota: str) -> None:
    asked = [reserve(quota, amount=3), reserve(quota, amount="x"), reserve(quota, amount=99)]
    singles = [(await api.post("/v1/reservations", one)).body for one in asked]
    results = (await batch(api, *asked)).body["results"]
    assert singles == [one["body"] for one in results]


async def test_an_answer_tells_the_state_of_the_hold_beside_the_status(api: Api, quota: str) -> None:
    [one] = (await batch(api, reserve(quota))).body["results"]
    assert (201, "PENDING") == (one["status"], one["body"]["status"])


async def test_a_wrong_field_is_named_for_the_reserve_that_has_it(api: Api, quota: str) -> None:
    results = (await batch(api, reserve(quota), reserve(quota, amount=4.5))).body["results"]
    assert [None, "amount"] == [one["body"].get("field") for one in results]


async def test_what_is_denied_says_when_to_come_back(api: Api, quota: str) -> None:
    [one] = (await batch(api, reserve(quota, amount=99))).body["results"]
    assert 1 <= one["body"]["retry_after_s"]


async def test_the_same_request_twice_in_one_batch_is_one_hold(api: Api, quota: str) -> None:
    same = reserve(quota, "same", amount=3)
    first, second = (await batch(api, same, same)).body["results"]
    assert first["body"]["reservation_id"] == second["body"]["reservation_id"]
    assert 3 == (await api.usage(quota))["reserved"]


async def test_the_same_id_for_two_requests_in_one_batch_grants_one(api: Api, quota: str) -> None:
    got = await statuses(api, reserve(quota, "same", amount=3), reserve(quota, "same", amount=4))
    assert [201, 409] == sorted(got)


async def test_a_batch_grants_no_more_than_there_is(api: Api, quota: str) -> None:
    got = await statuses(api, *(reserve(quota) for _ in range(25)))
    assert (10, 15) == (got.count(201), got.count(429))


async def test_a_thousand_reserves_are_one_batch(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 999)
    got = await statuses(api, *(reserve(tenant) for _ in range(1000)))
    assert (999, 1) == (got.count(201), got.count(429))


async def test_a_thousand_and_one_are_refused_and_none_of_them_is_held(api: Api, quota: str) -> None:
    reply = await batch(api, *(reserve(quota) for _ in range(1001)))
    assert (400, "reservations") == (reply.status, reply.body["field"])
    assert "1000" in reply.body["detail"]
    assert 0 == (await api.usage(quota))["reserved"]


async def test_a_repeated_batch_holds_nothing_more(api: Api, quota: str) -> None:
    asked = [reserve(quota, f"r{number}", amount=2) for number in range(4)]
    first, second = [await batch(api, *asked) for _ in range(2)]
    assert [one["body"]["reservation_id"] for one in first.body["results"]] == [
        one["body"]["reservation_id"] for one in second.body["results"]
    ]
    assert 8 == (await api.usage(quota))["reserved"]


async def test_reserves_of_several_tenants_and_resources_do_not_mix(api: Api, quota: str, server: Server) -> None:
    other = f"{quota}-other"
    await api.set_limit(other, 10)
    await api.set_limit(other, 10, "disk")
    await batch(api, reserve(quota, amount=1), reserve(other, amount=2), reserve(other, resource="disk", amount=3))
    found = ((await api.usage(quota)), (await api.usage(other)), (await api.usage(other, "disk")))
    assert [1, 2, 3] == [one["reserved"] for one in found]


async def test_batches_that_name_the_same_quotas_in_opposite_order_all_succeed(api: Api, tenant: str) -> None:
    one, two = f"{tenant}-1", f"{tenant}-2"
    for name in (one, two):
        await api.set_limit(name, 1000)
        await api.hold(name)
    for _ in range(5):
        replies = await asyncio.gather(
            *(statuses(api, *(reserve(name) for name in names)) for names in ((one, two) * 5, (two, one) * 5) * 5)
        )
        assert {201} == {status for reply in replies for status in reply}
