"""The regions' records as a coordinator knows them: of each the newest that any of its loops has read or written."""

from collections.abc import Mapping, Sequence

from regionquota.core.quota import Region
from regionquota.ports import Directory, Fence, Presence, RegionRecord, StoredRegion


class KnownRegions:
    """The part of the directory that is about regions; what passes through it is remembered."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._known: Mapping[Region, StoredRegion] = {}

    @property
    def records(self) -> Mapping[Region, RegionRecord]:
        """What is known without asking."""
        return {name: stored.record for name, stored in self._known.items()}

    async def regions(self) -> Mapping[Region, StoredRegion]:
        read = await self._directory.regions()
        # Another loop may have read a newer one while this answer was on its way.
        self._known = {name: _newer(stored, self._known.get(name)) for name, stored in read.items()}
        return self._known

    async def present(self) -> Sequence[Presence]:
        return await self._directory.present()

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        written = await self._directory.swap_region(record, revision, fence, unless_present=unless_present)
        if written is not None:
            stored = StoredRegion(written, record)
            self._known = {**self._known, record.name: _newer(stored, self._known.get(record.name))}
        return written


def _newer(one: StoredRegion, other: StoredRegion | None) -> StoredRegion:
    return one if other is None or one.revision >= other.revision else other
