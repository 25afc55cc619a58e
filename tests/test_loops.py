"""Loops of the daemons: they outlive what fails, and do not fill the log with it."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from regionquota import loops
from regionquota.errors import EtcdUnavailable
from regionquota.loops import each, forever, stop


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


class Crowd:
    """Counts how many are at work together."""

    def __init__(self, fails: int | None = None) -> None:
        self.fails = fails
        self.begun: list[int] = []
        self.at_work = self.most = 0

    async def work(self, item: int) -> None:
        self.begun.append(item)
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await asyncio.sleep(0)
        self.at_work -= 1
        if item == self.fails:
            raise EtcdUnavailable(f"item {item}")


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (3, 3), (100, 10)])
async def test_each_is_worked_on_once_and_so_many_at_a_time(at_once: int, most: int) -> None:
    crowd = Crowd()
    await each(range(10), crowd.work, at_once)
    assert (list(range(10)), most) == (crowd.begun, crowd.most)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_the_first_failure_is_what_is_raised_and_the_rest_is_left_undone(at_once: int) -> None:
    crowd = Crowd(fails=2)
    with pytest.raises(EtcdUnavailable, match="item 2"):
        await each(range(100), crowd.work, at_once)
    assert len(crowd.begun) < 10


async def test_a_step_that_swallows_its_cancellation_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a connection pool did whose server went away in that moment."""
    monkeypatch.setattr(loops, "CANCEL_AGAIN_S", 0.01)
    begun = asyncio.Event()
    swallowed = 0

    async def step() -> None:
        nonlocal swallowed
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            swallowed += 1
            if swallowed < 3:
                raise EtcdUnavailable("the connection was lost") from None
            raise

    loop = asyncio.create_task(forever("work", step, 0.0))
    await begun.wait()
    await asyncio.wait_for(stop([loop]), 10)
    assert (3, True) == (swallowed, loop.cancelled())


async def test_nothing_is_stopped_at_once() -> None:
    await stop([])
