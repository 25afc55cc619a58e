"""An event loop whose time passes only when everybody waits, and then at once."""

import asyncio
import gc
import heapq
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple
from unittest.mock import patch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_asleep = asyncio.sleep


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: the same coroutines do the same in the same order, what is due at the same instant in the order
    in which it was asked for. Waits for nothing outside. Raises `RuntimeError` if all wait for ever.

    asyncio's own way of asking the system for news before each step, and of keeping timers, is half of the work of a
    simulated day; hence another one here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle | asyncio.Future[None]]] = []
        self._asked = 0

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._asked += 1
        heapq.heappush(self._timers, (when, self._asked, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    async def sleep(self, delay: float, result: T | None = None) -> T | None:
        """As `asyncio.sleep`, without a handle."""
        if delay <= 0:
            return await _asleep(0, result)
        due: asyncio.Future[None] = self.create_future()
        self._asked += 1
        heapq.heappush(self._timers, (self._now + delay, self._asked, due))
        await due
        return result

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time has come."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who had to be woken."""

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._pass_time()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001
                handle._run()  # noqa: SLF001

    def _pass_time(self) -> None:
        """Until the next timer that is still wanted."""
        while self._timers:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled():
                continue
            self._now = max(self._now, when)
            if isinstance(timer, asyncio.TimerHandle):
                self._ready.append(timer)  # type: ignore[attr-defined]
            else:
                timer.set_result(None)
            return
        raise RuntimeError("everybody waits for somebody else")


@contextmanager
def _nothing_from_outside(loop: VirtualLoop) -> Iterator[None]:
    """What measures how long something takes measures virtual seconds; names that are made up are so every time."""
    names = random.Random(0)  # noqa: S311 - repeatable, not secret
    with (
        patch.object(time, "monotonic", loop.time),
        patch.object(asyncio, "sleep", loop.sleep),
        patch.object(secrets, "randbits", names.getrandbits),
        patch.object(secrets, "token_hex", lambda size: names.randbytes(size).hex()),
    ):
        yield


@contextmanager
def _nothing_older_collected() -> Iterator[None]:
    """A million requests that wait for their turn are no garbage: Python need not look for it among them."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def run(work: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop()
    try:
        with _nothing_from_outside(loop), _nothing_older_collected():
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(work)
    finally:
        _cancel_all(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
