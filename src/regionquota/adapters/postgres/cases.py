"""CaseStore on Postgres."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from asyncpg import Record

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.statements import CASES
from regionquota.adapters.postgres.transaction import Connection, Deadlines, Pool, connection, plan_freely, transaction
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey
from regionquota.core.reconciling import REJECTED_STANDS_S, Case, CaseState, Sighting
from regionquota.reconciling_ports import PeriodKey

LOOK_TIMEOUT_S: Final = 30.0
"""For statements that look at all quotas and all open holds at once."""


class PostgresCaseStore:
    """The pool is the caller's to open and close."""

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    async def sightings(
        self, resources: Sequence[str], snapshot_at: float, margin_s: float, key: QuotaKey | None = None
    ) -> Mapping[QuotaKey, Sighting]:
        times = (snapshot_at - margin_s, snapshot_at, snapshot_at + margin_s)
        named = (None, None, None) if key is None else rows.parts(key)
        async with self._unhurried() as conn:
            found = await conn.fetch(
                CASES["sightings"], list(resources), *map(rows.moment, times), *named, timeout=LOOK_TIMEOUT_S
            )
        return {
            rows.key_of(row): Sighting(row["used"], row["since"], row["near"], row["held"], row["settled"])
            for row in found
        }

    async def uncompared(self, source: str, wanted: Sequence[PeriodKey]) -> Sequence[PeriodKey]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(CASES["uncompared"], source, *_periods(wanted))
        return [(rows.key_of(row), row["epoch"]) for row in found]

    async def period_usage(self, wanted: Sequence[PeriodKey]) -> Mapping[PeriodKey, int]:
        async with self._unhurried() as conn:
            found = await conn.fetch(CASES["period_usage"], *_periods(wanted), timeout=LOOK_TIMEOUT_S)
        return {(rows.key_of(row), row["epoch"]): row["used"] for row in found}

    async def close_period(self, source: str, period: PeriodKey, now: float) -> None:
        key, epoch = period
        async with connection(self._pool, self._deadlines) as conn:
            await conn.execute(CASES["close_period"], source, *rows.parts(key), epoch, rows.moment(now))

    async def lease(self, source: str, holder: str, now: float, until: float) -> bool:
        async with connection(self._pool, self._deadlines) as conn:
            taken = await conn.fetchval(CASES["lease"], source, holder, rows.moment(now), rows.moment(until))
        return taken is not None

    async def end_lease(self, source: str, holder: str) -> None:
        async with connection(self._pool, self._deadlines) as conn:
            await conn.execute(CASES["end_lease"], source, holder)

    async def note_success(self, source: str, now: float) -> None:
        async with connection(self._pool, self._deadlines) as conn:
            await conn.execute(CASES["note_success"], source, rows.moment(now))

    async def successes(self) -> Mapping[str, float]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(CASES["successes"])
        return {row["source"]: row["compared_at"].timestamp() for row in found}

    async def open_case(self, case: Case) -> Case | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(
                CASES["open_case"], uuid.UUID(case.id), *rows.parts(case.key), case.epoch,
                _moment(case.period_start), case.source, rows.moment(case.snapshot_at), case.truth, case.counted,
                case.difference, case.why, rows.moment(case.opened_at), rows.moment(case.opened_at - REJECTED_STANDS_S),
            )  # fmt: skip
        return None if row is None else _case_of(row)

    async def supersede(self, key: QuotaKey, epoch: Epoch, snapshot_at: float, now: float) -> bool:
        async with connection(self._pool, self._deadlines) as conn:
            stands = await conn.fetchval(
                CASES["supersede"], *rows.parts(key), epoch, rows.moment(snapshot_at), rows.moment(now)
            )
        return not stands

    async def decide_case(
        self, case: Case, state: CaseState, by: str, reason: str, delta: int | None, now: float
    ) -> Case | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(
                CASES["decide_case"], uuid.UUID(case.id), rows.moment(case.snapshot_at), state.value, by, reason,
                delta, rows.moment(now),
            )  # fmt: skip
        return None if row is None else _case_of(row)

    async def note_applied(self, case_id: str, now: float) -> Case:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(CASES["note_applied"], uuid.UUID(case_id), rows.moment(now))
        assert row is not None
        return _case_of(row)

    async def case(self, case_id: str) -> Case | None:
        try:
            name = uuid.UUID(case_id)
        except ValueError:
            return None
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(CASES["case"], name)
        return None if row is None else _case_of(row)

    async def cases(self, state: CaseState | None, most: int) -> Sequence[Case]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(CASES["cases"], None if state is None else state.value, most)
        return [_case_of(row) for row in found]

    async def unapplied(self, most: int) -> Sequence[Case]:
        async with connection(self._pool, self._deadlines) as conn:
            return [_case_of(row) for row in await conn.fetch(CASES["unapplied"], most)]

    async def open_count(self) -> int:
        async with connection(self._pool, self._deadlines) as conn:
            return int(await conn.fetchval(CASES["open_count"]))

    @asynccontextmanager
    async def _unhurried(self) -> AsyncIterator[Connection]:
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, LOOK_TIMEOUT_S)
            yield conn


def _periods(wanted: Sequence[PeriodKey]) -> rows.Columns:
    return rows.columns([(*rows.parts(key), epoch) for key, epoch in wanted], 4)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else rows.moment(seconds)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _case_of(row: Record) -> Case:
    fields: dict[str, Any] = {
        name: row[name] for name in ("source", "truth", "counted", "difference", "why", "epoch", "reason", "delta")
    }
    return Case(
        id=str(row["id"]),
        key=rows.key_of(row),
        snapshot_at=row["snapshot_at"].timestamp(),
        opened_at=row["opened_at"].timestamp(),
        period_start=_seconds(row["period_start"]),
        state=CaseState(row["state"]),
        decided_at=_seconds(row["decided_at"]),
        by=row["decided_by"],
        applied_at=_seconds(row["applied_at"]),
        **fields,
    )
