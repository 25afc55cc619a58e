"""An event loop whose time passes only when everybody waits, and then at once."""

import asyncio
import selectors
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class _Deaf(selectors.SelectSelector):
    """Of a loop that waits for nothing outside."""

    def select(self, timeout: float | None = None) -> list[Any]:  # noqa: ARG002
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Deterministic: the same coroutines do the same in the same order. Raises `RuntimeError` if all wait for ever."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Deaf())

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise RuntimeError("everybody waits for somebody else")
            self._now = max(self._now, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


@contextmanager
def _virtual_time(loop: VirtualLoop) -> Iterator[None]:
    """What measures how long something takes measures virtual seconds."""
    with patch.object(time, "monotonic", loop.time):
        yield


def run(work: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop()
    try:
        with _virtual_time(loop):
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
