"""Requests of a priority over HTTP: what each may fill, what a denial says, who is served first of those that wait."""

import asyncio
import time

import pytest
from tests.http.harness import Api, Reply, until

from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey
from regionquota.region import room
from regionquota.region.room import Room

KEY = QuotaKey("acme", "vcpu")
LONG_MS = 20_000
LONG_S = LONG_MS / 1000 / 2


@pytest.fixture
async def graded(api: Api, tenant: str) -> str:
    """A tenant whose vcpu limit is 10, all of which this region holds: 8 for normal, 5 for low priority."""
    assert 200 == (await api.set_limit(tenant, 10, normal_fill_percent=80, low_fill_percent=50)).status
    assert 200 == (await api.settle("release", await api.hold(tenant, 10, priority="high"))).status
    return tenant


async def test_a_denial_names_the_priority_what_is_kept_and_what_helps(api: Api, graded: str) -> None:
    await api.hold(graded, 4)
    reply = await api.reserve(graded, 2, priority="low")
    assert (429, "KEPT_FOR_HIGHER_PRIORITY") == (reply.status, reply.body["reason"])
    assert ("low", 1, 5) == tuple(reply.body[name] for name in ("priority", "available", "kept_for_higher_priority"))
    assert "low_fill_percent 50" in reply.body["detail"]
    assert "Wait with wait_ms, ask for less or at higher priority, or raise low_fill_percent" in reply.body["detail"]
    assert 201 == (await api.reserve(graded, 1, priority="low")).status
    assert "KEPT_FOR_HIGHER_PRIORITY" == (await api.reserve(graded, 4)).body["reason"]
    assert 201 == (await api.reserve(graded, 5, priority="high")).status
    assert "OVER_LIMIT" == (await api.reserve(graded, 1, priority="high")).body["reason"]


async def test_a_denial_for_want_of_room_says_the_same_in_numbers_and_in_words(api: Api, graded: str) -> None:
    await api.hold(graded, 8, priority="high")
    reply = await api.reserve(graded, 5, priority="low")
    assert ("OVER_LIMIT", 0) == (reply.body["reason"], reply.body["available"])
    assert "5 of vcpu asked for at low priority, 2 available, none of it at low priority, in" in reply.body["detail"]


async def test_what_a_priority_may_never_fill_is_denied_at_once(api: Api, graded: str) -> None:
    began = time.monotonic()
    reply = await api.reserve(graded, 6, priority="low", wait_ms=LONG_MS)
    assert (429, "KEPT_FOR_HIGHER_PRIORITY") == (reply.status, reply.body["reason"])
    assert "may fill 5 of the whole limit 10" in reply.body["detail"]
    assert time.monotonic() - began < LONG_S


async def test_the_last_denial_is_told_with_its_priority(api: Api, graded: str) -> None:
    await api.hold(graded, 5)
    await api.reserve(graded, 1, priority="low")
    said = (await api.usage(graded))["last_denial"]
    assert ("KEPT_FOR_HIGHER_PRIORITY", "low", 5, 5) == (
        said["reason"], said["priority"], said["kept"], said["available"],
    )  # fmt: skip


async def test_each_request_of_a_batch_has_its_own(api: Api, graded: str) -> None:
    body = {"tenant_id": graded, "resource": "vcpu", "amount": 5}
    asked = [body | {"request_id": name, "priority": name} for name in ("low", "normal", "high")]
    results = (await api.post("/v1/reservations/batch", {"reservations": asked})).body["results"]
    assert [201, 429, 201] == [one["status"] for one in results]


async def test_a_repeat_at_another_priority_is_the_same_request(api: Api, graded: str) -> None:
    assert 429 == (await api.reserve(graded, 8, request_id="a", priority="low")).status
    first = await api.reserve(graded, 8, request_id="a")
    again = await api.reserve(graded, 8, request_id="a", priority="low")
    assert first.body["reservation_id"] == again.body["reservation_id"]
    assert 8 == (await api.usage(graded))["reserved"]


async def test_the_first_use_claims_so_much_that_the_priority_fits(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 100, low_fill_percent=50)
    assert 201 == (await api.reserve(tenant, 50, priority="low")).status


