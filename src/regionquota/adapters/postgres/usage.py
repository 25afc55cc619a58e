"""UsageLedger on Postgres. Every part is a statement of its own: no reader holds back the cleaning of hot rows."""

from collections.abc import AsyncGenerator, Sequence
from datetime import date
from typing import Final

from asyncpg import Record

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.partitions import USAGE_LEDGER, first_days
from regionquota.adapters.postgres.statements import USAGE
from regionquota.adapters.postgres.transaction import Deadlines, Pool, connection, plan_freely, transaction
from regionquota.core.entries import Entry, EntryKind
from regionquota.ledger_files import ONE_DAY, start_of_day
from regionquota.ledger_ports import LedgerLine, LedgerPage, LedgerPosition, UsageSum

MOST_LOOKED_AT: Final = 10_000
"""Rows that one page of a resource or scope reads; a page that ends there is short, and says that there is more."""
PART: Final = 2_000
"""Lines in one part of a day."""
REPORT_TIMEOUT_S: Final = 300.0
"""Adding up a day reads all of it."""


class PostgresUsageLedger:
    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    async def page(
        self, tenant: str, after: LedgerPosition, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> LedgerPage:
        look_at = most if resource is None and scope is None else max(most, MOST_LOOKED_AT)
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(
                USAGE["page"], tenant, str(after.written_by), after.id, resource, scope, look_at, most
            )
        if not found:
            return LedgerPage((), after, more=False)
        lines = [_line_of(row) for row in found if row["id"] is not None]
        ended = LedgerPosition(int(found[0]["ended_by"]), found[0]["ended_id"])
        if len(lines) == most:
            following = lines[-1].position
            return LedgerPage(lines, following, more=following < ended or found[0]["looked_at"] == look_at)
        return LedgerPage(lines, ended, more=found[0]["looked_at"] == look_at)

    async def last(
        self, tenant: str, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> Sequence[LedgerLine]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(USAGE["last"], tenant, resource, scope, most)
        return [_line_of(row) for row in reversed(found)]

    async def day(self, day: date, tenant: str | None = None) -> AsyncGenerator[Sequence[LedgerLine], None]:
        bounds = (start_of_day(day), start_of_day(day + ONE_DAY))
        reached, position = tenant or "", LedgerPosition()
        while True:
            async with connection(self._pool, self._deadlines) as conn:
                found = await conn.fetch(
                    USAGE["day"], *bounds, reached, str(position.written_by), position.id, PART
                )  # fmt: skip
            # In order of tenants: behind the last line of the one asked for begins the next one's.
            lines = [_line_of(row) for row in found if tenant in (None, row["tenant_id"])]
            if lines:
                yield lines
                reached, position = lines[-1].entry.key.tenant, lines[-1].position
            if len(lines) < PART:
                return

    async def sums(self, day: date, tenant: str | None = None) -> Sequence[UsageSum]:
        bounds = (start_of_day(day), start_of_day(day + ONE_DAY))
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, REPORT_TIMEOUT_S)
            found = await conn.fetch(USAGE["sums"], *bounds, tenant, timeout=REPORT_TIMEOUT_S)
        return [
            UsageSum(rows.key_of(row), row["epoch"], EntryKind(row["kind"]), row["rows"], int(row["delta"]))
            for row in found
        ]

    async def kept_since(self) -> date | None:
        async with connection(self._pool, self._deadlines) as conn:
            if not await conn.fetchval(USAGE["dropped"]):
                return None
            days = await first_days(conn, USAGE_LEDGER)
        return days[0] if days else None


def _line_of(row: Record) -> LedgerLine:
    reservation_id = row["reservation_id"]
    entry = Entry(
        key=rows.key_of(row),
        epoch=row["epoch"],
        kind=EntryKind(row["kind"]),
        delta=row["delta"],
        at=row["at"].timestamp(),
        reservation_id=None if reservation_id is None else str(reservation_id),
        request_id=row["request_id"],
        reason=row["reason"],
    )
    return LedgerLine(LedgerPosition(int(row["written_by"]), row["id"]), entry)
