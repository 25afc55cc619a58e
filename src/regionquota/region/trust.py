"""Compares a database that may have lost commits with etcd, before anything is admitted in it."""

import structlog

from regionquota.core.quota import Region
from regionquota.core.slice import Holding
from regionquota.ports import AllocationStore, Clock, RegionStore, Stored
from regionquota.region.pages import pages
from regionquota.region.steps import close

_log = structlog.get_logger(__name__)


class Trust:
    """Any number of processes may do it at once, and be stopped anywhere: only the last step lets anybody in."""

    def __init__(self, me: Region, allocations: AllocationStore, store: RegionStore, clock: Clock) -> None:
        self._me = me
        self._allocations = allocations
        self._store = store
        self._clock = clock
        self._said = ""

    async def step(self) -> None:
        """Raises `StoreUnavailable` or `EtcdUnavailable`: nothing is admitted until it succeeds.

        The incarnation is learnt first, then etcd is read, then each slice is lowered to what etcd says, all in that
        one incarnation: whatever another region owns by then, this one does not.
        """
        found = await self._store.incarnation()
        if found.is_trusted:
            return
        if self._said != found.name:
            self._said = found.name
            _log.warning("the slices are to be compared with etcd: nothing is admitted until that was done")
        revision, documents = await self._allocations.list()
        known = {stored.key: stored for stored in documents}
        lowered = 0
        async for page in pages(self._store):
            for held in page:
                gone = Stored(held.key, revision, None)
                lowered += await self._compare(held, known.get(held.key, gone), found.name)
        if await self._store.trust(found.name):
            _log.info("the slices were compared with etcd: reserves are admitted again", lowered=lowered)

    async def _compare(self, held: Holding, stored: Stored, within: str) -> bool:
        """Whether the slice had to be lowered."""
        now = self._clock.now()
        if stored.allocation is None:
            await close(stored, self._store, now, within=within)
            return held.slice > 0
        applied = await self._store.apply(held.key, stored.allocation, stored.revision, now, within=within)
        if applied is None:
            return False  # this database has heard of something newer
        if applied.counter.debt > held.counter.debt:
            # It has lost commits, or was evicted.
            _log.error(
                "more was held than is owned: what is in use of it is owed", quota=str(held.key), slice=held.slice
            )
        return applied.slice < held.slice
