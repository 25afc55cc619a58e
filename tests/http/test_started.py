"""Work that has begun: one operation, no expiry, and an outcome that somebody has to tell."""

from collections.abc import Awaitable, Callable

import pytest
from tests.http.harness import Api, Reply, until

Begin = Callable[..., Awaitable[str]]


@pytest.fixture
def begin(api: Api, quota: str) -> Begin:
    """The id of a reservation of 3 whose work has begun."""

    async def begun(operation: str = "op", **more: object) -> str:
        name = await api.hold(quota, 3, **more)
        assert 200 == (await start(api, name, operation)).status
        return name

    return begun


async def start(api: Api, name: str, operation: str) -> Reply:
    return await api.settle("start", name, operation_id=operation)


async def until_unknown(api: Api, name: str) -> None:
    async def is_unknown() -> bool:
        return bool((await api.get(f"/v1/reservations/{name}")).body["status"] == "UNKNOWN")

    await until(is_unknown)


async def balances(api: Api, tenant: str) -> tuple[int, int, int]:
    usage = await api.usage(tenant)
    return usage["used"], usage["reserved"], usage["available"]


async def test_a_start_binds_one_operation(api: Api, quota: str) -> None:
    reply = await start(api, await api.hold(quota, 3), "op")
    assert (200, "STARTED", "op") == (reply.status, reply.body["status"], reply.body["operation_id"])


async def test_a_repeated_start_is_answered_like_the_first(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    first, second = [await start(api, name, "op") for _ in range(2)]
    assert (200, first.body) == (second.status, second.body)


async def test_another_operation_is_refused_and_the_first_is_named(api: Api, begin: Begin) -> None:
    reply = await start(api, await begin("first"), "second")
    assert (409, "WRONG_STATE", "STARTED") == (reply.status, reply.body["reason"], reply.body["reservation_status"])
    assert "first" in reply.body["detail"]


@pytest.mark.parametrize("event", ["commit", "release"])
async def test_what_has_ended_cannot_be_started(api: Api, quota: str, event: str) -> None:
    name = await api.hold(quota, 3)
    await api.settle(event, name)
    assert 409 == (await start(api, name, "op")).status


async def test_a_start_without_an_operation_is_refused(api: Api, quota: str) -> None:
    reply = await api.settle("start", await api.hold(quota, 3))
    assert (400, "operation_id") == (reply.status, reply.body["field"])


async def test_nothing_is_started_for_a_reservation_that_nobody_made(api: Api) -> None:
    assert 404 == (await start(api, "0197d3a0-0000-7000-8000-000000000000", "op")).status


async def test_started_work_is_settled_as_any_hold(api: Api, quota: str, begin: Begin) -> None:
    await api.settle("commit", await begin(), actual_amount=2)
    await api.settle("release", await begin())
    assert (2, 0, 8) == await balances(api, quota)


async def test_started_work_can_be_given_more_time(api: Api, begin: Begin) -> None:
    assert 200 == (await api.settle("extend", await begin(), ttl_s=600)).status


async def test_started_work_whose_deadline_passed_is_unknown_and_keeps_its_capacity(
    api: Api, quota: str, begin: Begin
) -> None:
    name = await begin(ttl_s=1)
    await until_unknown(api, name)
    assert (0, 3, 7) == await balances(api, quota)
    assert 429 == (await api.reserve(quota, 8)).status


async def test_a_receipt_settles_unknown_work(api: Api, quota: str, begin: Begin) -> None:
    name = await begin(ttl_s=1)
    await until_unknown(api, name)
    assert "COMMITTED" == (await api.settle("commit", name, actual_amount=2)).body["status"]
    assert (2, 0, 8) == await balances(api, quota)


async def test_unknown_work_cannot_be_given_more_time(api: Api, begin: Begin) -> None:
    name = await begin(ttl_s=1)
    await until_unknown(api, name)
    reply = await api.settle("extend", name, ttl_s=60)
    assert (409, "UNKNOWN") == (reply.status, reply.body["reservation_status"])
