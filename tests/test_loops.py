"""Loops of the daemons: they outlive what fails, and do not fill the log with it."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from regionquota import loops
from regionquota.errors import EtcdUnavailable
from regionquota.loops import forever


async def logged(errors: list[Exception | None]) -> list[MutableMapping[str, Any]]:
    """What a loop logs whose steps end like this."""
    done = asyncio.Event()

    async def step() -> None:
        if not errors:
            done.set()
            return
        error = errors.pop(0)
        if error is not None:
            raise error

    with capture_logs() as said:
        loop = asyncio.create_task(forever("work", step, 0.0))
        await asyncio.wait_for(done.wait(), 10)
        loop.cancel()
    return said


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "RETRY_PAUSE_S", 0.0)


async def test_an_outage_is_said_when_it_begins_and_when_it_ends() -> None:
    said = await logged([EtcdUnavailable("gone")] * 50)
    assert ["warning", "info"] == [line["log_level"] for line in said]


async def test_a_step_that_always_fails_alike_is_said_once_a_minute() -> None:
    said = await logged([ValueError("a bug")] * 50)
    assert 1 == sum(line["log_level"] == "error" for line in said)


async def test_another_failure_is_said_as_well() -> None:
    said = await logged([ValueError("a bug"), KeyError("another")])
    assert 2 == sum(line["log_level"] == "error" for line in said)


async def test_after_a_failure_there_is_a_pause_even_in_a_loop_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "RETRY_PAUSE_S", 0.05)
    began = asyncio.get_running_loop().time()
    await logged([EtcdUnavailable("gone")] * 4)
    assert asyncio.get_running_loop().time() - began >= 0.2
