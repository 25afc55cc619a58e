"""What operators do to a region: unknown work that somebody has to decide, and tenants that may not reserve."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.http.harness import Api, Reply, Server, Start, until
from tests.serving import serving

from regionquota.config import AgentConfig, EtcdConfig, ResolverConfig, SweeperConfig

SOME_ID = "526a737d-b77e-4e04-8d2a-5ed39ffd51fb"


async def work(api: Api, tenant: str, count: int = 1) -> list[str]:
    """The ids of started holds of 3 whose deadline passed, longest overdue first."""
    names = [await api.hold(tenant, 3, ttl_s=1) for _ in range(count)]
    for name in names:
        assert 200 == (await api.settle("start", name, operation_id=f"op-{name}")).status

    async def all_unknown() -> bool:
        return count == len(await unknown(api, tenant))

    await until(all_unknown)
    return names


async def listed(api: Api, query: str) -> Reply:
    return await api.get(f"/v1/reservations?state=UNKNOWN{query}")


async def unknown(api: Api, tenant: str) -> list[str]:
    return [one["reservation_id"] for one in (await listed(api, f"&tenant_id={tenant}")).body["reservations"]]


async def balances(api: Api, tenant: str) -> tuple[int, int, int]:
    usage = await api.usage(tenant)
    return usage["used"], usage["reserved"], usage["available"]


# -- unknown work --


async def test_work_of_unknown_outcome_is_listed_longest_overdue_first(api: Api, quota: str) -> None:
    names = await work(api, quota, 2)
    assert names == await unknown(api, quota)


async def test_what_is_listed_says_all_that_identifies_the_work(api: Api, quota: str) -> None:
    [name] = await work(api, quota)
    body = (await listed(api, f"&tenant_id={quota}")).body
    [one] = body["reservations"]
    assert ("eu", "UNKNOWN", f"op-{name}", quota, "vcpu", 3) == (
        body["region"],
        one["status"],
        one["operation_id"],
        one["tenant_id"],
        one["resource"],
        one["amount"],
    )


async def test_what_was_not_started_is_not_listed(api: Api, quota: str) -> None:
    await api.hold(quota, 3, ttl_s=1)
    [name] = await work(api, quota)
    assert [name] == await unknown(api, quota)


async def test_a_list_is_of_one_tenant_or_of_all(api: Api, quota: str) -> None:
    [name] = await work(api, quota)
    assert [] == await unknown(api, f"{quota}-other")
    assert name in [one["reservation_id"] for one in (await listed(api, "&limit=1000")).body["reservations"]]


async def test_a_list_goes_on_where_the_last_one_ended(api: Api, quota: str) -> None:
    names = await work(api, quota, 3)
    first = (await listed(api, f"&tenant_id={quota}&limit=2")).body
    rest = (await listed(api, f"&tenant_id={quota}&limit=2&after={first['next']}")).body
    assert (names[:2], names[2:]) == tuple(
        [one["reservation_id"] for one in page["reservations"]] for page in (first, rest)
    )
    assert rest["next"] is None


async def test_the_list_counts_all_there_are(api: Api, quota: str) -> None:
    before = (await listed(api, "")).body["count"]
    await work(api, quota, 2)
    assert before + 2 == (await listed(api, "&limit=1")).body["count"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=PENDING", "state"),
        ("state=unknown", "state"),
        ("state=", "state"),
        ("state=UNKNOWN&limit=0", "limit"),
        ("state=UNKNOWN&limit=1001", "limit"),
        ("state=UNKNOWN&limit=many", "limit"),
        ("state=UNKNOWN&limit=-1", "limit"),
        ("state=UNKNOWN&limit=%D9%A1", "limit"),
        (f"state=UNKNOWN&limit={'9' * 5000}", "limit"),
        ("state=UNKNOWN&tenant_id=", "tenant_id"),
        ("state=UNKNOWN&after=nobody", "after"),
        (f"state=UNKNOWN&after={SOME_ID}", "after"),
        ("", "tenant_id"),
        ("tenant_id=acme", "request_id"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused_by_name(api: Api, query: str, field: str) -> None:
    reply = await api.get(f"/v1/reservations?{query}")
    assert (400, field) == (reply.status, reply.body["field"])


async def test_an_operators_commit_goes_to_the_ledger_with_its_reason(server: Server, api: Api, quota: str) -> None:
    [name] = await work(api, quota)
    reply = await api.settle("commit", name, actual_amount=2, reason="2 of 3 run")
    assert (200, "COMMITTED") == (reply.status, reply.body["status"])
    assert (2, 0, 8) == await balances(api, quota)
    found = await server.look.fetch("SELECT delta, reason FROM usage_ledger WHERE tenant_id = $1", quota)
    assert [(2, "2 of 3 run")] == [tuple(row) for row in found]


async def test_an_operators_release_goes_to_the_log_with_its_reason(api: Api, quota: str) -> None:
    [name] = await work(api, quota)
    with capture_logs() as logs:
        assert 200 == (await api.settle("release", name, reason="nothing was made")).status
    assert [(name, "RELEASED", "nothing was made")] == [
        (line["reservation"], line["state"], line["reason"]) for line in logs if line["event"] == "settled by hand"
    ]
    assert (0, 0, 10) == await balances(api, quota)
    assert [] == await unknown(api, quota)


async def metrics(api: Api) -> dict[str, float]:
    lines = [line for line in (await api.get("/metrics")).text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_how_much_is_unknown_and_for_how_long_is_measured(start: Start, tenant: str) -> None:
    api = (await start()).api
    await api.set_limit(tenant, 10)
    names = await work(api, tenant, 2)

    async def shows(count: int) -> bool:
        return (await metrics(api)).get("regionquota_unknown_reservations") == count

    await until(lambda: shows(2))
    held = (await api.get(f"/v1/reservations/{names[0]}")).body
    late = datetime.now().astimezone() - datetime.fromisoformat(held["expires_at"])
    assert 0 < (await metrics(api))["regionquota_unknown_age_seconds"] <= late.total_seconds()
    for name in names:
        await api.settle("release", name)
    await until(lambda: shows(0))
    assert 0 == (await metrics(api))["regionquota_unknown_age_seconds"]


@pytest.fixture
async def executor() -> AsyncIterator[tuple[str, dict[str, object]]]:
    """Its URL, and what it knows: operation -> outcome."""
    known: dict[str, object] = {}

    async def answer(request: web.Request) -> web.Response:
        asked = (await request.json())["reservations"]
        outcomes = [
            {"reservation_id": one["reservation_id"], **known[one["operation_id"]]}  # type: ignore[dict-item]
            for one in asked
            if one["operation_id"] in known
        ]
        return web.json_response({"outcomes": outcomes})

    async with serving(answer) as url:
        yield f"{url}/outcomes", known


async def test_a_configured_executor_resolves_unknown_work(
    start: Start, tenant: str, executor: tuple[str, dict[str, object]]
) -> None:
    url, known = executor
    api = (await start(resolver=ResolverConfig(url=url, interval_s=0.1))).api
    await api.set_limit(tenant, 10)
    done, undone, going_on = await work(api, tenant, 3)
    known |= {
        f"op-{done}": {"outcome": "committed", "actual_amount": 2},
        f"op-{undone}": {"outcome": "released"},
        f"op-{going_on}": {"outcome": "running"},
    }

    async def resolved() -> bool:
        return [going_on] == await unknown(api, tenant)

    await until(resolved)
    assert (2, 3, 5) == await balances(api, tenant)


# -- suspension --


async def suspend(server: Server, tenant: str, why: str = "unpaid") -> None:
    await server.etcd.directory.suspend(tenant, 1_800_000_000.0, why)
    await until_denied(server.api, tenant)


async def until_denied(api: Api, tenant: str) -> None:
    async def denied() -> bool:
        return (await api.reserve(tenant, 10**6)).body.get("reason") == "TENANT_SUSPENDED"

    await until(denied)


async def test_a_suspended_tenant_reserves_nothing_and_is_told_why(server: Server, api: Api, quota: str) -> None:
    await suspend(server, quota, "unpaid since May")
    reply = await api.reserve(quota)
    assert (429, "TENANT_SUSPENDED") == (reply.status, reply.body["reason"])
    assert "unpaid since May" in reply.body["detail"]
    assert 1 <= int(reply.headers["Retry-After"])
    assert (0, 0, 10) == await balances(api, quota)


async def test_in_a_batch_only_the_suspended_tenant_is_denied(server: Server, api: Api, quota: str) -> None:
    other = f"{quota}-other"
    await api.set_limit(other, 10)
    await suspend(server, quota)
    asked = [
        {"request_id": uuid.uuid4().hex, "tenant_id": tenant, "resource": "vcpu", "amount": 1}
        for tenant in (quota, other)
    ]
    results = (await api.post("/v1/reservations/batch", {"reservations": asked})).body["results"]
    assert [429, 201] == [one["status"] for one in results]


async def test_a_suspended_tenants_budget_may_be_a_line_of_another(server: Server, api: Api, quota: str) -> None:
    other = f"{quota}-other"
    await api.set_limit(other, 10)
    await suspend(server, quota)
    assert 201 == (await api.reserve(other, lines=[{"tenant_id": quota}])).status


async def test_what_a_suspended_tenant_holds_is_settled_as_before(server: Server, api: Api, quota: str) -> None:
    one, other, third = [await api.hold(quota, 2) for _ in range(3)]
    await suspend(server, quota)
    replies = [
        await api.settle("start", one, operation_id="op"),
        await api.settle("extend", one, ttl_s=60),
        await api.settle("commit", one),
        await api.settle("release", other),
        await api.settle("commit", third),
        await api.adjust(quota, -1),
        await api.adjust(quota, 1),
        await api.set_limit(quota, 10, version=2),
    ]
    assert [200] * 8 == [reply.status for reply in replies]
    assert (4, 0, 6) == await balances(api, quota)


async def test_a_suspended_tenant_still_learns_what_became_of_an_earlier_request(
    server: Server, api: Api, quota: str
) -> None:
    name = await api.hold(quota, 2, request_id="earlier")
    await suspend(server, quota)
    assert name == await api.hold(quota, 2, request_id="earlier")


async def test_a_resumed_tenant_reserves_again(server: Server, api: Api, quota: str) -> None:
    await suspend(server, quota)
    await server.etcd.directory.resume(quota)

    async def granted() -> bool:
        return (await api.reserve(quota, request_id="again")).status == 201

    await until(granted)


async def test_a_suspension_holds_from_the_first_request_after_a_restart_without_etcd(
    start: Start, quota: str, server: Server
) -> None:
    await suspend(server, quota)

    async def remembered() -> bool:
        return await server.rows("suspended_tenants", quota) == 1

    await until(remembered)
    away = EtcdConfig(endpoints=("127.0.0.1:1",), prefix=server.prefix, timeout_s=0.2)
    api = (await start(like=server, etcd=away)).api
    assert "TENANT_SUSPENDED" == (await api.reserve(quota)).body["reason"]


async def test_a_new_server_obeys_a_suspension_from_its_first_request_on(
    start: Start, quota: str, server: Server
) -> None:
    await suspend(server, quota)
    await server.look.execute("DELETE FROM suspended_tenants")
    slow = AgentConfig(claim_share=1.0, report_interval_s=3600)
    api = (await start(like=server, agent=slow, sweeper=SweeperConfig(interval_s=3600))).api
    assert "TENANT_SUSPENDED" == (await api.reserve(quota)).body["reason"]


async def test_every_server_of_a_region_obeys(start: Start, quota: str, server: Server) -> None:
    api = (await start(like=server)).api
    await suspend(server, quota)
    await until_denied(api, quota)
    replies = await asyncio.gather(*(one.reserve(quota) for one in (api, server.api)))
    assert [429, 429] == [reply.status for reply in replies]
