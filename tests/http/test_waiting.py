"""A caller that waits for room (`wait_ms`) instead of being denied at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.http.harness import Api, Reply

from regionquota.core.quota import QuotaKey
from regionquota.region import room
from regionquota.region.room import Room

KEY = QuotaKey("acme", "vcpu")
LONG_MS = 20_000
LONG_S = LONG_MS / 1000 / 2
"""Whoever is woken has its answer long before."""


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself."""
    monkeypatch.setattr(room, "LOOK_AGAIN_S", 3600.0)


async def waiting(api: Api, tenant: str, amount: int = 1, wait_ms: int = LONG_MS) -> "asyncio.Task[Reply]":
    """A reserve that was denied and waits."""
    task = asyncio.create_task(api.reserve(tenant, amount, wait_ms=wait_ms))
    await asyncio.sleep(0.3)
    assert not task.done()
    return task


async def _release(api: Api, tenant: str, held: str) -> None:
    await api.settle("release", held)


async def _commit_less(api: Api, tenant: str, held: str) -> None:
    await api.settle("commit", held, actual_amount=5)


async def _give_back(api: Api, tenant: str, held: str) -> None:
    await api.settle("commit", held)
    await api.adjust(tenant, -10)


async def _raise(api: Api, tenant: str, held: str) -> None:
    await api.set_limit(tenant, 20, version=2)


@pytest.mark.usefixtures("only_told")
@pytest.mark.parametrize("free", [_release, _commit_less, _give_back, _raise])
async def test_who_waits_is_woken_at_once_by_units_that_are_freed_here(
    api: Api, quota: str, free: Callable[[Api, str, str], Awaitable[None]]
) -> None:
    held = await api.hold(quota, 10)
    waiter = await waiting(api, quota, 3)
    await free(api, quota, held)
    reply = await asyncio.wait_for(waiter, LONG_S)
    assert (201, 3) == (reply.status, reply.body["amount"])


@pytest.mark.usefixtures("only_told")
async def test_who_waits_is_woken_when_a_hold_expires(api: Api, quota: str) -> None:
    await api.hold(quota, 10, ttl_s=1)
    assert 201 == (await asyncio.wait_for(await waiting(api, quota), LONG_S)).status


async def test_what_another_server_frees_is_found_soon(api: Api, quota: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = await api.hold(quota, 10)
    waiter = await waiting(api, quota)
    monkeypatch.setattr(Room, "made", lambda _self, _key: None)  # as if it had happened elsewhere
    await api.settle("release", held)
    assert 201 == (await asyncio.wait_for(waiter, LONG_S)).status


async def test_who_waits_and_is_served_was_not_denied(api: Api, quota: str) -> None:
    held = await api.hold(quota, 10)
    waiter = await waiting(api, quota, 3)
    assert (await api.usage(quota))["last_denial"] is None
    await api.settle("release", held)
    assert 201 == (await asyncio.wait_for(waiter, LONG_S)).status
    assert (await api.usage(quota))["last_denial"] is None


async def test_who_has_waited_in_vain_was_denied_when_he_was_told(api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    first = await api.reserve(quota, 2)
    told = (await api.usage(quota))["last_denial"]
    assert (429, 2) == (first.status, told["amount"])
    assert 429 == (await api.reserve(quota, 3, wait_ms=200)).status
    later = (await api.usage(quota))["last_denial"]
    assert 3 == later["amount"]
    assert told["at"] < later["at"]


async def test_who_has_waited_long_enough_is_denied(api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    began = time.monotonic()
    reply = await api.reserve(quota, 1, wait_ms=500)
    assert (429, "OVER_LIMIT") == (reply.status, reply.body["reason"])
    assert 0.5 <= time.monotonic() - began


async def test_the_first_that_waits_is_the_first_that_is_served(api: Api, quota: str) -> None:
    held = await api.hold(quota, 1)
    await api.hold(quota, 9)
    first = await waiting(api, quota, wait_ms=2000)
    second = await waiting(api, quota, wait_ms=2000)
    await api.settle("release", held)
    assert [201, 429] == [(await first).status, (await second).status]


async def test_what_can_never_fit_is_denied_at_once(api: Api, quota: str) -> None:
    began = time.monotonic()
    assert 429 == (await api.reserve(quota, 11, wait_ms=LONG_MS)).status
    assert time.monotonic() - began < LONG_S


async def test_a_repeat_with_another_patience_is_the_same_request(api: Api, quota: str) -> None:
    first = await api.reserve(quota, 1, request_id="a", wait_ms=100)
    again = await api.reserve(quota, 1, request_id="a")
    assert first.body["reservation_id"] == again.body["reservation_id"]


@pytest.mark.parametrize("wait_ms", [-1, 30_001, 1.5, True, "100", None])
async def test_a_patience_that_is_none_is_refused(api: Api, quota: str, wait_ms: object) -> None:
    reply = await api.reserve(quota, 1, wait_ms=wait_ms)
    assert (400, "wait_ms") == (reply.status, reply.body["field"])


async def test_a_batch_does_not_wait(api: Api, quota: str) -> None:
    body = {"request_id": "a", "tenant_id": quota, "resource": "vcpu", "amount": 1, "wait_ms": 1}
    [result] = (await api.post("/v1/reservations/batch", {"reservations": [body]})).body["results"]
    assert (400, "wait_ms") == (result["status"], result["body"]["field"])


async def test_beyond_the_most_that_may_wait_callers_are_denied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_WAITING", 1)
    here = Room()
    first = asyncio.create_task(here.wait(KEY, time.monotonic(), LONG_S))
    await asyncio.sleep(0)
    assert not await here.wait(KEY, time.monotonic(), LONG_S)
    here.made(KEY)
    assert await first


async def test_at_the_end_nobody_waits() -> None:
    here = Room()
    waiters = [asyncio.create_task(here.wait(KEY, time.monotonic(), LONG_S)) for _ in range(3)]
    await asyncio.sleep(0)
    here.close()
    async with asyncio.timeout(LONG_S):
        assert [False] * 3 == await asyncio.gather(*waiters)
        assert not await here.wait(KEY, time.monotonic(), LONG_S)


async def test_who_goes_away_is_forgotten() -> None:
    here = Room()
    waiter = asyncio.create_task(here.wait(KEY, time.monotonic(), LONG_S))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert ({}, 0) == (here._waiting, sum(here._ranks))
