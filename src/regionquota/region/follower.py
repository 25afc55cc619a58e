"""Follows the allocation documents and carries out what they say of this region."""

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import structlog

from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import Unavailable, UnreadableDocument, WentBackwards
from regionquota.ports import AllocationStore, Clock, CompactedError, RegionStore, Stored
from regionquota.region.pages import pages
from regionquota.region.steps import Step, carry_out
from regionquota.region.sums import Sums

_log = structlog.get_logger(__name__)
PARALLEL: Final = 16
"""Quotas that are carried out at a time, of those that change."""


class Follower:
    """`synchronised` is the etcd revision of the last full list that was carried out, 0 before the first.

    `on_backwards` hears why it is certain that etcd went backwards.
    """

    def __init__(
        self,
        me: Region,
        allocations: AllocationStore,
        store: RegionStore,
        clock: Clock,
        *,
        relist_interval_s: float,
        on_step: Callable[[Stored, Step], None] = lambda _stored, _step: None,
        on_backwards: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.me = me
        self._allocations = allocations
        self._store = store
        self._clock = clock
        self._relist_interval_s = relist_interval_s
        self._on_step = on_step
        self.on_backwards = on_backwards
        self._known: dict[QuotaKey, Stored] = {}
        self._local: dict[QuotaKey, QuotaPolicy] = {}
        self._unsettled: set[QuotaKey] = set()
        self._failed: dict[QuotaKey, int] = {}
        self.synchronised = 0
        self.heard_at = 0.0
        self._in_step = asyncio.Event()
        self._in_step.set()
        self.pools = Sums(1)

    def known(self, key: QuotaKey) -> Stored | None:
        """The newest document heard of; a hint, `heard_at` (seconds since 1970) says how old it may be."""
        return self._known.get(key)

    def owned(self, key: QuotaKey) -> int:
        """Units of this region, by the same hint."""
        stored = self._known.get(key)
        return 0 if stored is None or stored.allocation is None else stored.allocation.slice_of(self.me)

    def documents(self, tenant: str) -> Sequence[Stored]:
        """All that is known of a tenant's quotas, also of those that this region does not use."""
        return [stored for key, stored in self._known.items() if key.tenant == tenant]

    def policy_of(self, key: QuotaKey) -> QuotaPolicy | None:
        """As far as is known; None: no such quota has been heard of, here or in etcd."""
        stored = self._known.get(key)
        if stored is not None:
            return None if stored.allocation is None else stored.allocation.policy
        return self._local.get(key)

    async def follow(self) -> None:
        """List, then watch, until it is time for the next full list. Raises `EtcdUnavailable`."""
        try:
            revision = await self.relist()
            async with asyncio.timeout(self._relist_interval_s), aclosing(self._allocations.watch(revision)) as changes:
                await self._carry_out_abreast(changes)
        except TimeoutError:
            return
        except CompactedError:
            _log.info("the watch was overtaken by compaction, listing again")
        except Unavailable:
            self._in_step.clear()
            raise

    async def in_step(self) -> None:
        """Wait, after an outage, until all was listed again: some document shows whether an older etcd answers."""
        await self._in_step.wait()

    async def _carry_out_abreast(self, changes: AsyncIterable[Sequence[Stored]]) -> None:
        """Several quotas at a time, for each may wait for etcd; of one quota in order, of what waits the newest."""
        free = asyncio.Semaphore(PARALLEL)
        waiting: dict[QuotaKey, Stored | None] = {}

        async def work(stored: Stored) -> None:
            newest: Stored | None = stored
            while newest is not None:
                await self._take_alone(newest)
                newest, waiting[stored.key] = waiting[stored.key], None
            del waiting[stored.key]
            free.release()

        try:
            async with asyncio.TaskGroup() as tasks:
                async for batch in changes:
                    for stored in batch:
                        if stored.key in waiting:
                            waiting[stored.key] = stored
                            continue
                        await free.acquire()
                        waiting[stored.key] = None
                        tasks.create_task(work(stored))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def relist(self) -> int:
        """Carry out every document that concerns this region. Returns the revision of the list.

        Raises `WentBackwards`, having carried out none, if this region has heard of newer ones.
        """
        held = {holding.key: holding async for page in pages(self._store) for holding in page}
        self._local |= {key: holding.policy for key, holding in held.items()}  # also while etcd does not answer
        revision, documents = await self._allocations.list()
        await self._refuse_backwards(held, revision, documents)
        # The watch may have brought newer ones since the list was read.
        newer = {key: stored for key, stored in self._known.items() if stored.revision > revision}
        known = {stored.key: stored for stored in documents} | newer
        for key in self._known.keys() - known.keys():
            self.pools.put(key, (0,))
        self._known = {}
        for stored in known.values():
            self._learn(stored)
        for stored in documents:
            if not self._is_done(stored, held):
                await self._take_alone(stored)
        self.synchronised = max(self.synchronised, revision)
        self.heard_at = self._clock.now()
        self._in_step.set()
        return revision

    async def _refuse_backwards(
        self, held: Mapping[QuotaKey, Holding], revision: int, documents: Sequence[Stored]
    ) -> None:
        """`held` was read before `documents`. An etcd that was restored may have been given higher revisions since."""
        at = {stored.key: stored.revision for stored in documents}
        for key, holding in held.items():
            if holding.revision > at.get(key, revision):
                self._stop(f"{key} is at revision {at.get(key, 0)}, but has been at {holding.revision}")
            if holding.slice and key not in at and await self._is_lost(key, revision):
                self._stop(f"it knows nothing of {key}, of which {self.me} holds {holding.slice}")

    def _stop(self, why: str) -> None:
        self.on_backwards(why)
        raise WentBackwards(f"etcd went backwards ({why}): nothing moves until regionquota region recover")

    async def _is_lost(self, key: QuotaKey, revision: int) -> bool:
        """A quota is removed only once nobody owns a part of it. `revision` is of a list that it is not in."""
        try:
            found, _ = await self._allocations.read(key)
        except UnreadableDocument:
            return False  # lists pass over it
        if found or not (await self._store.incarnation()).is_trusted:
            return False
        holding = await self._store.holding(key)
        return holding is not None and holding.slice > 0 and holding.revision <= revision

    async def take(self, stored: Stored) -> Step | None:
        """Carry out one document; None: it does not concern this region."""
        self.heard_at = self._clock.now()
        self._learn(stored)
        if not self._concerns_me(stored):
            return None
        step = await carry_out(stored, self.me, self._allocations, self._store, self._clock.now())
        self.note(stored, step)
        return step

    def note(self, stored: Stored, step: Step) -> None:
        """Remember what a step, made here or elsewhere in this process, found out."""
        if step.held is not None:
            self._local[stored.key] = step.held.policy
        if step.allocation is not None:
            self._learn(Stored(stored.key, step.revision, step.allocation))
        newest = self._known.get(stored.key)
        if step.held is None and newest is not None and newest.revision > stored.revision:
            return  # refused for its age: it says nothing of whether the newest one is settled
        if step.settled:
            self._unsettled.discard(stored.key)
        else:
            self._unsettled.add(stored.key)
        self._on_step(stored, step)

    async def settle(self) -> None:
        """Try again what usage, a concurrent change or the accounting epoch forbade before."""
        for key in list(self._unsettled):
            stored = self._known.get(key)
            if stored is None:
                self._unsettled.discard(key)
            else:
                await self._take_alone(stored)

    async def _take_alone(self, stored: Stored) -> None:
        """One document that cannot be carried out must not keep the others from it. Raises `Unavailable` only."""
        try:
            await self.take(stored)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever is wrong with it, there are others
            self._unsettled.discard(stored.key)  # until it changes, or the next full list
            if self._failed.get(stored.key) != stored.revision:
                self._failed[stored.key] = stored.revision
                _log.exception("an allocation cannot be carried out", quota=str(stored.key), revision=stored.revision)

    def _learn(self, stored: Stored) -> None:
        known = self._known.get(stored.key)
        if known is None or stored.revision >= known.revision:
            self._known[stored.key] = stored
            self.pools.put(stored.key, (0 if stored.allocation is None else stored.allocation.pool,))

    def _concerns_me(self, stored: Stored) -> bool:
        return stored.key in self._local or (stored.allocation is not None and self.me in stored.allocation.slices)

    def _is_done(self, stored: Stored, held: Mapping[QuotaKey, Holding]) -> bool:
        holding = held.get(stored.key)
        return (
            holding is not None
            and stored.allocation is not None
            and holding.revision == stored.revision
            and holding.slice == stored.allocation.slice_of(self.me)
            and not stored.allocation.moves_from(self.me)
        )
