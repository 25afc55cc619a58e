"""CaseStore in memory, beside a `MemoryRegionStore` whose ledger it looks into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.entries import USAGE, EntryKind
from regionquota.core.periods import Epoch
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reconciling import REJECTED_STANDS_S, Case, CaseState, Sighting
from regionquota.core.reservation import HOLDING
from regionquota.reconciling_ports import PeriodKey


@dataclass(slots=True)
class MemoryCaseStore:
    _region: MemoryRegionStore
    _cases: dict[str, Case] = field(default_factory=dict)
    _compared: set[tuple[str, PeriodKey]] = field(default_factory=set)
    _leases: dict[str, tuple[str, float]] = field(default_factory=dict)
    _successes: dict[str, float] = field(default_factory=dict)

    async def sightings(
        self, resources: Sequence[str], snapshot_at: float, margin_s: float, key: QuotaKey | None = None
    ) -> Mapping[QuotaKey, Sighting]:
        holdings = await self._region.holdings()
        wanted = [one for one in holdings if one.kind is Kind.ALLOCATED and one.key.resource in resources]
        return {
            one.key: self._sighting(one.key, one.counter.used, snapshot_at, margin_s)
            for one in wanted
            if key in (None, one.key)
        }

    def _sighting(self, key: QuotaKey, used: int, snapshot_at: float, margin_s: float) -> Sighting:
        begins, ends = snapshot_at - margin_s, snapshot_at + margin_s
        reservations = self._region._reservations  # noqa: SLF001 - the same database, as it were
        held_then = {name for name, held in reservations.items() if held.created_at <= ends}
        lines = [
            line
            for line in self._region.entries
            if line.key == key and line.at > begins and line.kind in USAGE - {EntryKind.RECONCILE}
        ]
        open_lines = [
            line for name in held_then if reservations[name].state in HOLDING for line in reservations[name].lines
        ]
        return Sighting(
            used=used,
            since=sum(line.delta for line in lines if line.at > snapshot_at),
            near=any(line.at <= ends for line in lines),
            held=sum(line.amount for line in open_lines if line.key == key),
            settled=sum(
                line.delta for line in lines if line.at > ends and line.reservation_id in held_then and line.delta > 0
            ),
        )

    async def uncompared(self, source: str, wanted: Sequence[PeriodKey]) -> Sequence[PeriodKey]:
        return [period for period in wanted if (source, period) not in self._compared]

    async def period_usage(self, wanted: Sequence[PeriodKey]) -> Mapping[PeriodKey, int]:
        counters = {(one.key, one.epoch): one.counter for one in await self._region.holdings()}
        counters |= self._region._closed  # noqa: SLF001 - the same database, as it were
        elsewhere = (EntryKind.CARRY, EntryKind.RECONCILE)
        return {
            period: counters[period].used
            - sum(
                line.delta
                for line in self._region.entries
                if (line.key, line.epoch) == period and line.kind in elsewhere
            )
            for period in wanted
            if period in counters
        }

    async def close_period(self, source: str, period: PeriodKey, now: float) -> None:  # noqa: ARG002 - nobody asks when
        self._compared.add((source, period))

    async def lease(self, source: str, holder: str, now: float, until: float) -> bool:
        other, ends = self._leases.get(source, (holder, 0.0))
        if other != holder and ends > now:
            return False
        self._leases[source] = (holder, until)
        return True

    async def end_lease(self, source: str, holder: str) -> None:
        if self._leases.get(source, ("", 0.0))[0] == holder:
            del self._leases[source]

    async def note_success(self, source: str, now: float) -> None:
        self._successes[source] = now

    async def successes(self) -> Mapping[str, float]:
        return dict(self._successes)

    async def open_case(self, case: Case) -> Case | None:
        if any(self._rejected(known, case) for known in self._cases.values()):
            return None
        standing = self._standing(case.key, case.epoch)
        if standing is None:
            self._cases[case.id] = case
            return case
        if standing.state is not CaseState.OPEN or standing.snapshot_at > case.snapshot_at:
            return None
        return self._keep(replace(case, id=standing.id, opened_at=standing.opened_at))

    async def supersede(self, key: QuotaKey, epoch: Epoch, snapshot_at: float, now: float) -> bool:
        standing = self._standing(key, epoch)
        if standing is None:
            return True
        if standing.state is not CaseState.OPEN or standing.snapshot_at > snapshot_at:
            return False
        self._keep(replace(standing, state=CaseState.SUPERSEDED, decided_at=now))
        return True

    async def decide_case(
        self, case: Case, state: CaseState, by: str, reason: str, delta: int | None, now: float
    ) -> Case | None:
        known = self._cases.get(case.id)
        if known is None or known.state is not CaseState.OPEN or known.snapshot_at != case.snapshot_at:
            return None
        return self._keep(replace(known, state=state, by=by, reason=reason, delta=delta, decided_at=now))

    async def note_applied(self, case_id: str, now: float) -> Case:
        known = self._cases[case_id]
        return self._keep(replace(known, applied_at=now)) if known.unapplied else known

    async def case(self, case_id: str) -> Case | None:
        return self._cases.get(case_id)

    async def cases(self, state: CaseState | None, most: int) -> Sequence[Case]:
        found = [case for case in self._cases.values() if state in (None, case.state)]
        return sorted(found, key=lambda case: (-case.opened_at, case.id))[:most]

    async def unapplied(self, most: int) -> Sequence[Case]:
        found = [case for case in self._cases.values() if case.unapplied]
        return sorted(found, key=lambda case: case.decided_at or 0.0)[:most]

    async def open_count(self) -> int:
        return sum(case.state is CaseState.OPEN for case in self._cases.values())

    def _standing(self, key: QuotaKey, epoch: Epoch) -> Case | None:
        """The one that is still to be decided or applied."""
        for case in self._cases.values():
            if (case.key, case.epoch) == (key, epoch) and (case.state is CaseState.OPEN or case.unapplied):
                return case
        return None

    @staticmethod
    def _rejected(known: Case, case: Case) -> bool:
        same = (known.key, known.epoch, known.source, known.difference)
        return (
            known.state is CaseState.REJECTED
            and same == (case.key, case.epoch, case.source, case.difference)
            and (known.decided_at or 0.0) > case.opened_at - REJECTED_STANDS_S
        )

    def _keep(self, case: Case) -> Case:
        self._cases[case.id] = case
        return case
