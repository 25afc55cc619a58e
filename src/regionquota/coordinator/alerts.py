"""Tells once of each threshold that the usage of a quota has crossed, whoever leads.

The mark in etcd is written before anybody is told: a coordinator that dies between the two leaves the crossing untold,
none tells of it twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regionquota.alert_ports import MarkStore, StoredMark
from regionquota.coordinator.leading import Led
from regionquota.core.alerts import Mark, begun_by, is_watched, threshold_of, told_in, usage_of
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey, Region

MAX_WRITES: Final = 1_000
"""Marks changed in one look, those that are to be told first; the others come next time."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """At least `used` units are in use over all regions: `mark.threshold` percent of the limit, or more."""

    key: QuotaKey
    allocation: Allocation
    mark: Mark
    used: int


@dataclass(frozen=True, slots=True)
class _Change:
    """Of a mark at `revision`. `crossing` None: nobody is told."""

    key: QuotaKey
    revision: int
    mark: Mark | None
    crossing: Crossing | None


class Alerts:
    """`thresholds` are percentages of the limit, at least one; `tell` hears of each crossing."""

    def __init__(self, store: MarkStore, thresholds: Sequence[int], tell: Callable[[Crossing], None]) -> None:
        self._store = store
        self._thresholds = thresholds
        self._tell = tell
        self._unanswered: Crossing | None = None

    async def look(
        self,
        find: Callable[[QuotaKey], Allocation | None],
        demand: Sequence[tuple[Region, Demand]],
        led: Led,
        now: float,
    ) -> None:
        """Compare usage with what was told before, and tell the rest. `find` knows what is led, `demand` is of that."""
        marks = await self._store.marks()
        self._tell_what_was_written_after_all(marks)
        marks = {key: stored for key, stored in marks.items() if key in led}
        changes = sorted(self._changes(find, demand, marks, now), key=lambda change: change.crossing is None)
        for change in islice(changes, MAX_WRITES):
            self._unanswered = change.crossing
            written = await self._store.swap_mark(change.key, change.revision, change.mark, led.fence_of(change.key))
            self._unanswered = None
            if written is not None and change.crossing is not None:
                self._tell(change.crossing)

    def _tell_what_was_written_after_all(self, marks: Mapping[QuotaKey, StoredMark]) -> None:
        """Of the write that etcd had not answered."""
        crossing, self._unanswered = self._unanswered, None
        if crossing is not None and crossing.key in marks and marks[crossing.key].mark == crossing.mark:
            self._tell(crossing)

    def _changes(
        self,
        find: Callable[[QuotaKey], Allocation | None],
        demand: Sequence[tuple[Region, Demand]],
        marks: Mapping[QuotaKey, StoredMark],
        now: float,
    ) -> Iterator[_Change]:
        words: dict[QuotaKey, list[tuple[Region, Demand]]] = {}
        for region, word in demand:
            words.setdefault(word.key, []).append((region, word))
        for key in dict.fromkeys((*words, *marks)):
            allocation = find(key)
            if allocation is None or not is_watched(allocation):
                if key in marks:
                    yield _Change(key, marks[key].revision, None, None)
            elif key in marks or self._may_cross(allocation, words[key]):
                yield from self._change(key, allocation, words.get(key, ()), marks.get(key), now)

    def _may_cross(self, allocation: Allocation, words: Sequence[tuple[Region, Demand]]) -> bool:
        """Of most quotas that is soon said."""
        return 100 * sum(word.used for _, word in words) >= min(self._thresholds) * allocation.limit

    def _change(
        self,
        key: QuotaKey,
        allocation: Allocation,
        words: Sequence[tuple[Region, Demand]],
        stored: StoredMark | None,
        now: float,
    ) -> Iterator[_Change]:
        told = None if stored is None else stored.mark
        revision = 0 if stored is None else stored.revision
        usage = usage_of(allocation, words, told, now)
        before, threshold = told_in(usage, told), threshold_of(allocation.limit, usage, told, self._thresholds)
        if threshold == 0:
            # What was told of a period is kept until nobody can speak of that period any more.
            if told is not None and (before > 0 or told.epoch < begun_by(allocation, now)):
                yield _Change(key, revision, None, None)
        elif threshold != before:
            mark = Mark(threshold, usage.epoch, now)
            crossing = Crossing(key, allocation, mark, usage.least) if threshold > before else None
            yield _Change(key, revision, mark, crossing)
