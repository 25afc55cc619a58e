"""Plans at once what a region cries for, between two rounds."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from regionquota.core.demand import Demand, turn_of
from regionquota.core.quota import QuotaKey, Region
from regionquota.urgency_ports import UrgencyBoard

MAX_AT_ONCE: Final = 200
"""What is cried for that is planned together, what is denied at high priority first: each is a read and a write of
etcd. The rest waits, until it is old."""


@dataclass(frozen=True, slots=True)
class Heard:
    """`short` run short now; `lately` are words of a few seconds ago, newer than what was reported."""

    short: Sequence[tuple[Region, Demand]]
    lately: Sequence[tuple[Region, Demand]]


class Cries:
    """Collects what is cried for; the newest word of each region counts, for `fresh_s`."""

    def __init__(self, board: UrgencyBoard, *, fresh_s: float) -> None:
        self._board = board
        self._fresh_s = fresh_s
        self._short: dict[tuple[Region, QuotaKey], None] = {}
        self._lately: dict[tuple[Region, QuotaKey], tuple[float, Demand]] = {}
        self._wake = asyncio.Event()

    async def listen(self) -> None:
        """Until etcd does not answer: `EtcdUnavailable`."""
        async with aclosing(self._board.cries()) as cries:
            async for heard in cries:
                now = time.monotonic()
                said = {(cry.region, word.key): (now, word) for cry in heard for word in cry.words}
                self._lately |= said
                self._short |= dict.fromkeys(said)
                self._wake.set()

    async def take(self) -> Heard:
        """Waits until there is something."""
        await self._wake.wait()
        fresh = time.monotonic() - self._fresh_s
        self._lately = {at: known for at, known in self._lately.items() if known[0] >= fresh}
        waiting = [at for at in self._short if at in self._lately]
        waiting.sort(key=lambda at: turn_of(self._lately[at][1]))
        short, self._short = waiting[:MAX_AT_ONCE], dict.fromkeys(waiting[MAX_AT_ONCE:])
        if not self._short:
            self._wake.clear()
        return Heard(
            [(region, self._lately[region, key][1]) for region, key in short],
            [(region, word) for (region, _), (_, word) in self._lately.items()],
        )
