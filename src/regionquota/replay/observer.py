"""Watches one quota while it is replayed, and afterwards says what its histories prove."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from regionquota.core.allocation import Allocation
from regionquota.core.invariants import SliceChange, check_slices
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable, Unavailable, UnreadableDocument
from regionquota.ports import AllocationStore, CompactedError, Directory, RegionStore, Stored
from regionquota.replay.transfers import Movement, sum_up

SAMPLE_S: Final = 0.1
DIRECTORY_S: Final = 0.2
RETRY_S: Final = 0.2
STALE_WATCH_S: Final = 2.0
"""A watch that has not brought a revision this long after etcd named it is taken for dead and opened anew."""
PAGE: Final = 1000


class Proof(StrEnum):
    HELD = "held"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sights:
    """What an observer looks at: etcd itself, not through anything that a replay cuts, and each region's database.

    `history(key, after, upto)` returns all revisions of one document, or raises `UnreadableDocument` for one that
    cannot be read. Needed where `allocations.watch` passes over such documents: it would hide a violation of A.
    """

    allocations: AllocationStore
    directory: Directory
    regions: Mapping[Region, RegionStore]
    history: Callable[[QuotaKey, int, int], Awaitable[Sequence[Stored]]] | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """`gaps` are the reasons for every `UNKNOWN`. `largest_*` are units; what was spent is of consistent samples."""

    invariant_a: Proof
    invariant_b: Proof
    differences: tuple[str, ...]
    gaps: tuple[str, ...]
    revisions_checked: int
    largest_slices_sum: int
    largest_spent: int
    samples: int
    consistent_cuts: int
    movement: Movement
    freezes: Mapping[Region, int]
    thaws: Mapping[Region, int]
    notes: tuple[str, ...] = ()


class Observer:
    """Enter it before the quota is first written: what is not seen from the first revision on is not proven."""

    def __init__(self, quota: QuotaKey, sights: Sights) -> None:
        self._quota = quota
        self._sights = sights
        self._history: list[tuple[int, Allocation]] = []
        self._begun = self._seen = 0
        self._news = asyncio.Event()
        self._gaps: list[str] = []
        self._notes: list[str] = []
        self._unreadable: list[str] = []
        self._samples = self._cuts = self._largest_sum = self._largest_spent = 0
        self._freezes: Counter[Region] = Counter()
        self._thaws: Counter[Region] = Counter()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.frozen: frozenset[Region] | None = None
        """None: the directory has not been read yet."""

    @property
    def slices_sum(self) -> int:
        """Units that regions own in the newest revision seen, for people to look at meanwhile."""
        return sum(self._history[-1][1].slices.values()) if self._history else 0

    async def __aenter__(self) -> Self:
        """Raises `EtcdUnavailable`."""
        self._begun, documents = await self._sights.allocations.list()
        self._seen = self._begun
        self._record(documents)
        self._start("watch", self._watch())
        self._start("sampling", self._sample())
        self._start("polling of regions", self._poll())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for what in list(self._tasks):
            await self._stop(what)

    async def finish(self, within_s: float) -> Observation:
        """Complete the histories and judge them. What cannot be completed in time makes the verdict `UNKNOWN`."""
        by = monotonic() + within_s
        await self._catch_up(by)
        for what in list(self._tasks):
            await self._stop(what)
        await self._read_again(by)
        # The ledgers are read after the last revision of the history: a decrease is in its ledger before the
        # revision that gives the capacity to somebody else, so no row that matters can be missing.
        changes = {region: await self._changes(region, store, by) for region, store in self._sights.regions.items()}
        proof = check_slices(self._history, changes)
        differences = list(proof.differences)
        if not self._history:
            self._gaps.append(f"no allocation of {self._quota} was ever seen")
        most = max((allocation.limit for _, allocation in self._history), default=0)
        if self._largest_sum > most and not self._gaps:
            differences.append(f"{self._quota}: a sample found slices of {self._largest_sum} under a limit of {most}")
        complete = not self._gaps and not self._unreadable
        return Observation(
            invariant_a=_judge(violated=bool(self._unreadable), complete=complete),
            invariant_b=_judge(violated=bool(differences), complete=complete),
            differences=(*self._unreadable, *differences),
            gaps=tuple(self._gaps),
            revisions_checked=proof.revisions,
            largest_slices_sum=max(proof.largest_sum, self._largest_sum),
            largest_spent=self._largest_spent,
            samples=self._samples,
            consistent_cuts=self._cuts,
            movement=sum_up(allocation for _, allocation in self._history),
            freezes=dict(self._freezes),
            thaws=dict(self._thaws),
            notes=tuple(self._notes),
        )

    def _start(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[what] = asyncio.create_task(work)

    async def _stop(self, what: str) -> None:
        task = self._tasks.pop(what)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception):
            self._notes.append(f"the observer's {what} ended early: {type(outcome).__name__}: {outcome}")

    async def _watch(self) -> None:
        while True:
            try:
                await self._watch_once()
            except UnreadableDocument as error:
                # Watching on from the last good revision would meet the same document for ever.
                self._unreadable.append(f"etcd holds an allocation that does not add up: {error}")
                self._news.set()
                return
            except EtcdUnavailable:
                pass
            await asyncio.sleep(RETRY_S)

    async def _watch_once(self) -> None:
        try:
            async for changes in self._sights.allocations.watch(self._seen):
                self._record(changes)
        except CompactedError:
            await self._list_again()

    async def _list_again(self) -> None:
        """After a compaction: nothing is missing if the document is still at the revision last seen."""
        revision, documents = await self._sights.allocations.list()
        ours = next((stored for stored in documents if stored.key == self._quota), None)
        known = self._history[-1][0] if self._history else 0
        if (ours.revision if ours else 0) != known:
            self._gaps.append(f"etcd has compacted revisions after {self._seen} before they were seen")
        self._record(documents)
        self._seen = max(self._seen, revision)

    def _record(self, changes: Sequence[Stored]) -> None:
        known = self._history[-1][0] if self._history else 0
        for stored in changes:
            self._seen = max(self._seen, stored.revision)
            if stored.key != self._quota or stored.revision <= known:
                continue
            if stored.allocation is None:
                self._gaps.append(f"{self._quota} was deleted at revision {stored.revision}")
            else:
                self._history.append((stored.revision, stored.allocation))
        self._news.set()

    async def _catch_up(self, by: float) -> None:
        """Wait until the history reaches the document's newest revision."""
        reach = "etcd does not answer"
        while monotonic() < by and not self._unreadable:
            try:
                newest, _ = await self._sights.allocations.read(self._quota)
                reach = f"etcd is at revision {newest}"
            except UnreadableDocument as error:
                self._unreadable.append(f"etcd holds an allocation that does not add up: {error}")
                return
            except EtcdUnavailable as error:
                reach = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            if await self._seen_up_to(newest, min(by, monotonic() + STALE_WATCH_S)):
                return
            await self._stop("watch")
            self._start("watch", self._watch())
        if not self._unreadable:
            self._gaps.append(f"the history of {self._quota} ends at revision {self._seen}: {reach}")

    async def _read_again(self, by: float) -> None:
        """Put the history that leaves nothing out in place of what the watch has shown."""
        read, shown = self._sights.history, self._history
        if read is None or not shown or self._gaps or self._unreadable:
            return
        while True:
            try:
                versions = await read(self._quota, self._begun, shown[-1][0])
            except CompactedError as error:
                self._gaps.append(f"the history of {self._quota} cannot be read again, etcd has compacted it: {error}")
                return
            except UnreadableDocument as error:
                self._unreadable.append(f"etcd held an allocation that does not add up: {error}")
                return
            except EtcdUnavailable as error:
                if monotonic() > by:
                    self._gaps.append(f"the history of {self._quota} cannot be read again: {error}")
                    return
                await asyncio.sleep(RETRY_S)
            else:
                self._history = [known for known in shown if known[0] <= self._begun]
                self._record(versions)
                return

    async def _seen_up_to(self, revision: int, by: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(by - monotonic()):
                while self._seen < revision:
                    if self._unreadable:
                        return False
                    self._news.clear()
                    await self._news.wait()
        return self._seen >= revision

    async def _changes(self, region: Region, store: RegionStore, by: float) -> Sequence[SliceChange]:
        changes: list[SliceChange] = []
        last = 0
        while True:
            try:
                page = await store.slice_history(last, PAGE, self._quota)
            except Unavailable as error:
                if monotonic() > by:
                    self._gaps.append(f"the slice ledger of {region} cannot be read: {error}")
                    return changes
                await asyncio.sleep(RETRY_S)
                continue
            if not changes and page and page[0].before != 0:
                self._gaps.append(
                    f"the slice ledger of {region} lacks its start: it begins with {page[0].before} units"
                )
            changes += (SliceChange(row.key, region, row.revision, row.before, row.after) for row in page)
            if len(page) < PAGE:
                return changes
            last = page[-1].id

    async def _sample(self) -> None:
        while True:
            with suppress(Unavailable):
                self._compare(await self._collect(), await self._collect())
            await asyncio.sleep(SAMPLE_S)

    async def _collect(self) -> Sequence[Holding | None]:
        return await asyncio.gather(*(store.holding(self._quota) for store in self._sights.regions.values()))

    def _compare(self, once: Sequence[Holding | None], twice: Sequence[Holding | None]) -> None:
        """Databases cannot be read at one instant; where no slice changed between two reads, all held between them."""
        self._samples += 1
        if [_slice(holding) for holding in once] != [_slice(holding) for holding in twice]:
            return
        self._cuts += 1
        counters = [holding.counter for holding in twice if holding is not None]
        self._largest_sum = max(self._largest_sum, sum(counter.slice for counter in counters))
        self._largest_spent = max(self._largest_spent, sum(counter.used + counter.reserved for counter in counters))

    async def _poll(self) -> None:
        while True:
            with suppress(EtcdUnavailable):
                regions = await self._sights.directory.regions()
                frozen = frozenset(region for region, stored in regions.items() if stored.record.frozen is not None)
                before = frozen if self.frozen is None else self.frozen
                self._freezes.update(frozen - before)
                self._thaws.update(before - frozen)
                self.frozen = frozen
            await asyncio.sleep(DIRECTORY_S)


def _slice(holding: Holding | None) -> tuple[int, int]:
    return (0, 0) if holding is None else (holding.revision, holding.slice)


def _judge(*, violated: bool, complete: bool) -> Proof:
    if violated:
        return Proof.VIOLATED
    return Proof.HELD if complete else Proof.UNKNOWN
