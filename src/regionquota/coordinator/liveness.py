"""Which regions are frozen: recorded when their signs of life are gone, taken back when they have caught up.

Freezing only stops moves. It never takes capacity away, so a wrong freeze costs nothing but headroom.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regionquota.coordinator.known_regions import KnownRegions
from regionquota.core.quota import Region
from regionquota.ports import Directory, Fence, Frozen, FrozenBy, Presence, RegionRecord, StoredRegion


@dataclass(frozen=True, slots=True)
class Change:
    record: RegionRecord
    revision: int


@dataclass(slots=True)
class Liveness:
    """`absent_since` is this process's memory; losing it only delays a freeze by `freeze_after_s`."""

    freeze_after_s: float
    _absent_since: dict[Region, float] = field(default_factory=dict)

    def changes(
        self, regions: Mapping[Region, StoredRegion], present: Sequence[Presence], now: float
    ) -> Sequence[Change]:
        """What to write. A region thaws once an agent of it has re-read the allocations after the freeze."""
        signs: dict[Region, int] = {}
        for presence in present:
            signs[presence.region] = max(presence.synchronised, signs.get(presence.region, 0))
        changes = []
        for name, stored in regions.items():
            record = stored.record
            if name in signs:
                self._absent_since.pop(name, None)
                if _may_thaw(stored, signs[name]):
                    changes.append(Change(replace(record, frozen=None), stored.revision))
            elif record.frozen is None and not record.is_evicted:
                since = self._absent_since.setdefault(name, now)
                if now - since >= self.freeze_after_s:
                    frozen = Frozen(FrozenBy.LIVENESS, now, "no sign of life from any of its servers")
                    changes.append(Change(replace(record, frozen=frozen), stored.revision))
        return changes


def _may_thaw(stored: StoredRegion, synchronised: int) -> bool:
    frozen = stored.record.frozen
    return frozen is not None and frozen.by is FrozenBy.LIVENESS and synchronised >= stored.revision


async def update(
    liveness: Liveness, directory: Directory | KnownRegions, fence: Fence, now: float
) -> tuple[Mapping[Region, RegionRecord], Sequence[RegionRecord]]:
    """Write what has changed. Returns all records as they now are, and those that were changed here."""
    regions = await directory.regions()
    records = {name: stored.record for name, stored in regions.items()}
    changed = []
    for change in liveness.changes(regions, await directory.present(), now):
        freezes = change.record.frozen is not None  # who has just come, or come back, is not to be frozen
        if await directory.swap_region(change.record, change.revision, fence, unless_present=freezes) is not None:
            records[change.record.name] = change.record
            changed.append(change.record)
    return records, changed
