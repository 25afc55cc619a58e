"""The life of a reservation, as a caller sees it."""

import asyncio
import uuid
from datetime import datetime
from urllib.parse import quote

import pytest
from tests.http.harness import Api, Reply, Server, Start, until

from regionquota.config import AgentConfig, SweeperConfig


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_reserve_is_answered_with_the_hold(api: Api, quota: str) -> None:
    body = (await api.reserve(quota, 3, request_id="a")).body
    assert ("PENDING", quota, "vcpu", "global", 3, "a") == (
        body["status"],
        body["tenant_id"],
        body["resource"],
        body["scope"],
        body["amount"],
        body["request_id"],
    )


async def test_a_reserve_says_what_remains(api: Api, quota: str) -> None:
    body = (await api.reserve(quota, 3)).body
    assert (7, 10) == (body["remaining"], body["limit"])


async def test_a_hold_is_found_where_its_location_says(api: Api, quota: str) -> None:
    reply = await api.reserve(quota, 3)
    found = await api.get(reply.headers["Location"])
    assert (200, reply.body["reservation_id"]) == (found.status, found.body["reservation_id"])


async def test_a_grant_carries_the_rate_limit_fields_of_the_draft(api: Api, quota: str) -> None:
    headers = (await api.reserve(quota, 3)).headers
    assert ('"quota";q=10', '"quota";r=7') == (headers["RateLimit-Policy"], headers["RateLimit"])


async def test_rate_limit_fields_stay_within_what_structured_fields_can_hold(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 2**63 - 1)
    headers = (await api.reserve(tenant)).headers
    assert ('"quota";q=999999999999999', '"quota";r=999999999999999') == (
        headers["RateLimit-Policy"],
        headers["RateLimit"],
    )


async def test_a_hold_lasts_for_a_minute_unless_the_caller_says_otherwise(api: Api, quota: str) -> None:
    body = (await api.reserve(quota)).body
    assert 60 == round((at(body["expires_at"]) - at(body["created_at"])).total_seconds())


async def test_a_hold_lasts_as_long_as_the_caller_says(api: Api, quota: str) -> None:
    body = (await api.reserve(quota, ttl_s=2_592_000)).body
    assert 2_592_000 == round((at(body["expires_at"]) - at(body["created_at"])).total_seconds())


async def test_a_reserve_over_the_limit_is_denied_with_everything_that_explains_it(api: Api, quota: str) -> None:
    await api.hold(quota, 8)
    reply = await api.reserve(quota, 3)
    body = reply.body
    assert (429, "application/problem+json", "OVER_LIMIT", 3, 2, 10, 10, "eu") == (
        reply.status,
        reply.kind,
        body["reason"],
        body["requested"],
        body["available"],
        body["slice"],
        body["limit"],
        body["region"],
    )


async def test_a_denial_says_when_to_come_back(api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    reply = await api.reserve(quota)
    assert str(reply.body["retry_after_s"]) == reply.headers["Retry-After"]
    assert 1 <= int(reply.headers["Retry-After"])
    assert reply.body["detail"].endswith(f"or come back in {reply.headers['Retry-After']} s")


async def test_a_denial_names_the_line_that_denied(api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    line = (await api.reserve(quota)).body["line"]
    assert {"tenant_id": quota, "resource": "vcpu", "scope": "global"} == line


async def test_a_repeated_reserve_is_answered_with_the_same_hold(api: Api, quota: str) -> None:
    first, second = [await api.reserve(quota, 3, request_id="a") for _ in range(2)]
    assert (201, first.body["reservation_id"]) == (second.status, second.body["reservation_id"])


async def test_a_repeated_reserve_says_that_it_was_one(api: Api, quota: str) -> None:
    first, second = [await api.reserve(quota, 3, request_id="a") for _ in range(2)]
    assert (None, "true") == (first.headers.get("Idempotency-Replayed"), second.headers.get("Idempotency-Replayed"))


async def test_a_repeated_reserve_holds_nothing_more(api: Api, quota: str) -> None:
    for _ in range(3):
        await api.hold(quota, 3, request_id="a")
    assert 3 == (await api.usage(quota))["reserved"]


async def test_a_default_written_out_is_the_same_request(api: Api, quota: str) -> None:
    first = await api.hold(quota, 3, request_id="a")
    assert first == await api.hold(quota, 3, request_id="a", scope="global", ttl_s=60)


async def test_a_denied_request_id_may_be_tried_again(api: Api, quota: str) -> None:
    full = await api.hold(quota, 10)
    assert 429 == (await api.reserve(quota, 1, request_id="a")).status
    await api.settle("release", full)
    assert 201 == (await api.reserve(quota, 1, request_id="a")).status


async def test_a_request_id_of_one_tenant_means_nothing_to_another(api: Api, quota: str) -> None:
    other = f"other-{quota}"
    await api.set_limit(other, 10)
    assert await api.hold(quota, 3, request_id="a") != await api.hold(other, 4, request_id="a")


async def test_a_reserve_repeated_after_the_end_tells_how_it_ended(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 3, request_id="a"))
    assert "COMMITTED" == (await api.reserve(quota, 3, request_id="a")).body["status"]


async def test_a_hold_is_found_by_its_request_id(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3, request_id="a b/c:d")
    found = await api.get(f"/v1/reservations?tenant_id={quota}&request_id={quote('a b/c:d', safe='')}")
    assert (200, name) == (found.status, found.body["reservation_id"])


async def test_a_hold_is_not_found_by_another_tenant_with_the_same_request_id(api: Api, quota: str) -> None:
    await api.hold(quota, 3, request_id="a")
    assert 404 == (await api.get(f"/v1/reservations?tenant_id=x{quota}&request_id=a")).status


async def test_a_commit_turns_the_hold_into_usage(api: Api, quota: str) -> None:
    reply = await api.settle("commit", await api.hold(quota, 3))
    assert (200, "COMMITTED", 3) == (reply.status, reply.body["status"], reply.body["actual_amount"])
    assert (3, 0, 7) == balances(await api.usage(quota))


async def test_a_commit_without_a_body_commits_the_whole(api: Api, quota: str) -> None:
    reply = await api.call("POST", f"/v1/reservations/{await api.hold(quota, 3)}/commit")
    assert 3 == reply.body["actual_amount"]


async def test_a_commit_of_less_frees_the_rest(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 5), actual_amount=2)
    assert (2, 0, 8) == balances(await api.usage(quota))


