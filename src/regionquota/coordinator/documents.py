"""The allocation documents that a coordinator leads, as it knows them: listed once, then watched, so that a round reads
none.

What is known may be old: every write compares the revision, and a document that changed meanwhile is planned again.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing

from regionquota.core.allocation import Allocation
from regionquota.core.floors_and_caps import below_floor
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.quota import QuotaKey, Region
from regionquota.loops import RETRY_PAUSE_S, forever, stop
from regionquota.ports import AllocationStore, CompactedError, Stored


class Documents:
    def __init__(self, allocations: AllocationStore, *, relist_interval_s: float, buckets: range = ALL_BUCKETS) -> None:
        self._allocations = allocations
        self._buckets = buckets
        self._relist_interval_s = relist_interval_s
        self._known: dict[QuotaKey, Stored] = {}
        self._unfinished: set[QuotaKey] = set()
        self._below_floor: dict[QuotaKey, frozenset[Region]] = {}
        self.is_complete = False
        """Whether everything is known, and changes are heard of."""

    async def follow(self) -> None:
        """List, then watch, until it is time for the next full list. Raises `EtcdUnavailable`."""
        try:
            revision, documents = await self._allocations.list(self._buckets)
            self._known, self._unfinished, self._below_floor = {}, set(), {}
            for stored in documents:
                self.learn(stored)
            self.is_complete = True
            watch = self._allocations.watch(revision, self._buckets)
            async with asyncio.timeout(self._relist_interval_s), aclosing(watch) as changes:
                async for batch in changes:
                    for stored in batch:
                        self.learn(stored)
        except (TimeoutError, CompactedError):
            return
        except BaseException:
            self.is_complete = False
            raise

    def learn(self, stored: Stored) -> None:
        known = self._known.get(stored.key)
        if known is not None and known.revision > stored.revision:
            return
        self._unfinished.discard(stored.key)
        self._below_floor.pop(stored.key, None)
        if stored.allocation is None:
            self._known.pop(stored.key, None)
            return
        self._known[stored.key] = stored
        if is_unfinished(stored.allocation):
            self._unfinished.add(stored.key)
        if stored.allocation.policy.regions and (regions := below_floor(stored.allocation)):
            self._below_floor[stored.key] = regions

    def active(
        self, reported: Iterable[QuotaKey], evicted: Collection[Region] = (), able: Collection[Region] = ()
    ) -> Collection[Stored]:
        """What a round has to look at: what regions report, what waits for somebody, what evicted regions have left;
        and what those that are `able` to be given anything lack of a floor.
        """
        keys = dict.fromkeys(reported)  # in the order of the reports, which is that of their words in memory
        keys |= dict.fromkeys(self._unfinished)
        keys |= dict.fromkeys(key for key, regions in self._below_floor.items() if not regions.isdisjoint(able))
        if evicted:
            keys |= dict.fromkeys(key for key, stored in self._known.items() if _has_part(stored, evicted))
        return [stored for key in keys if (stored := self._known.get(key)) is not None]

    @property
    def all(self) -> Mapping[QuotaKey, Stored]:
        return self._known


class Shelves:
    """Documents of each group that is led, followed by a task of its own; of others nothing is kept."""

    def __init__(self, allocations: AllocationStore, *, relist_interval_s: float) -> None:
        self._allocations = allocations
        self._relist_interval_s = relist_interval_s
        self._following: dict[int, tuple[Documents, asyncio.Task[None]]] = {}

    def follow(self, parts: Mapping[int, range]) -> None:
        """These groups, with the buckets of each, and no others."""
        for group in self._following.keys() - parts.keys():
            _, task = self._following.pop(group)
            task.cancel()
        for group in parts.keys() - self._following.keys():
            documents = Documents(self._allocations, relist_interval_s=self._relist_interval_s, buckets=parts[group])
            task = asyncio.create_task(forever(f"follow allocations of group {group}", documents.follow, RETRY_PAUSE_S))
            self._following[group] = documents, task

    def complete(self, group: int) -> Documents | None:
        """None: not everything is known of it, or not any more."""
        documents, _ = self._following.get(group, (None, None))
        return documents if documents is not None and documents.is_complete else None

    async def stop(self) -> None:
        tasks = [task for _, task in self._following.values()]
        self._following = {}
        await stop(tasks)


def _has_part(stored: Stored, regions: Collection[Region]) -> bool:
    return stored.allocation is not None and not stored.allocation.slices.keys().isdisjoint(regions)


def is_unfinished(allocation: Allocation) -> bool:
    return bool(allocation.moves or allocation.retired or allocation.pool < 0)
