"""Keeps the ledger's house: partitions ahead of time, old days archived and dropped, answers forgotten in time.

Every server of a region does this; each step may be repeated, interleaved with others', and abandoned anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from regionquota.core.forecast import DAYS
from regionquota.learning_ports import DemandHistory
from regionquota.ledger_files import day_of
from regionquota.ledger_ports import Ahead, LedgerArchive, LedgerUpkeep, UsageLedger
from regionquota.ports import Clock

_log = structlog.get_logger(__name__)
DAY_S = 86_400.0
LEARNT_DAYS = DAYS + 1
"""So long it is kept what a region was asked for: of the earliest day the hour before is looked at, too."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How far ahead partitions are made, and for how many days what is kept; `batch` rows are deleted at once."""

    days_ahead: int
    weeks_ahead: int
    retention_days: int
    idempotency_days: int
    meter_days: int
    batch: int


class Housekeeping:
    """`archive` None: days of the ledger are dropped without one; what they add up to is kept in any case."""

    def __init__(
        self,
        upkeep: LedgerUpkeep,
        ledger: UsageLedger,
        archive: LedgerArchive | None,
        clock: Clock,
        keeping: Keeping,
        on_look: Callable[[Sequence[Ahead]], None],
        learnt: DemandHistory | None = None,
    ) -> None:
        self._upkeep = upkeep
        self._ledger = ledger
        self._archive = archive
        self._clock = clock
        self._keeping = keeping
        self._on_look = on_look
        self._learnt = learnt

    async def step(self) -> None:
        """Raises `StoreUnavailable`, and `OSError` from the archive: a day that cannot be archived is not dropped."""
        await self.prepare()
        await self.forget()
        await self.retire_reservations()
        await self.retire_usage()

    async def prepare(self) -> None:
        """Make partitions ahead; to be done before anything is served."""
        keeping = self._keeping
        self._on_look(await self._upkeep.make_ahead(self._clock.now(), keeping.days_ahead, keeping.weeks_ahead))

    async def retire_usage(self) -> None:
        first_kept = day_of(self._clock.now()) - timedelta(days=self._keeping.retention_days)
        for day in await self._upkeep.days_before(first_kept):
            archived = None if self._archive is None else await self._archive.keep(day, self._ledger.day(day))
            if await self._upkeep.drop_day(day, archived):
                _log.info("a day of the usage ledger was dropped", day=str(day), archived=archived)

    async def retire_reservations(self) -> None:
        if dropped := await self._upkeep.drop_reservations(self._clock.now() - self._keeping.idempotency_days * DAY_S):
            _log.info("weeks of reservations were dropped", weeks=dropped)

    async def forget(self) -> None:
        now, keeping = self._clock.now(), self._keeping
        answered, heard = now - keeping.idempotency_days * DAY_S, now - keeping.meter_days * DAY_S
        while await self._upkeep.forget(answered, heard, keeping.batch):
            pass
        while self._learnt is not None and await self._learnt.forget(now - LEARNT_DAYS * DAY_S, keeping.batch):
            pass