async def test_a_commit_of_more_is_charged_out_of_what_is_free(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 5), actual_amount=7)
    assert (7, 0, 3) == balances(await api.usage(quota))


async def test_a_commit_of_more_than_there_is_becomes_debt(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 5), actual_amount=12)
    usage = await api.usage(quota)
    assert (12, 2) == (usage["used"], usage["debt"])


async def test_a_tenant_in_debt_reserves_nothing(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 5), actual_amount=12)
    reply = await api.reserve(quota)
    assert (429, "IN_DEBT", 2) == (reply.status, reply.body["reason"], reply.body["debt"])


async def test_a_debt_is_repaid_before_anything_is_granted_again(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 5), actual_amount=12)
    await api.adjust(quota, -3)
    assert (201, 429) == ((await api.reserve(quota)).status, (await api.reserve(quota)).status)


async def test_the_largest_amount_commits_as_debt(api: Api, quota: str) -> None:
    name = await api.hold(quota, 5)
    assert 200 == (await api.settle("commit", name, actual_amount=2**63 - 1)).status


async def test_a_commit_that_cannot_be_counted_is_refused_and_leaves_the_hold(api: Api, quota: str) -> None:
    await api.hold(quota, 1)
    name = await api.hold(quota, 5)
    reply = await api.settle("commit", name, actual_amount=2**63 - 1)
    assert (400, "actual_amount") == (reply.status, reply.body.get("field"))
    assert (0, 6, 4) == balances(await api.usage(quota))


