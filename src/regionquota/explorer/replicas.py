"""What a region's database may be found to be after a failover: itself, restarted, or a copy that lacks commits."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from regionquota.adapters.memory.region_store import MemoryRegionStore

_MOST: Final = 8
LOST: Final = (0, 1, 1, 2, 3, _MOST)
"""Commits. One may have changed nothing."""


class Replicas:
    """Each lags behind the one after it."""

    def __init__(self, store: MemoryRegionStore, lagging: Iterable[MemoryRegionStore]) -> None:
        self._store = store
        self._copies = deque(lagging, maxlen=_MOST)

    def follow(self) -> None:
        """To be called before each commit."""
        self._copies.append(self._store.copy())

    def fail_over(self, lost: int) -> int:
        """To the one that lacks so many commits, or to the oldest. Returns how many it lacks."""
        lost = min(lost, len(self._copies))
        chosen = self._store
        for _ in range(lost):
            chosen = self._copies.pop()
        self._store.fail_over(chosen)
        return lost
