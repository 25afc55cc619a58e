"""Plans at once what a region cries for, between two rounds."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from regionquota.core.demand import Demand
from regionquota.core.quota import Region
from regionquota.urgency_ports import Cry, UrgencyBoard


class Cries:
    """Collects what is cried for; the newest word of each region's server counts."""

    def __init__(self, board: UrgencyBoard) -> None:
        self._board = board
        self._heard: dict[tuple[Region, str], Cry] = {}
        self._wake = asyncio.Event()

    async def listen(self) -> None:
        """Until etcd does not answer: `EtcdUnavailable`."""
        async with aclosing(self._board.cries()) as cries:
            async for heard in cries:
                for cry in heard:
                    self._heard[cry.region, cry.instance] = cry
                self._wake.set()

    async def take(self) -> Sequence[tuple[Region, Demand]]:
        """Waits until there is something."""
        await self._wake.wait()
        self._wake.clear()
        heard, self._heard = self._heard, {}
        return [(cry.region, word) for cry in heard.values() for word in cry.words]
