"""Transfers, as the regions' slice ledgers tell them: who gave, who received, and how long it took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from regionquota.core.quota import QuotaKey, Region
from regionquota.ports import RegionStore, SliceEntry

PAGE: Final = 1000
OVERLAP: Final = 200
"""Ids handed out but not committed yet may appear below ids already seen: so many are read again."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One change of one region's slice. `took` is the time since the donor's decrease, where that is known."""

    at: float
    region: Region
    key: QuotaKey
    before: int
    after: int
    revision: int
    towards: Sequence[str]
    took: float | None


@dataclass(slots=True)
class TransferReader:
    """Reads on from where it stopped: `following` returns what is new, oldest first."""

    stores: Mapping[Region, RegionStore]
    _last: dict[Region, int] = field(default_factory=dict)
    _seen: dict[Region, set[int]] = field(default_factory=dict)
    _given: dict[tuple[QuotaKey, Region], float] = field(default_factory=dict)

    async def following(self) -> Sequence[Transfer]:
        rows = [
            (entry.at, region, entry)
            for region, store in self.stores.items()
            for entry in await self._new(region, store)
        ]
        rows.sort(key=lambda row: (row[0], row[1], row[2].id))
        return [self._tell(region, entry) for _, region, entry in rows]

    async def _new(self, region: Region, store: RegionStore) -> Sequence[SliceEntry]:
        seen = self._seen.setdefault(region, set())
        after = max(0, self._last.get(region, 0) - OVERLAP)
        found: list[SliceEntry] = []
        while True:
            page = await store.slice_history(after, PAGE)
            found += [entry for entry in page if entry.id not in seen]
            seen |= {entry.id for entry in page}
            if len(page) < PAGE:
                break
            after = page[-1].id
        self._last[region] = max(seen, default=0)
        self._seen[region] = {id_ for id_ in seen if id_ > self._last[region] - OVERLAP}
        return found

    def _tell(self, region: Region, entry: SliceEntry) -> Transfer:
        towards = [str(move["to"] or "pool") for move in entry.moves]
        took = None
        if entry.after < entry.before:
            for target in towards:
                self._given[entry.key, target] = entry.at
        else:
            given = self._given.pop((entry.key, region), None)
            took = None if given is None else max(0.0, entry.at - given)
        return Transfer(entry.at, region, entry.key, entry.before, entry.after, entry.revision, towards, took)
