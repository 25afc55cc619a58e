"""Driving coroutines without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but its turn, which it has: asyncio.sleep(0) at most."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
