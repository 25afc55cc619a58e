"""Several budgets in one request: all of them pay, or none does."""

import asyncio
from typing import Any

import pytest
from tests.http.harness import Api, Server


@pytest.fixture
async def budgets(api: Api, tenant: str) -> str:
    """A tenant whose user has 5 left of its own, and whose project has 10, all of which this region holds."""
    await api.set_limit(tenant, 10, scope="project:x")
    await api.set_limit(tenant, 5, scope="user:y")
    for scope in ("project:x", "user:y"):
        await api.settle("release", await api.hold(tenant, scope=scope))
    return tenant


def line(**named: Any) -> dict[str, Any]:
    return named


async def reserved(api: Api, tenant: str, *scopes: str) -> list[int]:
    return [(await api.usage(tenant, scope=scope))["reserved"] for scope in scopes]


async def used(api: Api, tenant: str, *scopes: str) -> list[int]:
    return [(await api.usage(tenant, scope=scope))["used"] for scope in scopes]


async def test_every_line_is_held(api: Api, budgets: str) -> None:
    reply = await api.reserve(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    assert 201 == reply.status
    assert [("user:y", 4)] == [(one["scope"], one["amount"]) for one in reply.body["lines"]]
    assert [4, 4] == await reserved(api, budgets, "project:x", "user:y")


async def test_a_line_may_take_an_amount_of_its_own(api: Api, budgets: str) -> None:
    await api.reserve(budgets, 4, scope="project:x", lines=[line(scope="user:y", amount=1)])
    assert [4, 1] == await reserved(api, budgets, "project:x", "user:y")


async def test_when_one_line_denies_no_counter_changes_and_it_is_named(server: Server, api: Api, budgets: str) -> None:
    before = await server.contents()
    reply = await api.reserve(budgets, 6, scope="project:x", lines=[line(scope="user:y")])
    assert (429, "OVER_LIMIT", "user:y") == (reply.status, reply.body["reason"], reply.body["line"]["scope"])
    assert before == await server.contents()


async def test_a_denial_shows_no_other_tenants_balance(api: Api, budgets: str) -> None:
    shared = f"{budgets}-shared"
    await api.set_limit(shared, 1)
    reply = await api.reserve(budgets, 4, scope="project:x", lines=[line(tenant_id=shared, scope="global")])
    assert (429, shared) == (reply.status, reply.body["line"]["tenant_id"])
    assert not {"available", "limit", "slice", "debt"} & reply.body.keys()


async def test_every_line_settles_with_the_commit(api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    assert 200 == (await api.settle("commit", name)).status
    assert ([4, 4], [0, 0]) == (
        await used(api, budgets, "project:x", "user:y"),
        await reserved(api, budgets, "project:x", "user:y"),
    )


async def test_a_line_without_an_amount_of_its_own_settles_like_the_request(api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    await api.settle("commit", name, actual_amount=3)
    assert [3, 3] == await used(api, budgets, "project:x", "user:y")


async def test_a_line_settles_at_what_the_commit_says_of_it(api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y", amount=5)])
    reply = await api.settle("commit", name, lines=[line(scope="user:y", actual_amount=0)])
    assert [0] == [one["actual_amount"] for one in reply.body["lines"]]
    assert [4, 0] == await used(api, budgets, "project:x", "user:y")


async def test_a_commit_repeated_with_other_amounts_in_its_lines_is_a_conflict(api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    settled = [line(scope="user:y", actual_amount=2)]
    first, again = [await api.settle("commit", name, lines=settled) for _ in range(2)]
    assert (200, first.body) == (again.status, again.body)
    assert 409 == (await api.settle("commit", name)).status


async def test_a_commit_of_a_line_that_was_not_held_is_refused(server: Server, api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x")
    before = await server.contents()
    reply = await api.settle("commit", name, lines=[line(scope="user:y", actual_amount=1)])
    assert (400, "lines") == (reply.status, reply.body["field"])
    assert before == await server.contents()


async def test_every_line_comes_back_with_a_release(api: Api, budgets: str) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    await api.settle("release", name)
    assert [0, 0] == await reserved(api, budgets, "project:x", "user:y")


async def test_a_repeated_request_with_lines_holds_once(api: Api, budgets: str) -> None:
    lines = [line(scope="user:y")]
    first, second = [await api.reserve(budgets, 2, scope="project:x", lines=lines, request_id="a") for _ in range(2)]
    assert first.body["reservation_id"] == second.body["reservation_id"]
    assert [2, 2] == await reserved(api, budgets, "project:x", "user:y")


@pytest.mark.parametrize("lines", [[], [line(scope="user:y", amount=2)], [line(scope="user:z")]])
async def test_a_known_id_with_other_lines_is_a_conflict(api: Api, budgets: str, lines: list[dict[str, Any]]) -> None:
    await api.set_limit(budgets, 5, scope="user:z")
    await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")], request_id="a")
    reply = await api.reserve(budgets, 4, scope="project:x", lines=lines, request_id="a")
    assert (409, "request_id") == (reply.status, reply.body["field"])


async def test_parent_and_child_limit_hold_in_one_request(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 3)
    await api.set_limit(tenant, 5, scope="project:x")
    await api.hold(tenant, 2, scope="project:x")
    assert [2, 2] == await reserved(api, tenant, "global", "project:x")
    reply = await api.reserve(tenant, 2, scope="project:x")
    assert (429, "global") == (reply.status, reply.body["line"]["scope"])
    assert [2, 2] == await reserved(api, tenant, "global", "project:x")


async def test_a_named_parent_and_all_above_it_are_charged(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.set_limit(tenant, 8, scope="folder:f")
    await api.set_limit(tenant, 5, scope="project:x", parent="folder:f")
    name = await api.hold(tenant, 4, scope="project:x")
    await api.settle("commit", name, actual_amount=3)
    assert [3, 3, 3] == await used(api, tenant, "global", "folder:f", "project:x")


async def test_the_regions_own_quota_is_charged_where_it_is_defined(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.set_limit(tenant, 3, scope="region:eu")
    await api.hold(tenant, 2)
    reply = await api.reserve(tenant, 2)
    assert (429, "region:eu") == (reply.status, reply.body["line"]["scope"])


async def test_an_adjustment_counts_above_as_well(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.set_limit(tenant, 5, scope="project:x")
    await api.adjust(tenant, 4, scope="project:x")
    assert [4, 4] == await used(api, tenant, "global", "project:x")


async def test_a_guarantee_is_kept_from_siblings_and_the_rest_is_lent(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    await api.set_limit(tenant, 10, scope="a", guarantee=4)
    await api.set_limit(tenant, 10, scope="b")
    await api.settle("release", await api.hold(tenant, scope="a"))
    assert 429 == (await api.reserve(tenant, 7, scope="b")).status
    assert 201 == (await api.reserve(tenant, 6, scope="b")).status
    assert 201 == (await api.reserve(tenant, 4, scope="a")).status


async def test_one_unit_left_in_a_shared_budget_goes_to_one_of_many(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 1)
    scopes = [f"user:{number}" for number in range(8)]
    for scope in scopes:
        await api.set_limit(tenant, 5, scope=scope)
    replies = await asyncio.gather(*(api.reserve(tenant, 1, scope=scope) for scope in scopes))
    assert (1, 7) == ([one.status for one in replies].count(201), [one.status for one in replies].count(429))


async def test_lines_in_opposite_order_end_in_no_deadlock(api: Api, tenant: str) -> None:
    for scope in ("a", "b"):
        await api.set_limit(tenant, 10_000, scope=scope)
        await api.hold(tenant, scope=scope)
    pairs = [("a", "b"), ("b", "a")] * 25
    replies = await asyncio.gather(
        *(api.reserve(tenant, 1, scope=one, lines=[line(scope=other)]) for one, other in pairs)
    )
    assert {201} == {one.status for one in replies}


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ([line()], "lines[0]"),
        ([line(amount=3)], "lines[0]"),
        ([line(scope="global")], "lines"),
        ([line(scope="user:y"), line(scope="user:y", amount=1)], "lines"),
        ([line(scope="user:y", amount=0)], "lines[0].amount"),
        ([line(scope="user:y", amount="1")], "lines[0].amount"),
        ([line(scope="")], "lines[0].scope"),
        ([line(scope="é" * 129)], "lines[0].scope"),
        ([line(scoop="user:y")], "lines[0].scoop"),
        ([line(scope="region:us")], "lines[0].scope"),
        ([line(scope=f"s{number}") for number in range(17)], "lines"),
        ("user:y", "lines"),
        (None, "lines"),
        ([None], "lines[0]"),
    ],
)
async def test_wrong_lines_are_refused_by_name_and_hold_nothing(
    server: Server, api: Api, budgets: str, lines: Any, field: str
) -> None:
    before = await server.contents()
    reply = await api.reserve(budgets, 1, lines=lines)
    assert (400, field) == (reply.status, reply.body["field"]), reply
    assert before == await server.contents()


async def test_a_reserve_of_another_regions_quota_is_refused_with_its_name(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, scope="region:us")
    reply = await api.reserve(tenant, scope="region:us")
    assert (400, "scope") == (reply.status, reply.body["field"])
    assert "belongs to region us" in reply.body["detail"]


async def test_a_line_of_an_unknown_quota_holds_nothing(server: Server, api: Api, budgets: str) -> None:
    before = await server.contents()
    reply = await api.reserve(budgets, 1, scope="project:x", lines=[line(resource="unheard of")])
    assert (404, "UNKNOWN_QUOTA") == (reply.status, reply.body["reason"])
    assert "unheard of" in reply.body["detail"]
    assert before == await server.contents()


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ([line(actual_amount=1)], "lines[0]"),
        ([line(scope="user:y")], "lines[0].actual_amount"),
        ([line(scope="user:y", actual_amount=-1)], "lines[0].actual_amount"),
    ],
)
async def test_wrong_settled_lines_are_refused_by_name(
    server: Server, api: Api, budgets: str, lines: list[dict[str, Any]], field: str
) -> None:
    name = await api.hold(budgets, 4, scope="project:x", lines=[line(scope="user:y")])
    before = await server.contents()
    reply = await api.settle("commit", name, lines=lines)
    assert (400, field) == (reply.status, reply.body["field"]), reply
    assert before == await server.contents()
