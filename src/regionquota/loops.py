"""Background work of the daemons: a step, again and again, that outlives whatever is unreachable for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, TypeVar

import structlog

from regionquota.errors import Unavailable

_log = structlog.get_logger(__name__)
T = TypeVar("T")


RETRY_PAUSE_S: Final = 0.2
"""The least time between a step that failed and the next."""
CANCEL_AGAIN_S: Final = 0.5
"""How long a task may take to end before it is cancelled once more."""
SAY_AGAIN_S: Final = 60.0
"""How often a step that fails for the same reason is logged with its traceback."""


async def forever(name: str, step: Callable[[], Awaitable[object]], pause_s: float) -> None:
    """Ends only by cancellation. An outage is logged when it begins and when it ends, not at every attempt."""
    failing = False
    said: dict[str, float] = {}
    while True:
        try:
            await step()
        except Unavailable as error:
            if not failing:
                _log.warning("waiting for what does not answer", work=name, error=str(error))
            failing = True
        except Exception as error:  # noqa: BLE001
            # A bug in one step must not silently end the loop that keeps a region alive, nor fill the disk.
            failing = True
            if time.monotonic() - said.get(repr(error), -SAY_AGAIN_S) >= SAY_AGAIN_S:
                said = {repr(error): time.monotonic()}
                _log.exception("a step failed, going on with the next", work=name)
        else:
            if failing:
                _log.info("answers again", work=name)
            failing = False
        await asyncio.sleep(max(pause_s, RETRY_PAUSE_S) if failing else pause_s)


async def each(items: Collection[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Up to so many at a time. Raises what the first raises that fails; what has not begun then is left undone."""
    queue = iter(items)

    async def some() -> None:
        for item in queue:
            await work(item)

    if min(at_once, len(items)) <= 1:
        return await some()
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(at_once, len(items))):
                tasks.create_task(some())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def stop(tasks: "Iterable[asyncio.Task[None]]") -> None:
    """Cancel, again and again: a driver that loses its connection just then may raise that in place of the
    cancellation, and the loop would go on for ever.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
