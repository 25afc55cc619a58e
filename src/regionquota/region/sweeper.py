"""Ends holds whose time ran out. Several sweepers over the same rows do no harm: each hold ends once."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from regionquota.core.quota import QuotaKey
from regionquota.ports import Clock, RegionStore

LOOK_AGAIN_AFTER_S: Final = 0.1
"""So long a hold past its time may still count, if no sweeper is alive and fewer than this are due:"""
MOST_ON_DEMAND: Final = 20_000
"""Holds that one denied request has ended before it is decided again: about a second of work."""


async def sweep_all(
    store: RegionStore, clock: Clock, batch: int, freed: Callable[[QuotaKey, int], None], most: int | None = None
) -> tuple[int, float]:
    """Sweep, `batch` holds in a transaction, until nothing is due or `most` are done.

    Returns how many, and by how many seconds the latest was late.
    """
    total, worst = 0, 0.0
    while most is None or total < most:
        done = await store.expire(clock.now(), batch)
        for key, amount in done.units.items():
            freed(key, amount)
        total, worst = total + done.holds, max(worst, done.lag_s if done.holds else 0.0)
        if done.holds < batch:
            break
    return total, worst


class SweepOnDemand:
    """For who is denied or looks at a balance: holds past their time do not count, whether or not a sweeper is alive.

    Those that ask while a sweep is under way share it.
    """

    def __init__(self, store: RegionStore, clock: Clock, batch: int, freed: Callable[[QuotaKey, int], None]) -> None:
        self._store = store
        self._clock = clock
        self._batch = batch
        self._freed = freed
        self._running: asyncio.Task[bool] | None = None
        self._next = 0.0

    async def sweep(self) -> bool:
        """Whether anything was given back. Looks at most every `LOOK_AGAIN_AFTER_S`. Raises `StoreUnavailable`."""
        if self._running is None or self._running.done():
            if time.monotonic() < self._next:
                return False
            self._next = time.monotonic() + LOOK_AGAIN_AFTER_S
            self._running = asyncio.create_task(self._sweep())
        return await asyncio.shield(self._running)

    async def _sweep(self) -> bool:
        if await self._store.overdue(self._clock.now()) is None:
            return False
        ended, _ = await sweep_all(self._store, self._clock, self._batch, self._freed, MOST_ON_DEMAND)
        return ended > 0
