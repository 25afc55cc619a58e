"""Counts what this process granted, freed and denied between two reports."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey
from regionquota.core.slice import Holding

MAX_QUOTAS: Final = 2_000
"""Quotas in one report: about 300 kB, well below etcd's request limit of 1.5 MB. The busiest are named."""


@dataclass(slots=True)
class _Tally:
    granted: int = 0
    freed: int = 0
    denied: int = 0


@dataclass(slots=True)
class DemandMeter:
    """`since` is when the counting began, in seconds since 1970."""

    since: float
    _tallies: dict[QuotaKey, _Tally] = field(default_factory=dict)
    _touched: set[QuotaKey] = field(default_factory=set)

    def touch(self, key: QuotaKey) -> None:
        """Something about the holding changed, such as its slice."""
        self._touched.add(key)

    def take_touched(self) -> Sequence[QuotaKey]:
        """What was touched, granted, freed or denied since it was last returned here: the busiest `MAX_QUOTAS`."""
        touched = heapq.nlargest(MAX_QUOTAS, self._touched, key=self._activity)
        self._touched.difference_update(touched)
        return touched

    def _activity(self, key: QuotaKey) -> tuple[int, int]:
        tally = self._tallies.get(key)
        return (0, 0) if tally is None else (tally.denied, tally.granted + tally.freed)

    def granted(self, key: QuotaKey, amount: int) -> None:
        self._tally(key).granted += amount

    def freed(self, key: QuotaKey, amount: int) -> None:
        self._tally(key).freed += amount

    def denied(self, key: QuotaKey, amount: int) -> None:
        self._tally(key).denied += amount

    def report(self, holdings: Sequence[Holding], now: float) -> list[Demand]:
        """What to say of each quota that holds anything or was asked for; starts counting anew."""
        seconds = max(now - self.since, 0.0)
        tallies, self._tallies, self.since = self._tallies, {}, now
        words = []
        for held in holdings:
            tally = tallies.get(held.key, _Tally())
            counter = held.counter
            if counter.slice or counter.used or counter.reserved or tally.denied:
                words.append(
                    Demand(
                        key=held.key,
                        slice=counter.slice,
                        used=counter.used,
                        reserved=counter.reserved,
                        granted=tally.granted,
                        freed=tally.freed,
                        denied=tally.denied,
                        seconds=seconds,
                    )
                )
        words.sort(key=lambda word: (word.denied, word.granted + word.freed, word.slice), reverse=True)
        return words[:MAX_QUOTAS]

    def _tally(self, key: QuotaKey) -> _Tally:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        self._touched.add(key)
        return tally