async def test_more_is_claimed_for_low_priority_until_it_fits(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 100, low_fill_percent=50)
    await api.hold(tenant, 1)

    async def fits() -> bool:
        return 201 == (await api.reserve(tenant, 40, priority="low")).status

    await until(fits)


@pytest.mark.parametrize("priority", ["urgent", "HIGH", 1, None, True, ""])
async def test_a_priority_that_is_none_is_refused(api: Api, quota: str, priority: object) -> None:
    reply = await api.reserve(quota, 1, priority=priority)
    assert (400, "priority") == (reply.status, reply.body["field"])
    assert 'one of "high", "normal", "low"' in reply.body["detail"]


@pytest.mark.parametrize(
    "fills",
    [
        {"low_fill_percent": 101},
        {"low_fill_percent": -1},
        {"low_fill_percent": None},
        {"normal_fill_percent": 50, "low_fill_percent": 51},
    ],
)
async def test_percents_that_are_none_are_refused(api: Api, tenant: str, fills: dict[str, object]) -> None:
    reply = await api.set_limit(tenant, 10, **fills)
    assert (400, "low_fill_percent") == (reply.status, reply.body["field"])


async def test_percents_that_were_set_stay_until_others_are(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, normal_fill_percent=80, low_fill_percent=50)
    policy = (await api.set_limit(tenant, 10, version=2, low_fill_percent=60)).body["policy"]
    assert (80, 60, 2) == (policy["normal_fill_percent"], policy["low_fill_percent"], policy["generation"])
    refused = (await api.set_limit(tenant, 10, version=3, normal_fill_percent=59)).body
    assert "normal_fill_percent" == refused["field"]
    assert "normal_fill_percent must not be below low_fill_percent 60, got 59: set both" in refused["detail"]


async def _waiting(api: Api, tenant: str, priority: str, amount: int = 1) -> "asyncio.Task[Reply]":
    task = asyncio.create_task(api.reserve(tenant, amount, priority=priority, wait_ms=3000))
    await asyncio.sleep(0.3)
    assert not task.done()
    return task


async def test_of_those_that_wait_the_higher_priority_is_served_first(
    api: Api, quota: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LOOK_AGAIN_S", 3600.0)
    held = [await api.hold(quota, 1), await api.hold(quota, 1)]
    await api.hold(quota, 8)
    low, normal, high = [await _waiting(api, quota, priority) for priority in ("low", "normal", "high")]
    await api.settle("release", held[0])
    assert 201 == (await high).status
    assert not normal.done()
    await api.settle("release", held[1])
    assert [201, 429] == [(await normal).status, (await low).status]


async def test_who_waits_at_low_priority_is_told_when_enough_of_the_slice_is_free_for_it(api: Api, graded: str) -> None:
    held = await api.hold(graded, 6, priority="high")
    waiter = await _waiting(api, graded, "low", 2)
    await api.settle("commit", held, actual_amount=3)
    assert 201 == (await asyncio.wait_for(waiter, LONG_S)).status


async def test_where_all_places_are_taken_a_higher_priority_gets_that_of_who_came_last_of_the_lowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "MAX_WAITING", 3)
    here, other = Room(), QuotaKey("acme", "disk")
    now = time.monotonic()

    def wait(key: QuotaKey, since: float, priority: Priority) -> "asyncio.Task[bool]":
        return asyncio.create_task(here.wait(key, now + since, LONG_S, priority))

    normal = wait(KEY, 0, Priority.NORMAL)
    lows = [wait(other, 1, Priority.LOW), wait(other, 2, Priority.LOW)]
    await asyncio.sleep(0)
    assert not await here.wait(KEY, now, LONG_S, Priority.LOW), "there is nobody below it"
    highs = [wait(KEY, 3, Priority.HIGH), wait(KEY, 4, Priority.HIGH)]
    assert [False, False] == [await asyncio.wait_for(low, LONG_S) for low in reversed(lows)]
    assert not await here.wait(KEY, now, LONG_S, Priority.NORMAL)
    last = wait(KEY, 5, Priority.HIGH)
    assert not await asyncio.wait_for(normal, LONG_S)
    assert not await here.wait(KEY, now, LONG_S, Priority.HIGH)
    here.made(KEY)
    assert [True] * 3 == await asyncio.gather(*highs, last)
    assert ({}, [0, 0, 0]) == (here._waiting, here._ranks)
