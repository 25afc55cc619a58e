"""Limits that fall while they are in use, and sums that nothing could count."""

import asyncio
from typing import Any

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import differences
from tests.http import test_limits_and_usage as limits
from tests.http.harness import Api, Server, until

coordinator = limits.coordinator
MOST = 2**63 - 1


# -- a limit below what is in use --


@pytest.mark.usefixtures("coordinator")
async def test_a_lowered_limit_is_shown_as_over_by_what_has_to_drain(api: Api, quota: str) -> None:
    names = [await api.hold(quota, 4) for _ in range(2)]
    assert 200 == (await api.set_limit(quota, 5, version=2)).status

    async def over_by(units: int) -> bool:
        return bool((await api.usage(quota))["over_limit_by"] == units)

    await until(lambda: over_by(3))
    await limits.until_slice(api, quota, 8)
    await until(lambda: over_by(3))  # once what was given up here has also been settled in etcd
    assert 429 == (await api.reserve(quota)).status
    await api.settle("release", names[0])
    await until(lambda: over_by(0))


@pytest.mark.usefixtures("coordinator")
async def test_a_limit_that_changes_while_holds_are_released_leaves_no_balance_below_zero(
    server: Server, api: Api, tenant: str
) -> None:
    await api.set_limit(tenant, 60)
    names = [await api.hold(tenant) for _ in range(40)]
    await api.set_limit(tenant, 5, version=2)
    await limits.until_slice(api, tenant, 40)
    seen: list[dict[str, Any]] = []

    async def change() -> None:
        for version, limit in enumerate([60, 0, 30, 7, 60, 1, 20], start=3):
            assert 200 == (await api.set_limit(tenant, limit, version=version)).status
            seen.append(await api.usage(tenant))
            await asyncio.sleep(0.05)

    async def release() -> None:
        for name in names:
            assert 200 == (await api.settle("release", name)).status
            seen.append(await api.usage(tenant))

    await asyncio.gather(change(), release())

    async def collected() -> bool:
        seen.append(await api.usage(tenant))
        whole = seen[-1]["global"]
        return bool((whole["limit"], whole["pool"] + sum(whole["slices"].values())) == (20, 20) and whole["pool"] >= 0)

    await until(collected)
    figures = ("slice", "used", "reserved", "available", "debt", "overage", "over_limit_by")
    assert [] == [usage for usage in seen if min(usage[name] for name in figures) < 0]
    assert (0, 0) == (seen[-1]["reserved"], seen[-1]["used"])
    async with fixtures.store_on(server.dsn) as store:
        assert [] == differences(await store.check_balances())


# -- sums --


@pytest.mark.parametrize("limit", [MOST, "unlimited"])
async def test_lines_whose_sum_no_balance_could_store_are_refused_and_hold_nothing(
    server: Server, api: Api, tenant: str, limit: int | str
) -> None:
    """Each line fits; the budget above both of them would have to hold the sum."""
    for scope in ("global", "a", "b"):
        await api.set_limit(tenant, limit, scope=scope)
        await api.settle("release", await api.hold(tenant, scope=scope))
    before = await server.contents()
    reply = await api.reserve(tenant, MOST, scope="a", lines=[{"scope": "b", "amount": 1}])
    assert (400, "lines") == (reply.status, reply.body.get("field")), reply
    assert str(MOST) in reply.body["detail"]
    assert before == await server.contents()
    for scope in ("a", "b"):
        assert 0 == (await api.usage(tenant, scope=scope))["reserved"]


async def test_a_request_that_only_the_quotas_rules_refuse_holds_nothing(server: Server, api: Api, tenant: str) -> None:
    """Its fields are right in themselves, and it fits: what is wrong shows when the quota is at hand."""
    await api.set_limit(tenant, 10, max_ttl_s=30)
    await api.settle("release", await api.hold(tenant, ttl_s=30))
    before = await server.contents()
    reply = await api.reserve(tenant, 4, ttl_s=31)
    assert (400, "ttl_s") == (reply.status, reply.body["field"])
    assert before == await server.contents()


# -- somebody acts for a tenant --


async def test_who_settles_and_corrects_for_a_tenant_charges_the_one_that_was_named(
    server: Server, api: Api, quota: str
) -> None:
    """The operator's own tenant has used the same ids, and is charged for nothing."""
    named = f"{quota}-named"
    await api.set_limit(named, 10)
    for tenant in (quota, named):
        await api.hold(tenant, 1, request_id="a")
    name = await api.hold(named, 3, request_id="b")
    await api.settle("commit", name, actual_amount=2, reason="two are running")
    await api.adjust(named, 4, request_id="a")
    assert [0, 6] == [(await api.usage(tenant))["used"] for tenant in (quota, named)]
    assert [0, 2] == [await server.rows("usage_ledger", tenant) for tenant in (quota, named)]
