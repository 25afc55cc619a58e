"""etcd as somebody sees it who sees everything: each change of an owner, each freeze."""

from collections.abc import Sequence

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey, Region
from regionquota.ports import Clock, Fence, RegionRecord
from regionquota.simulator.outcome import Span, Transfer


class ObservedEtcd(MemoryCoordination):
    """`began` and `pace`: what the clock said at the start, and its seconds for each second of the scenario."""

    def __init__(self, clock: Clock, began: float, pace: float) -> None:
        super().__init__(clock)
        self._began = began
        self._pace = pace
        self._frozen_since: dict[Region, float] = {}
        self.transfers: list[Transfer] = []
        self.spans: list[Span] = []

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        before = {key: (await self.read(key))[1] for key, _, _ in changes}
        revision = await super().swap_all(changes)
        if revision is not None:
            for key, _, after in changes:
                self._note(before[key], after)
        return revision

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        written = await super().swap_region(record, revision, fence, unless_present=unless_present)
        if written is not None and record.frozen is not None:
            self._frozen_since.setdefault(record.name, self._at())
        elif written is not None and record.name in self._frozen_since:
            self._thaw(record.name)
        return written

    def close(self) -> None:
        """Who is frozen now is so to the end."""
        for region in list(self._frozen_since):
            self._thaw(region)

    def _thaw(self, region: Region) -> None:
        begin, end = max(0.0, self._frozen_since.pop(region)), self._at()
        if begin < end:  # what was over before the scenario began is none of it
            self.spans.append(Span("frozen", region, begin, end))

    def _note(self, before: Allocation | None, after: Allocation) -> None:
        owned = {} if before is None else before.slices
        change = {region: after.slice_of(region) - owned.get(region, 0) for region in {**owned, **after.slices}}
        gave = {region: -units for region, units in change.items() if units < 0}
        got = {region: units for region, units in change.items() if units > 0}
        if (gave or got) and self._at() >= 0:
            self.transfers.append(Transfer(self._at(), gave, got))

    def _at(self) -> float:
        return (self._clock.now() - self._began) / self._pace
