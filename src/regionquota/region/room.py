"""Callers that would rather wait a moment for room in a quota than be denied at once."""

import asyncio
import time
from bisect import insort
from operator import attrgetter
from typing import Final, NamedTuple

from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey

MAX_WAITING: Final = 1_000
"""Callers at a time; one more is denied at once, or takes the place of one of lower priority, who is denied then."""
LOOK_AGAIN_S: Final = 0.1
"""For what nobody here is told of: units that another server frees, usage that leaks away. A millisecond more for each
caller that waits for the same quota, so that their looks never cost more than that many a second.
"""


class _Waiting(NamedTuple):
    """`word`: whether it is worth another try."""

    rank: int
    since: float
    word: asyncio.Future[bool]


_turn: Final = attrgetter("rank", "since")


class Room:
    """Whoever frees units in this process, or hears of a larger slice, says so; who waits for them tries again."""

    def __init__(self) -> None:
        self._waiting: dict[QuotaKey, list[_Waiting]] = {}
        self._ranks = [0] * len(Priority)
        self._closed = False

    async def wait(self, key: QuotaKey, since: float, wait_s: float, priority: Priority = Priority.NORMAL) -> bool:
        """Until it is worth another try. False: `wait_s` have passed `since` (monotonic), or nobody waits any more, or
        somebody of higher priority needs the place.
        """
        left = since + wait_s - time.monotonic()
        if left <= 0 or self._closed or not self._has_place(priority.rank):
            return False
        one = _Waiting(priority.rank, since, asyncio.get_running_loop().create_future())
        queue = self._waiting.setdefault(key, [])
        insort(queue, one, key=_turn)  # who comes back keeps his place
        self._ranks[one.rank] += 1
        try:
            await asyncio.wait([one.word], timeout=min(left, LOOK_AGAIN_S + len(queue) / 1000))
        finally:
            self._ranks[one.rank] -= 1
            queue.remove(one)
            if not queue:
                del self._waiting[key]
        return not self._closed and (not one.word.done() or one.word.result())

    def _has_place(self, rank: int) -> bool:
        """Whoever came last of the lowest priority that waits makes place for one that is above it."""
        if sum(self._ranks) < MAX_WAITING:
            return True
        if not any(self._ranks[rank + 1 :]):
            return False
        idle = (one for queue in self._waiting.values() for one in queue if not one.word.done())
        last = max(idle, key=_turn, default=None)
        if last is None or last.rank <= rank:
            return False
        last.word.set_result(False)
        return True

    def made(self, key: QuotaKey) -> None:
        """Those that wait are told by priority, then in the order in which they came: so their turns are.

        What is too little for a higher one, a lower one may have: nobody holds units back while he waits.
        """
        for one in self._waiting.get(key, ()):
            if not one.word.done():
                one.word.set_result(True)

    def close(self) -> None:
        """Everybody is denied now, nobody waits any more."""
        self._closed = True
        for key in self._waiting:
            self.made(key)
