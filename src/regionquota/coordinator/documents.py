"""The allocation documents as a coordinator knows them: listed once, then watched, so that a round reads none.

What is known may be old: every write compares the revision, and a document that changed meanwhile is planned again.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import aclosing

from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey
from regionquota.ports import AllocationStore, CompactedError, Stored


class Documents:
    def __init__(self, allocations: AllocationStore, *, relist_interval_s: float) -> None:
        self._allocations = allocations
        self._relist_interval_s = relist_interval_s
        self._known: dict[QuotaKey, Stored] = {}
        self._unfinished: set[QuotaKey] = set()
        self.is_complete = False
        """Whether everything is known, and changes are heard of."""

    async def follow(self) -> None:
        """List, then watch, until it is time for the next full list. Raises `EtcdUnavailable`."""
        try:
            revision, documents = await self._allocations.list()
            self._known, self._unfinished = {}, set()
            for stored in documents:
                self.learn(stored)
            self.is_complete = True
            async with asyncio.timeout(self._relist_interval_s), aclosing(self._allocations.watch(revision)) as changes:
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
        if stored.allocation is None:
            self._known.pop(stored.key, None)
            return
        self._known[stored.key] = stored
        if is_unfinished(stored.allocation):
            self._unfinished.add(stored.key)

    def active(self, reported: Iterable[QuotaKey]) -> Collection[Stored]:
        """Those that a round has to look at: what regions report, and what waits for somebody."""
        keys = self._unfinished.union(reported)
        return [stored for key in keys if (stored := self._known.get(key)) is not None]

    def document(self, key: QuotaKey) -> Stored | None:
        """None: there is none, or it is not known."""
        return self._known.get(key) if self.is_complete else None

    @property
    def all(self) -> Collection[Stored]:
        return self._known.values()


def is_unfinished(allocation: Allocation) -> bool:
    return bool(allocation.moves or allocation.retired or allocation.pool < 0)
