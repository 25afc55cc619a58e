"""UsageLedger over what a MemoryRegionStore has written. Each line counts as a transaction of its own."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import date

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.entries import EntryKind
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey
from regionquota.ledger_files import day_of
from regionquota.ledger_ports import LedgerLine, LedgerPage, LedgerPosition, UsageSum


@dataclass(frozen=True, slots=True)
class MemoryUsageLedger:
    store: MemoryRegionStore

    async def page(
        self, tenant: str, after: LedgerPosition, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> LedgerPage:
        behind = [line for line in self._lines(tenant, resource, scope) if line.position > after]
        lines = behind[:most]
        following = lines[-1].position if lines else after
        return LedgerPage(lines, following, more=len(behind) > most)

    async def last(
        self, tenant: str, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> Sequence[LedgerLine]:
        return self._lines(tenant, resource, scope)[-most:]

    async def day(self, day: date, tenant: str | None = None) -> AsyncGenerator[Sequence[LedgerLine], None]:
        lines = [line for line in self._lines(tenant) if day_of(line.entry.at) == day]
        if lines:
            yield sorted(lines, key=lambda line: (line.entry.key.tenant, line.position))

    async def sums(self, day: date, tenant: str | None = None) -> Sequence[UsageSum]:
        groups: dict[tuple[QuotaKey, Epoch, EntryKind], list[int]] = defaultdict(list)
        async for lines in self.day(day, tenant):
            for line in lines:
                groups[line.entry.key, line.entry.epoch, line.entry.kind].append(line.entry.delta)
        return [UsageSum(*group, len(deltas), sum(deltas)) for group, deltas in sorted(groups.items())]

    async def kept_since(self) -> date | None:
        return None

    def _lines(self, tenant: str | None, resource: str | None = None, scope: str | None = None) -> Sequence[LedgerLine]:
        return [
            LedgerLine(LedgerPosition(number, number), entry)
            for number, entry in enumerate(self.store.entries, start=1)
            if tenant in (None, entry.key.tenant)
            and resource in (None, entry.key.resource)
            and scope in (None, entry.key.scope)
        ]
