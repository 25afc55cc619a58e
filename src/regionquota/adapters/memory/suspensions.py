"""SuspensionStore in memory."""

from collections.abc import Mapping

from regionquota.ports import Suspension


class MemorySuspensionStore:
    def __init__(self) -> None:
        self._known: Mapping[str, Suspension] = {}

    async def recall(self) -> Mapping[str, Suspension]:
        return self._known

    async def remember(self, suspensions: Mapping[str, Suspension]) -> None:
        self._known = dict(suspensions)
