"""Events that are posted to somebody else, who may be slow, broken or away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.serving import serving

from regionquota.adapters import webhook
from regionquota.adapters.webhook import Webhook
from regionquota.embedded import free_port


@dataclass
class Receiver:
    """Answers with `statuses` in turn, the last for ever; never while `hanging`."""

    statuses: list[int] = field(default_factory=lambda: [200])
    hanging: bool = False
    heard: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""

    async def post(self, request: web.Request) -> web.Response:
        self.heard.append((request.headers["Idempotency-Key"], await request.json()))
        if self.hanging:
            await asyncio.sleep(3600)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(status=status, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def receiving(receiver: Receiver) -> AsyncIterator[Receiver]:
    async with serving(receiver.post) as url:
        receiver.url = f"{url}/hook"
        yield receiver


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    caller = webhook.AsyncRetryingCaller
    monkeypatch.setattr(
        webhook, "AsyncRetryingCaller", lambda **how: caller(**how | {"wait_initial": 0.01, "wait_jitter": 0})
    )
    async with receiving(Receiver()) as receiver:
        yield receiver


@asynccontextmanager
async def sending(url: str, timeout_s: float = 5.0) -> AsyncIterator[tuple[Webhook, list[str]]]:
    done: list[str] = []
    async with Webhook(url, timeout_s=timeout_s, done=done.append) as hook:
        yield hook, done


async def test_an_event_is_posted_with_its_name(receiver: Receiver) -> None:
    async with sending(receiver.url) as (hook, done):
        hook.send("a", {"used": 80})
    assert [("a", {"used": 80})] == receiver.heard
    assert ["delivered"] == done


async def test_events_arrive_in_order(receiver: Receiver) -> None:
    async with sending(receiver.url) as (hook, _):
        for number in range(20):
            hook.send(str(number), {"number": number})
    assert list(range(20)) == [event["number"] for _, event in receiver.heard]


async def test_what_is_refused_is_sent_again_under_the_same_name(receiver: Receiver) -> None:
    receiver.statuses = [503, 429, 204]
    async with sending(receiver.url) as (hook, done):
        hook.send("a", {})
    assert [("a", {})] * 3 == receiver.heard
    assert ["delivered"] == done


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_what_is_refused_for_good_is_given_up_and_the_next_is_sent(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status, status, status, 200]
    async with sending(receiver.url) as (hook, done):
        hook.send("a", {})
        hook.send("b", {})
    assert ["a", "a", "a", "b"] == [name for name, _ in receiver.heard]
    assert ["failed", "delivered"] == done


async def test_who_is_away_costs_no_more_than_the_alerts(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    async with sending(f"http://127.0.0.1:{free_port()}/hook") as (hook, done):
        hook.send("a", {})
    assert ["failed"] == done


async def test_who_never_answers_holds_nobody_up(receiver: Receiver) -> None:
    receiver.hanging = True
    async with asyncio.timeout(10):
        async with sending(receiver.url, timeout_s=0.2) as (hook, _):
            hook.send("a", {})
            hook.send("b", {})


async def test_beyond_the_most_that_may_wait_events_are_dropped(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "MAX_WAITING", 2)
    async with sending(receiver.url) as (hook, done):
        for name in "abc":
            hook.send(name, {})
        assert ["dropped"] == done
    assert ["a", "b"] == [name for name, _ in receiver.heard]


async def test_a_secret_in_the_url_is_not_logged(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    receiver.statuses = [500]
    async with sending(receiver.url + "?token=hush") as (hook, _):
        hook.send("a", {})
    assert "hush" not in caplog.text
