"""What reconciliation needs from outside: sources of truth, and a place for what was found. As in `ports`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey
from regionquota.core.reconciling import Case, CaseState, Sighting

MAX_TOTALS: Final = 200_000
"""Totals that one answer of a source may hold."""

PeriodKey: TypeAlias = tuple[QuotaKey, Epoch]


@dataclass(frozen=True, slots=True)
class Totals:
    """At `snapshot_at` (seconds since 1970) this much was in use in this region; what is not named: nothing."""

    snapshot_at: float
    units: Mapping[QuotaKey, int]


class TruthSource(Protocol):
    """Where it is known what is really in use."""

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        """Of these resources; with `period` (its first instant, and the first after it) what was used up in it.

        At most `MAX_TOTALS`. Raises `SourceUnavailable`, also for an answer of another form.
        """
        ...


class CaseStore(Protocol):
    """What reconciliation reads and keeps in a region's database. Every call may raise `StoreUnavailable`."""

    async def sightings(
        self, resources: Sequence[str], snapshot_at: float, margin_s: float, key: QuotaKey | None = None
    ) -> Mapping[QuotaKey, Sighting]:
        """Each allocated quota of `resources` that has a counter here (or only `key`), all at one instant.

        What was settled within `margin_s` before or after `snapshot_at` is near it.
        """
        ...

    async def uncompared(self, source: str, wanted: Sequence[PeriodKey]) -> Sequence[PeriodKey]:
        """Those of `wanted` that `source` was not compared with yet."""
        ...

    async def period_usage(self, wanted: Sequence[PeriodKey]) -> Mapping[PeriodKey, int]:
        """What was used up in each period that has a counter.

        What was carried out of it counts; what was carried into it, or reconciled in it for another period, does not.
        """
        ...

    async def close_period(self, source: str, period: PeriodKey, now: float) -> None:
        """Remember that it was compared."""
        ...

    async def lease(self, source: str, holder: str, now: float, until: float) -> bool:
        """Take the source, or keep it, until then. False: another holder has it."""
        ...

    async def end_lease(self, source: str, holder: str) -> None: ...

    async def note_success(self, source: str, now: float) -> None: ...

    async def successes(self) -> Mapping[str, float]:
        """When each source was last compared to the end, by any server."""
        ...

    async def open_case(self, case: Case) -> Case | None:
        """Open it, or replace the numbers of the open one of the same quota and period by these newer ones.

        Returns the case as it is then. None: an approved one is still to be applied, the open one is newer, or the same
        source's same difference was rejected within the last `REJECTED_STANDS_S`.
        """
        ...

    async def supersede(self, key: QuotaKey, epoch: Epoch, snapshot_at: float, now: float) -> bool:
        """End the open case, if there is one that was not found after `snapshot_at`.

        False: a case stands in the way, an approved one that is still to be applied, or an open one that is newer.
        """
        ...

    async def decide_case(
        self, case: Case, state: CaseState, by: str, reason: str, delta: int | None, now: float
    ) -> Case | None:
        """None: it is not open any more, or its numbers are not those of `case`."""
        ...

    async def note_applied(self, case_id: str, now: float) -> Case:
        """Of an approved case; the first time counts."""
        ...

    async def case(self, case_id: str) -> Case | None: ...

    async def cases(self, state: CaseState | None, most: int) -> Sequence[Case]:
        """Newest first; None: in any state."""
        ...

    async def unapplied(self, most: int) -> Sequence[Case]:
        """Approved, and still to be carried out; the longest decided first."""
        ...

    async def open_count(self) -> int: ...
