"""Callers that would rather wait a moment for room in a quota than be denied at once."""

import asyncio
import time
from bisect import insort
from operator import attrgetter
from typing import Final, NamedTuple

from regionquota.core.quota import QuotaKey

MAX_WAITING: Final = 1_000
"""Callers at a time; further ones are denied at once."""
LOOK_AGAIN_S: Final = 0.1
"""For what nobody here is told of: units that another server frees, usage that leaks away. A millisecond more for each
caller that waits for the same quota, so that their looks never cost more than that many a second.
"""


class _Waiting(NamedTuple):
    since: float
    word: asyncio.Future[None]


_since: Final = attrgetter("since")


class Room:
    """Whoever frees units in this process, or hears of a larger slice, says so; who waits for them tries again."""

    def __init__(self) -> None:
        self._waiting: dict[QuotaKey, list[_Waiting]] = {}
        self._count = 0
        self._closed = False

    async def wait(self, key: QuotaKey, since: float, wait_s: float) -> bool:
        """Until it is worth another try. False: `wait_s` have passed `since` (monotonic), or nobody waits any more."""
        left = since + wait_s - time.monotonic()
        if left <= 0 or self._closed or self._count >= MAX_WAITING:
            return False
        one = _Waiting(since, asyncio.get_running_loop().create_future())
        queue = self._waiting.setdefault(key, [])
        insort(queue, one, key=_since)  # who comes back keeps his place
        self._count += 1
        try:
            await asyncio.wait([one.word], timeout=min(left, LOOK_AGAIN_S + len(queue) / 1000))
        finally:
            self._count -= 1
            queue.remove(one)
            if not queue:
                del self._waiting[key]
        return not self._closed

    def made(self, key: QuotaKey) -> None:
        """Those that wait are told in the order in which they came."""
        for one in self._waiting.get(key, ()):
            if not one.word.done():
                one.word.set_result(None)

    def close(self) -> None:
        """Everybody is denied now, nobody waits any more."""
        self._closed = True
        for key in self._waiting:
            self.made(key)
