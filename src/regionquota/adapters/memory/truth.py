"""TruthSource in memory: it answers what it was told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regionquota.core.quota import QuotaKey
from regionquota.reconciling_ports import Totals


@dataclass(slots=True)
class MemoryTruthSource:
    _told: dict[tuple[float, float] | None, Totals] = field(default_factory=dict)

    def say(self, units: Mapping[QuotaKey, int], at: float, period: tuple[float, float] | None = None) -> None:
        self._told[period] = Totals(at, dict(units))

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        told = self._told[period]
        return Totals(told.snapshot_at, {key: total for key, total in told.units.items() if key.resource in resources})