async def test_a_repeated_commit_charges_once(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    first, second = [await api.settle("commit", name) for _ in range(2)]
    assert first.body == second.body
    assert (3, 0, 7) == balances(await api.usage(quota))


async def test_a_commit_with_another_amount_after_a_commit_is_a_conflict(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    await api.settle("commit", name, actual_amount=2)
    reply = await api.settle("commit", name, actual_amount=3)
    assert_conflict(reply, "COMMITTED")
    assert 2 == reply.body["actual_amount"]
    assert (2, 0, 8) == balances(await api.usage(quota))


async def test_a_release_after_a_commit_reverses_nothing(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    await api.settle("commit", name)
    assert_conflict(await api.settle("release", name), "COMMITTED")
    assert (3, 0, 7) == balances(await api.usage(quota))


async def test_a_commit_after_a_release_is_a_conflict(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    await api.settle("release", name)
    assert_conflict(await api.settle("commit", name), "RELEASED")
    assert (0, 0, 10) == balances(await api.usage(quota))


@pytest.mark.parametrize(("event", "state"), [("commit", "COMMITTED"), ("release", "RELEASED")])
async def test_what_has_ended_cannot_be_extended(api: Api, quota: str, event: str, state: str) -> None:
    name = await api.hold(quota, 3)
    await api.settle(event, name)
    assert_conflict(await api.settle("extend", name, ttl_s=9), state)


async def test_a_release_brings_usage_back_to_where_it_began(api: Api, quota: str) -> None:
    before = await api.usage(quota)
    await api.settle("release", await api.hold(quota, 3))
    assert before == await api.usage(quota)


async def test_a_repeated_release_is_answered_like_the_first(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    first, second = [await api.settle("release", name) for _ in range(2)]
    assert (200, first.body) == (second.status, second.body)
    assert (0, 0, 10) == balances(await api.usage(quota))


async def test_released_units_are_available_at_once_at_exhaustion(api: Api, quota: str) -> None:
    name = await api.hold(quota, 10)
    await api.settle("release", name)
    assert 201 == (await api.reserve(quota, 10)).status


async def test_the_sixth_of_six_holds_of_a_fifth_is_refused(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 5000)
    assert [201] * 5 + [429] == [(await api.reserve(tenant, 1000)).status for _ in range(6)]


async def test_an_extended_hold_ends_that_much_from_now(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3, ttl_s=5)
    body = (await api.settle("extend", name, ttl_s=600)).body
    assert 600 == round((at(body["expires_at"]) - at(body["created_at"])).total_seconds(), -1)


async def test_an_extended_hold_outlives_its_first_time(api: Api, quota: str) -> None:
    kept, other = await api.hold(quota, 3, ttl_s=1), await api.hold(quota, 2, ttl_s=1)
    await api.settle("extend", kept, ttl_s=600)
    await until_state(api, other, "EXPIRED")
    assert "PENDING" == (await api.get(f"/v1/reservations/{kept}")).body["status"]


async def test_an_expired_hold_gives_its_units_back(api: Api, quota: str) -> None:
    await until_state(api, await api.hold(quota, 3, ttl_s=1), "EXPIRED")
    assert (0, 0, 10) == balances(await api.usage(quota))


async def test_a_late_commit_is_charged(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3, ttl_s=1)
    await until_state(api, name, "EXPIRED")
    assert "COMMITTED" == (await api.settle("commit", name)).body["status"]
    assert (3, 0, 7) == balances(await api.usage(quota))


async def test_a_late_commit_spends_nobody_elses_hold(api: Api, quota: str) -> None:
    name = await api.hold(quota, 6, ttl_s=1)
    await until_state(api, name, "EXPIRED")
    other = await api.hold(quota, 8)
    await api.settle("commit", name)
    usage = await api.usage(quota)
    assert (6, 8, 4) == (usage["used"], usage["reserved"], usage["debt"])
    assert 200 == (await api.settle("commit", other)).status


async def test_a_release_after_expiry_is_a_conflict_and_returns_nothing_twice(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3, ttl_s=1)
    await until_state(api, name, "EXPIRED")
    assert_conflict(await api.settle("release", name), "EXPIRED")
    assert (0, 0, 10) == balances(await api.usage(quota))


async def test_a_commit_just_after_the_time_ran_out_and_before_the_sweeper_is_charged(
    start: Start, tenant: str
) -> None:
    api = (await start(sweeper=SweeperConfig(interval_s=3600))).api
    await api.set_limit(tenant, 10)
    name = await api.hold(tenant, 3, ttl_s=1)
    await asyncio.sleep(1.1)
    assert 200 == (await api.settle("commit", name)).status


async def test_reservation_ids_sort_by_time(api: Api, quota: str) -> None:
    names = []
    for _ in range(3):
        names.append(await api.hold(quota))
        await asyncio.sleep(0.002)
    assert sorted(names) == names


async def test_a_request_larger_than_the_whole_limit_draws_nothing_here(start: Start, tenant: str) -> None:
    server = await start(agent=half_of_the_pool())
    await server.api.set_limit(tenant, 100)
    await server.api.hold(tenant)
    before = await server.documents()
    statuses = [(await server.api.reserve(tenant, 101)).status for _ in range(5)]
    await asyncio.sleep(0.3)
    assert ([429] * 5, before) == (statuses, await server.documents())


async def test_a_request_within_the_limit_draws_headroom_until_it_fits(start: Start, tenant: str) -> None:
    api = (await start(agent=half_of_the_pool())).api
    await api.set_limit(tenant, 100)

    async def fits() -> bool:
        return (await api.reserve(tenant, 100, request_id="all")).status == 201

    await until(fits)
    assert 100 == (await api.usage(tenant))["slice"]


def half_of_the_pool() -> AgentConfig:
    return AgentConfig(claim_share=0.5, report_interval_s=0.1)


def balances(usage: dict[str, object]) -> tuple[object, object, object]:
    return usage["used"], usage["reserved"], usage["available"]


def assert_conflict(reply: Reply, state: str) -> None:
    assert (409, "application/problem+json", "WRONG_STATE", state) == (
        reply.status,
        reply.kind,
        reply.body["reason"],
        reply.body["reservation_status"],
    )


async def until_state(api: Api, name: str, state: str) -> None:
    async def reached() -> bool:
        return (await api.get(f"/v1/reservations/{name}")).body["status"] == state

    await until(reached)


async def test_the_ledger_names_each_effect_once(server: Server, quota: str) -> None:
    name = await server.api.hold(quota, 3)
    for _ in range(3):
        await server.api.settle("commit", name)
    assert 1 == await server.rows("usage_ledger", quota)


async def test_an_answer_to_a_trace_carries_no_error_whatever_the_traceparent(api: Api, quota: str) -> None:
    body = {"request_id": uuid.uuid4().hex, "tenant_id": quota, "resource": "vcpu", "amount": 1}
    reply = await api.call("POST", "/v1/reservations", body, headers={"traceparent": "00-zz-zz-01" * 50})
    assert 201 == reply.status


async def test_more_than_the_whole_limit_is_told_so(api: Api, quota: str) -> None:
    reply = await api.reserve(quota, 11)
    assert (429, "OVER_LIMIT") == (reply.status, reply.body["reason"])
    assert "11 of vcpu asked for, more than the whole limit 10: ask for less" == reply.body["detail"]
