"""Background work of the daemons: a step, again and again, that outlives whatever is unreachable for a while."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from regionquota.errors import Unavailable

_log = structlog.get_logger(__name__)


async def forever(name: str, step: Callable[[], Awaitable[object]], pause_s: float) -> None:
    """Ends only by cancellation. An outage is logged when it begins and when it ends, not at every attempt."""
    failing = False
    while True:
        try:
            await step()
        except Unavailable as error:
            if not failing:
                _log.warning("waiting for what does not answer", work=name, error=str(error))
            failing = True
        except Exception:  # noqa: BLE001
            # A bug in one step must not silently end the loop that keeps a region alive.
            _log.exception("a step failed, going on with the next", work=name)
        else:
            if failing:
                _log.info("answers again", work=name)
            failing = False
        await asyncio.sleep(pause_s)


async def stop(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
