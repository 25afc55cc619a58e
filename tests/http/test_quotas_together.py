"""Limits that are set together, and quotas that end."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.http.harness import Api, Reply, Server, until

from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.coordinator import policy_of
from regionquota.config import Config
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.core.quota import QuotaKey


async def put(api: Api, tenant: str, *limits: dict[str, Any]) -> Reply:
    return await api.call("PUT", f"/v1/tenants/{tenant}/quotas", {"limits": limits})


def limit(resource: str, amount: object = 10, version: int = 1, **more: object) -> dict[str, Any]:
    return {"resource": resource, "limit": amount, "version": version} | more


async def resources(api: Api, tenant: str) -> list[tuple[str, int]]:
    quotas = (await api.get(f"/v1/tenants/{tenant}/quotas")).body["quotas"]
    return [(one["resource"], one["limit"]) for one in quotas]


# -- several limits at once --


async def test_several_limits_are_set_together(api: Api, tenant: str) -> None:
    reply = await put(api, tenant, limit("vcpu", 10), limit("disk", 20, kind="consumable"))
    assert 200 == reply.status
    assert [("vcpu", 10, "allocated"), ("disk", 20, "consumable")] == [
        (one["resource"], one["limit"], one["kind"]) for one in reply.body["limits"]
    ]
    assert [("disk", 20), ("vcpu", 10)] == await resources(api, tenant)


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        (limit("disk", -1), 400, "limits[1].limit"),
        (limit("disk", kind="rate"), 400, "refill_amount"),
        (limit("disk", period="day"), 400, "period"),
        (limit("disk", None, source="OVERRIDE"), 400, "limit"),
        (limit("taken", 5, version=1), 409, "version"),
        (limit("taken", kind="consumable", version=9), 409, "kind"),
        (limit("vcpu", 11), 400, "limits"),
        (limit("disk", guarantee=11), 400, "guarantee"),
    ],
)
async def test_one_invalid_limit_of_several_sets_none(
    server: Server, api: Api, tenant: str, wrong: dict[str, Any], status: int, field: str
) -> None:
    await api.set_limit(tenant, 7, "taken", version=5)
    before = await server.documents()
    reply = await put(api, tenant, limit("vcpu"), wrong)
    assert (status, field) == (reply.status, reply.body["field"])
    assert before == await server.documents()


@pytest.mark.parametrize("count", [0, 101])
async def test_no_limits_and_too_many_are_refused(api: Api, tenant: str, count: int) -> None:
    reply = await put(api, tenant, *(limit(f"r{number}") for number in range(count)))
    assert (400, "limits") == (reply.status, reply.body["field"])


async def test_a_hundred_limits_are_set_together(api: Api, tenant: str) -> None:
    assert 200 == (await put(api, tenant, *(limit(f"r{number}") for number in range(100)))).status


async def test_several_limits_repeated_change_nothing(api: Api, tenant: str) -> None:
    first, second = [await put(api, tenant, limit("vcpu"), limit("disk")) for _ in range(2)]
    assert [one["revision"] for one in first.body["limits"]] == [one["revision"] for one in second.body["limits"]]


# -- the end of a quota --


@pytest.fixture
async def coordinator(server: Server) -> AsyncIterator[Coordinator]:
    """Plans often, for this module's server."""
    one = Coordinator(
        "one",
        server.etcd.allocations,
        server.etcd.directory,
        SystemClock(),
        policy_of(Config()),
        Tempo(interval=0.1, leader_ttl=3, freeze_after=60),
    )
    one.start()
    yield one
    await one.stop()


async def remove(api: Api, tenant: str) -> Reply:
    return await api.call("DELETE", f"/v1/tenants/{tenant}/quotas/vcpu")


async def drain(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 0, version=2)

    async def is_removed() -> bool:
        return (await remove(api, tenant)).status == 200

    await until(is_removed)


async def test_a_quota_that_nobody_used_can_be_removed(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    assert (200, True) == ((reply := await remove(api, tenant)).status, reply.body["removed"])


async def test_a_quota_with_live_holds_is_not_removed(server: Server, api: Api, quota: str) -> None:
    await api.hold(quota, 3)
    reply = await remove(api, quota)
    assert (409, "NOT_DRAINED") == (reply.status, reply.body["reason"])
    assert "eu 10" in reply.body["detail"]
    _, allocation = await server.etcd.allocations.read(QuotaKey(quota, "vcpu"))
    assert allocation is not None


async def test_a_quota_that_nobody_set_cannot_be_removed(api: Api, tenant: str) -> None:
    reply = await remove(api, tenant)
    assert (404, "UNKNOWN_QUOTA") == (reply.status, reply.body["reason"])


@pytest.mark.usefixtures("coordinator")
async def test_a_drained_quota_is_removed_and_admits_nothing_more(api: Api, quota: str) -> None:
    await drain(api, quota)

    async def refused() -> bool:
        return (await api.reserve(quota)).status in (404, 429)

    await until(refused)


@pytest.mark.usefixtures("coordinator")
async def test_a_removed_quota_can_be_created_again(api: Api, quota: str) -> None:
    await drain(api, quota)
    assert 200 == (await api.set_limit(quota, 5)).status

    async def granted() -> bool:
        return (await api.reserve(quota, 5, request_id="again")).status == 201

    await until(granted)
    assert 429 == (await api.reserve(quota)).status
