"""Keeps this server's sign of life and its demand report in etcd, and knows what has been said of its region."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import structlog
from msgspec.structs import replace

from regionquota.core.demand import Demand
from regionquota.core.forecast import NOTHING, Foreseen
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Clock, Directory, Presence, RegionRecord, RegionStatus, RegionStore, Session, StoredRegion
from regionquota.region.demand import MAX_QUOTAS, DemandMeter, busiest
from regionquota.region.follower import Follower
from regionquota.region.learning import nothing_foreseen
from regionquota.region.pages import PAGE, pages
from regionquota.region.sums import Sums

_log = structlog.get_logger(__name__)
FORESEEN_AGAIN_S: Final = 300.0
"""A server at rest that foresees something else says so after this time at the soonest."""
READ_ALL_WITHIN_S: Final = 30.0
"""About so old may be what a report says of quotas that only other servers of the region touch."""


class Attendance:
    def __init__(
        self,
        me: Region,
        instance: str,
        url: str,
        directory: Directory,
        store: RegionStore,
        follower: Follower,
        meter: DemandMeter,
        clock: Clock,
        *,
        ttl_s: int,
        foreseen: Callable[[QuotaKey, float], Foreseen] = nothing_foreseen,
    ) -> None:
        self._me = me
        self._instance = instance
        self._url = url
        self._directory = directory
        self._store = store
        self._follower = follower
        self._meter = meter
        self._clock = clock
        self._ttl_s = ttl_s
        self._foreseen = foreseen
        self._session: Session | None = None
        self._announced: int | None = None
        self._reported: list[Demand] | None = None
        self._reported_at = 0.0
        self._record: RegionRecord | None = None
        self._records: Mapping[Region, StoredRegion] | None = None
        self._holdings: dict[QuotaKey, Holding] = {}
        self._looked_at: float | None = None
        self._looked_to: QuotaKey | None = None
        self.sums = Sums(3)
        """Slice, used and reserved units as of the last report; what others touched may be `READ_ALL_WITHIN_S` old."""

    def session(self) -> Session | None:
        return self._session

    def may_claim(self) -> bool:
        """True also before the record was first read: a claim is safe at any time, it is only a waste if frozen."""
        record = self._record
        return record is None or _takes_part(record)

    def takes_part(self, region: Region) -> bool:
        """Whether anything can be given to `region`, as last read; True also before that."""
        records = self._records
        return records is None or (region in records and _takes_part(records[region].record))

    async def attend(self) -> None:
        """Prolong the sign of life; after a freeze, re-read all allocations and say up to which revision."""
        if self._session is not None and not await self._session.keep():
            _log.info("the sign of life had ended, announcing again", region=self._me)
            self._session = None
        if self._session is None:
            self._session = await self._directory.open_session(self._ttl_s)
            self._announced = self._reported = None
        self._records = await self._directory.regions()
        stored = self._records.get(self._me)
        self._record = None if stored is None else stored.record
        if self._follower.synchronised == 0 or _is_frozen_since(stored, self._follower.synchronised):
            await self._follower.relist()
        if self._announced != self._follower.synchronised:
            revision = self._follower.synchronised
            await self._directory.announce(self._session, Presence(self._me, self._instance, self._url, revision))
            self._announced = revision
        if stored is None:
            # Not sooner: a record without a sign of life is frozen.
            self._record = await self._new_record()

    async def report(self) -> None:
        """Tell the coordinator what this process granted and denied. A region at rest writes nothing."""
        await self._look_further()
        session = self._session
        if session is None:
            return  # what is counted meanwhile will be told
        touched = self._meter.take_touched()
        tallied = self._meter.take(self._clock.now())
        words: list[Demand] = []
        for start in range(0, len(touched), PAGE):
            found = await self._store.holdings_of(touched[start : start + PAGE])
            self._remember(found)
            words += tallied.words(found)
        words = busiest(words + tallied.words(self._others(touched, MAX_QUOTAS - len(words))))
        words = [self._with_outlook(word) for word in words]
        at_rest = not any(word.granted or word.freed or word.denied for word in words)
        # What was asked for in the last report must not stand there for ever: one more report says that it is over.
        if at_rest and self._reported is not None and _balances(words) == _balances(self._reported):
            is_lately = abs(tallied.now - self._reported_at) < FORESEEN_AGAIN_S
            if is_lately or _outlooks(words) == _outlooks(self._reported):
                return
        try:
            await self._directory.report(session, self._me, self._instance, words)
        except EtcdUnavailable:
            self._reported = None  # it may have been written or not: the next report is written in any case
            raise
        self._reported, self._reported_at = words if at_rest else None, tallied.now

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _look_further(self) -> None:
        """Other servers of the region touch what this one does not: read on from where the last report has stopped.

        All in the beginning, then so much at a time that all is read again in READ_ALL_WITHIN_S.
        """
        now, before = self._clock.now(), self._looked_at
        if before is None:
            async for page in pages(self._store):
                self._remember(page)
        self._looked_at = now
        due = 0.0 if before is None else len(self._holdings) * (now - before) / READ_ALL_WITHIN_S
        while due > 0:
            page = await self._store.holdings_after(self._looked_to, PAGE)
            self._remember(page)
            due -= PAGE
            self._looked_to = page[-1].key if len(page) == PAGE else None
            if self._looked_to is None:
                break  # from the beginning next time
            await asyncio.sleep(0)

    def _with_outlook(self, word: Demand) -> Demand:
        foreseen = self._foreseen(word.key, word.at)
        return word if foreseen == NOTHING else replace(word, expected=foreseen.expected, deviation=foreseen.deviation)

    def _remember(self, found: Sequence[Holding]) -> None:
        for held in found:
            self._holdings[held.key] = held
            self.sums.put(held.key, (held.slice, held.counter.used, held.counter.reserved))

    def _others(self, touched: Sequence[QuotaKey], most: int) -> Sequence[Holding]:
        """Up to `most` that were not touched and have something to tell: while the region drains, something to give."""
        known = set(touched)
        tells = _has_to_give if self._drains else _has_anything
        found = (held for key, held in self._holdings.items() if key not in known and tells(held))
        return list(islice(found, max(0, most)))

    @property
    def _drains(self) -> bool:
        return self._record is not None and self._record.status is RegionStatus.DRAINING

    async def _new_record(self) -> RegionRecord:
        """Of this region; another of its servers may have made it."""
        await self._directory.swap_region(RegionRecord(self._me), 0)
        created = (await self._directory.regions()).get(self._me)
        if created is None:
            raise EtcdUnavailable(f"the record of region {self._me} was written but cannot be read")
        return created.record


def _takes_part(record: RegionRecord) -> bool:
    return record.frozen is None and record.status is RegionStatus.ACTIVE


def _is_frozen_since(stored: StoredRegion | None, synchronised: int) -> bool:
    return stored is not None and stored.record.frozen is not None and stored.revision > synchronised


def _has_anything(held: Holding) -> bool:
    return bool(held.slice or held.counter.in_use)


def _has_to_give(held: Holding) -> bool:
    return held.slice > held.counter.in_use


def _balances(words: Sequence[Demand]) -> list[tuple[object, int, int, int, int, int]]:
    return [(word.key, word.slice, word.used, word.reserved, word.epoch, word.largest) for word in words]


def _outlooks(words: Sequence[Demand]) -> list[tuple[object, float, float]]:
    return [(word.key, word.expected, word.deviation) for word in words]
