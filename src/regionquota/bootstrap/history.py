"""The loop that keeps a daemon in one history of etcd."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from regionquota.errors import Unavailable
from regionquota.loops import forever, stop
from regionquota.telemetry import Telemetry

_log = structlog.get_logger(__name__)
HISTORY_INTERVAL_S: Final = 2.0
"""How soon a halt that others have declared, an eviction or a recovery is noticed. A read of etcd each time."""


@asynccontextmanager
async def watching_history(
    step: Callable[[], Awaitable[None]], telemetry: Telemetry, trouble: Callable[[], str | None]
) -> AsyncIterator[None]:
    """The first step is made at once: nothing can be read or written in etcd before it succeeded."""
    halted = telemetry.instruments.etcd_halted

    async def watched() -> None:
        await step()
        halted.set(0 if trouble() is None else 1)

    try:
        await watched()
    except Unavailable as error:
        _log.warning("it is not known yet which history of etcd this is", error=str(error))
    watching = asyncio.create_task(forever("watch etcd's history", watched, HISTORY_INTERVAL_S))
    try:
        yield
    finally:
        await stop([watching])
