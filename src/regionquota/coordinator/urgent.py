"""Plans at once what a region cries for, between two rounds."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey, Region
from regionquota.urgency_ports import Cry, UrgencyBoard


@dataclass(frozen=True, slots=True)
class Heard:
    """`short` run short now; `lately` are words of a few seconds ago, newer than what was reported."""

    short: Sequence[tuple[Region, Demand]]
    lately: Sequence[tuple[Region, Demand]]


class Cries:
    """Collects what is cried for; the newest word of each region's server counts."""

    def __init__(self, board: UrgencyBoard, *, fresh_s: float) -> None:
        self._board = board
        self._fresh_s = fresh_s
        self._heard: dict[tuple[Region, str], Cry] = {}
        self._lately: dict[tuple[Region, QuotaKey], tuple[float, Demand]] = {}
        self._wake = asyncio.Event()

    async def listen(self) -> None:
        """Until etcd does not answer: `EtcdUnavailable`."""
        async with aclosing(self._board.cries()) as cries:
            async for heard in cries:
                now = time.monotonic()
                for cry in heard:
                    self._heard[cry.region, cry.instance] = cry
                    self._lately |= {(cry.region, word.key): (now, word) for word in cry.words}
                self._wake.set()

    async def take(self) -> Heard:
        """Waits until there is something."""
        await self._wake.wait()
        self._wake.clear()
        heard, self._heard = self._heard, {}
        fresh = time.monotonic() - self._fresh_s
        self._lately = {at: known for at, known in self._lately.items() if known[0] >= fresh}
        return Heard(
            [(cry.region, word) for cry in heard.values() for word in cry.words],
            [(region, word) for (region, _), (_, word) in self._lately.items()],
        )
