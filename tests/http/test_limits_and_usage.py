"""Setting limits, what a tenant sees of them, and corrections of what is used."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.http.harness import Api, Reply, Server, until

from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.coordinator import policy_of
from regionquota.config import Config
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.core.quota import QuotaKey


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


def assert_stale(reply: Reply, field: str = "version") -> None:
    assert (409, "application/problem+json", field) == (reply.status, reply.kind, reply.body.get("field")), reply


async def limit_of(server: Server, tenant: str) -> int:
    """The one that is in force."""
    _, allocation = await server.etcd.allocations.read(QuotaKey(tenant, "vcpu"))
    assert allocation is not None
    return allocation.limit


# -- setting a limit --


async def test_a_new_limit_is_answered_with_what_is_in_force(api: Api, tenant: str) -> None:
    body = (await api.set_limit(tenant, 10, kind="consumable", scope="eu:west")).body
    assert (tenant, "vcpu", "eu:west", "consumable", 10, 0) == (
        body["tenant_id"],
        body["resource"],
        body["scope"],
        body["kind"],
        body["limit"],
        body["collecting"],
    )


async def test_a_quota_is_allocated_unless_the_caller_says_otherwise(api: Api, tenant: str) -> None:
    assert "allocated" == (await api.set_limit(tenant, 10)).body["kind"]


async def test_a_limit_is_effective_now_when_nothing_has_to_be_collected(api: Api, tenant: str) -> None:
    at = datetime.fromisoformat((await api.set_limit(tenant, 10)).body["effective_at"])
    assert abs((datetime.now(UTC) - at).total_seconds()) < 5


async def test_a_repeated_limit_changes_nothing(api: Api, tenant: str) -> None:
    first, second = [(await api.set_limit(tenant, 10)).body["revision"] for _ in range(2)]
    assert first == second


async def test_a_newer_version_replaces_the_limit(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, version=1)
    assert 20 == (await api.set_limit(tenant, 20, version=2)).body["limit"]


async def test_an_older_version_never_replaces_a_newer_one(server: Server, api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, version=7)
    assert_stale(await api.set_limit(tenant, 20, version=6))
    assert 10 == await limit_of(server, tenant)


async def test_an_equal_version_with_another_limit_is_a_conflict(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, version=7)
    assert_stale(await api.set_limit(tenant, 20, version=7))


async def test_plan_and_override_count_their_versions_apart(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, version=7)
    assert 30 == (await api.set_limit(tenant, 30, source="OVERRIDE", version=1)).body["limit"]


async def test_an_override_holds_against_a_newer_plan(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 30, source="OVERRIDE", version=1)
    assert 30 == (await api.set_limit(tenant, 10, version=2)).body["limit"]


async def test_an_override_taken_back_leaves_the_plan(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, version=1)
    await api.set_limit(tenant, 30, source="OVERRIDE", version=1)
    assert 10 == (await api.set_limit(tenant, None, source="OVERRIDE", version=2)).body["limit"]


async def test_an_override_is_not_taken_back_by_an_older_version(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 30, source="OVERRIDE", version=5)
    assert_stale(await api.set_limit(tenant, None, source="OVERRIDE", version=4))


async def test_a_quota_does_not_change_its_kind(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, kind="allocated")
    assert 409 == (await api.set_limit(tenant, 10, version=2, kind="consumable")).status


async def test_a_change_without_a_kind_keeps_it(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, kind="consumable")
    assert "consumable" == (await api.set_limit(tenant, 20, version=2)).body["kind"]


async def test_a_limit_of_0_blocks(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 0)
    assert 429 == (await api.reserve(tenant)).status


async def test_the_largest_limit_can_be_held_as_a_whole(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 2**63 - 1)
    assert 201 == (await api.reserve(tenant, 2**63 - 1)).status


async def test_amounts_whose_sum_passes_what_can_be_counted_are_not_added(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 2**63 - 1)
    await api.hold(tenant, 2**63 - 1)
    assert 429 == (await api.reserve(tenant, 2**63 - 1)).status


async def test_a_raised_limit_is_usable_here(api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    await api.set_limit(quota, 20, version=2)

    async def fits() -> bool:
        return (await api.reserve(quota, 10, request_id="more")).status == 201

    await until(fits)
    assert 20 == (await api.usage(quota))["reserved"]


async def test_scopes_are_quotas_of_their_own(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 1, scope="a")
    await api.set_limit(tenant, 1, scope="b")
    got = [(await api.reserve(tenant, scope=scope)).status for scope in ("a", "a", "b", "c")]
    assert [201, 429, 201, 404] == got


async def test_a_quota_that_was_asked_for_in_vain_is_usable_soon_after_it_is_set(api: Api, tenant: str) -> None:
    assert 404 == (await api.reserve(tenant)).status
    await api.set_limit(tenant, 10)

    async def granted() -> bool:
        return (await api.reserve(tenant, request_id="a")).status == 201

    await until(granted, within_s=2)


# -- a limit below what is in use --


async def test_a_limit_below_what_is_in_use_is_accepted_and_says_what_is_to_be_collected(api: Api, quota: str) -> None:
    await api.hold(quota, 8)
    body = (await api.set_limit(quota, 5, version=2)).body
    assert (5, 5, None) == (body["limit"], body["collecting"], body["effective_at"])


@pytest.mark.usefixtures("coordinator")
async def test_nothing_is_granted_while_usage_is_above_the_limit(api: Api, quota: str) -> None:
    name = await api.hold(quota, 8)
    await api.set_limit(quota, 5, version=2)
    await until_slice(api, quota, 8)
    assert 429 == (await api.reserve(quota)).status
    assert 200 == (await api.settle("release", name)).status


@pytest.mark.usefixtures("coordinator")
async def test_what_is_above_a_lowered_limit_drains_as_it_is_given_back(api: Api, quota: str) -> None:
    names = [await api.hold(quota, 4) for _ in range(2)]
    await api.set_limit(quota, 5, version=2)
    await until_slice(api, quota, 8)
    await api.settle("release", names[0])
    await until_slice(api, quota, 5)
    assert (201, 429) == ((await api.reserve(quota)).status, (await api.reserve(quota)).status)


@pytest.mark.usefixtures("coordinator")
async def test_a_hold_is_committed_in_full_under_a_lowered_limit(api: Api, quota: str) -> None:
    name = await api.hold(quota, 8)
    await api.set_limit(quota, 0, version=2)
    await until_slice(api, quota, 8)
    assert 200 == (await api.settle("commit", name)).status
    usage = await api.usage(quota)
    assert (8, 0, 0) == (usage["used"], usage["reserved"], usage["debt"])


async def until_slice(api: Api, tenant: str, size: int) -> None:
    async def reached() -> bool:
        return bool((await api.usage(tenant))["slice"] == size)

    await until(reached)


# -- usage --


async def test_usage_shows_each_balance(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 3))
    await api.hold(quota, 2)
    usage = await api.usage(quota)
    assert (10, 10, 3, 2, 5, 0) == tuple(
        usage[name] for name in ("limit", "slice", "used", "reserved", "available", "debt")
    )


async def test_usage_shows_the_whole_quota_as_far_as_it_was_heard_of(api: Api, quota: str) -> None:
    whole = (await api.usage(quota))["global"]
    assert (10, 0, 0, {"eu": 10}, []) == tuple(whole[name] for name in ("limit", "pool", "retired", "slices", "moves"))


async def test_usage_shows_a_quota_that_was_never_used_here(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)

    async def shown() -> bool:
        return bool((await api.get(f"/v1/tenants/{tenant}/quotas")).body["quotas"])

    await until(shown)
    usage = await api.usage(tenant)
    assert (10, 0, 0, 10) == (usage["limit"], usage["slice"], usage["used"], usage["global"]["pool"])


async def test_looking_at_usage_claims_nothing(server: Server, api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.get(f"/v1/tenants/{tenant}/quotas")
    assert 0 == await server.rows("quota_counters", tenant)


async def test_an_unknown_tenant_has_no_quotas(api: Api, tenant: str) -> None:
    reply = await api.get(f"/v1/tenants/{tenant}/quotas")
    assert (200, []) == (reply.status, reply.body["quotas"])


async def test_usage_names_tenant_region_and_the_age_of_what_was_heard(api: Api, quota: str) -> None:
    body = (await api.get(f"/v1/tenants/{quota}/quotas")).body
    assert (quota, "eu") == (body["tenant_id"], body["region"])
    assert 0 <= body["global_age_s"] < 60


async def test_another_tenants_quotas_are_not_shown(api: Api, quota: str) -> None:
    await api.set_limit(f"{quota}-other", 10)
    assert 1 == len((await api.get(f"/v1/tenants/{quota}/quotas")).body["quotas"])


@pytest.fixture
async def several(api: Api, tenant: str) -> str:
    """A tenant with two resources, one of them in two scopes."""
    for resource, scope in (("vcpu", "a"), ("vcpu", "b"), ("disk", "a")):
        await api.set_limit(tenant, 5, resource, scope=scope)
        assert 201 == (await api.reserve(tenant, resource=resource, scope=scope)).status
    return tenant


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", [("disk", "a"), ("vcpu", "a"), ("vcpu", "b")]),
        ("?resource=vcpu", [("vcpu", "a"), ("vcpu", "b")]),
        ("?scope=a", [("disk", "a"), ("vcpu", "a")]),
        ("?resource=vcpu&scope=b", [("vcpu", "b")]),
        ("?resource=disk&scope=b", []),
        ("?resource=VCPU", []),
    ],
)
async def test_usage_is_filtered_by_resource_and_scope(
    api: Api, several: str, query: str, shown: list[tuple[str, str]]
) -> None:
    quotas = (await api.get(f"/v1/tenants/{several}/quotas{query}")).body["quotas"]
    assert shown == [(one["resource"], one["scope"]) for one in quotas]


async def etag(api: Api, tenant: str) -> str:
    return (await api.get(f"/v1/tenants/{tenant}/quotas")).headers["ETag"]


@pytest.mark.parametrize("known", ["{}", "W/{}", '"other", {}', "*"])
async def test_usage_that_the_caller_knows_is_not_sent_again(api: Api, quota: str, known: str) -> None:
    tag = await etag(api, quota)
    reply = await api.get(f"/v1/tenants/{quota}/quotas", **{"If-None-Match": known.format(tag)})
    assert (304, "", tag) == (reply.status, reply.text, reply.headers["ETag"])


@pytest.mark.parametrize("known", ['"other"', "garbage", "", '"'])
async def test_usage_that_the_caller_does_not_know_is_sent(api: Api, quota: str, known: str) -> None:
    reply = await api.get(f"/v1/tenants/{quota}/quotas", **{"If-None-Match": known})
    assert 200 == reply.status


async def test_the_etag_changes_with_the_usage(api: Api, quota: str) -> None:
    before = await etag(api, quota)
    await api.hold(quota)
    assert before != await etag(api, quota)


async def test_the_etag_is_the_same_while_nothing_changes(api: Api, quota: str) -> None:
    assert await etag(api, quota) == await etag(api, quota)


async def test_usage_may_be_cached_for_seconds_and_by_its_caller_only(api: Api, quota: str) -> None:
    assert "private, max-age=5" == (await api.get(f"/v1/tenants/{quota}/quotas")).headers["Cache-Control"]


async def test_an_allocated_quota_has_no_period(api: Api, quota: str) -> None:
    assert (await api.usage(quota))["period_end"] is None


async def test_a_consumable_quota_ends_its_period_with_the_calendar_month(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, kind="consumable")
    before, end, after = datetime.now(UTC), await period_end(api, tenant), datetime.now(UTC)
    months = {datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC) for now in (before, after)}
    assert end in months


async def period_end(api: Api, tenant: str) -> datetime:
    await api.hold(tenant)
    return datetime.fromisoformat((await api.usage(tenant))["period_end"])


# -- adjustments --


async def test_an_adjustment_changes_what_is_used(api: Api, quota: str) -> None:
    reply = await api.adjust(quota, 4)
    assert (200, 4, 6) == (reply.status, reply.body["used"], reply.body["available"])


async def test_an_adjustment_gives_back(api: Api, quota: str) -> None:
    await api.adjust(quota, 4)
    await api.adjust(quota, -3)
    assert 1 == (await api.usage(quota))["used"]


async def test_an_adjustment_beyond_the_slice_is_debt(api: Api, quota: str) -> None:
    await api.adjust(quota, 12)
    assert 2 == (await api.usage(quota))["debt"]


async def test_a_repeated_adjustment_counts_once(server: Server, api: Api, quota: str) -> None:
    first, second = [await api.adjust(quota, 4, request_id="a") for _ in range(2)]
    assert first.body == second.body
    assert 1 == await server.rows("adjustments", quota)
    assert 1 == await server.rows("usage_ledger", quota)


async def test_a_repeated_adjustment_says_that_it_was_one(api: Api, quota: str) -> None:
    first, second = [await api.adjust(quota, 4, request_id="a") for _ in range(2)]
    assert (None, "true") == (first.headers.get("Idempotency-Replayed"), second.headers.get("Idempotency-Replayed"))


async def test_a_repeated_adjustment_is_answered_as_it_was_at_first(api: Api, quota: str) -> None:
    await api.adjust(quota, 4, request_id="a")
    await api.adjust(quota, 1, request_id="b")
    assert 4 == (await api.adjust(quota, 4, request_id="a")).body["used"]


@pytest.mark.parametrize("other", [{"delta": 5}, {"reason": "another"}, {"resource": "disk"}, {"scope": "eu"}])
async def test_a_known_adjustment_id_with_other_content_is_a_conflict(
    server: Server, api: Api, quota: str, other: dict[str, Any]
) -> None:
    await api.set_limit(quota, 5, "disk")
    await api.set_limit(quota, 5, scope="eu")
    await api.adjust(quota, 4, request_id="a")
    reply = await api.adjust(quota, **{"delta": 4, "request_id": "a"} | other)
    assert (409, "request_id") == (reply.status, reply.body["field"])
    assert 1 == await server.rows("adjustments", quota)


async def test_a_reserve_and_an_adjustment_may_have_the_same_id(api: Api, quota: str) -> None:
    await api.hold(quota, 3, request_id="a")
    assert 200 == (await api.adjust(quota, 4, request_id="a")).status


async def test_an_operator_charges_the_tenant_that_was_named(api: Api, quota: str) -> None:
    other = f"{quota}-other"
    await api.set_limit(other, 10)
    await api.adjust(other, 4)
    assert 0 == (await api.usage(quota))["used"]
