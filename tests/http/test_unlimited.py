"""Unlimited is a word, never a number."""

from tests.http.harness import Api, Server, until

from regionquota.core.quota import QuotaKey


async def test_an_unlimited_quota_is_answered_as_such(api: Api, tenant: str) -> None:
    body = (await api.set_limit(tenant, "unlimited")).body
    assert (None, True) == (body["limit"], body["unlimited"])


async def test_an_unlimited_quota_admits_what_no_slice_could(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, "unlimited")
    reply = await api.reserve(tenant, 10**15)
    assert (201, None, None) == (reply.status, reply.body["remaining"], reply.body["limit"])
    assert "RateLimit" not in reply.headers


async def test_an_unlimited_quota_still_counts(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, "unlimited")
    await api.settle("commit", await api.hold(tenant, 7))
    usage = await api.usage(tenant)
    assert (7, 0, 0, None, True) == (
        usage["used"],
        usage["debt"],
        usage["over_limit_by"],
        usage["limit"],
        usage["unlimited"],
    )


async def test_an_unlimited_quota_stops_where_nothing_could_count_further(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, "unlimited")
    await api.hold(tenant, 2**63 - 1)
    assert 429 == (await api.reserve(tenant)).status


async def test_unlimited_to_finite_and_back_keeps_what_is_used(server: Server, api: Api, tenant: str) -> None:
    await api.set_limit(tenant, "unlimited")
    await api.settle("commit", await api.hold(tenant, 7))
    await api.set_limit(tenant, 5, version=2)

    async def denied() -> bool:
        return (await api.reserve(tenant)).status == 429

    await until(denied)
    await api.adjust(tenant, -4)

    async def fits() -> bool:
        return (await api.reserve(tenant, 2, request_id="fits")).status == 201

    await until(fits)
    assert 429 == (await api.reserve(tenant, 1)).status
    await api.set_limit(tenant, "unlimited", version=3)
    assert 201 == (await api.reserve(tenant, 100)).status
    _, allocation = await server.etcd.allocations.read(QuotaKey(tenant, "vcpu"))
    assert allocation is not None
    assert allocation.unlimited


async def test_a_limit_of_0_is_not_unlimited(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 0)
    assert 429 == (await api.reserve(tenant)).status


async def test_another_word_than_unlimited_is_refused_with_those_that_are_known(api: Api, tenant: str) -> None:
    reply = await api.set_limit(tenant, "infinite")
    assert (400, "limit") == (reply.status, reply.body["field"])
    assert '"unlimited"' in reply.body["detail"]
