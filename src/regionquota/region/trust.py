"""Compares a database that may have lost commits with etcd, before anything is admitted in it."""

from collections.abc import Callable, Sequence

import structlog

from regionquota.core.allocation import Allocation, hand_over
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.ports import AllocationStore, Clock, RegionStore, Stored
from regionquota.region.pages import pages
from regionquota.region.steps import close, refuse_older

_log = structlog.get_logger(__name__)


class Trust:
    """Any number of processes may do it at once, and be stopped anywhere: only the last step lets anybody in.

    A region that `is_evicted` holds nothing afterwards, so whatever others give away of it is not held here.
    """

    def __init__(
        self,
        me: Region,
        allocations: AllocationStore,
        store: RegionStore,
        clock: Clock,
        is_evicted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._me = me
        self._allocations = allocations
        self._store = store
        self._clock = clock
        self._is_evicted = is_evicted
        self._said = ""

    async def step(self) -> None:
        """Raises `StoreUnavailable` or `EtcdUnavailable`: nothing is admitted until it succeeds.

        The incarnation is learnt first, then etcd is read, then each slice is lowered to what etcd says, all in that
        one incarnation: whatever another region owns by then, this one does not. Nor will another own more of it later
        for what was let go of in an earlier incarnation.
        """
        found = await self._store.incarnation()
        if found.is_trusted:
            return
        if self._said != found.name:
            self._said = found.name
            _log.warning("the slices are to be compared with etcd: nothing is admitted until that was done")
        revision, documents = await self._allocations.list()
        known = {stored.key: stored for stored in documents}
        forgotten = self._mine(documents)
        lowered = 0
        async for page in pages(self._store):
            for held in page:
                forgotten.discard(held.key)
                gone = Stored(held.key, revision, None)
                lowered += await self._compare(held, known.get(held.key, gone), found.name)
        for key in sorted(forgotten):
            # So that the database knows how old a document is that an agent, asleep since before, carries out.
            await self._lower(known[key], found.name)
        if await self._store.trust(found.name):
            _log.info("the slices were compared with etcd: reserves are admitted again", lowered=lowered)

    def _mine(self, documents: Sequence[Stored]) -> set[QuotaKey]:
        return {stored.key for stored in documents if stored.allocation and self._me in stored.allocation.slices}

    async def _compare(self, held: Holding, stored: Stored, within: str) -> bool:
        """Whether the slice had to be lowered."""
        applied = await self._lower(stored, within)
        if applied is None:
            return stored.allocation is None and held.slice > 0
        if applied.counter.debt > held.counter.debt:
            # It has lost commits, or was evicted.
            _log.error(
                "more was held than is owned: what is in use of it is owed", quota=str(held.key), slice=held.slice
            )
        return applied.slice < held.slice

    async def _lower(self, stored: Stored, within: str) -> Holding | None:
        """None: the quota has ended, or the database has heard of something newer in this incarnation. Raises
        `WentBackwards` if etcd never did.

        What is to be given away is given from here, or not at all: an agent may be about to give away what it took
        out of the slice before the failover, of which this database may know nothing.
        """
        while True:
            now = self._clock.now()
            if stored.allocation is None:
                await close(stored, self._store, now, within=within)
                return None
            applied = await self._store.apply(stored.key, stored.allocation, stored.revision, now, within=within)
            if applied is None:
                await refuse_older(stored.key, self._me, self._allocations, self._store)
                return None
            if await self._hand_over(stored, stored.allocation, applied):
                return applied
            stored = await self._read_again(stored.key)

    async def _read_again(self, key: QuotaKey) -> Stored:
        revision, allocation = await self._allocations.read(key)
        if allocation is None:
            revision, documents = await self._allocations.list()
            return next((one for one in documents if one.key == key), Stored(key, revision, None))
        return Stored(key, revision, allocation)

    async def _hand_over(self, stored: Stored, allocation: Allocation, held: Holding) -> bool:
        """Whether nobody else can, any more, as of that revision."""
        if not allocation.moves_from(self._me) or self._is_evicted():
            return True
        changed = hand_over(allocation, self._me, held.slice, held.epoch)
        return await self._allocations.swap(stored.key, stored.revision, changed) is not None
