"""Partitions of the usage ledger and of the reservations: made ahead, and dropped when their time is over.

Whatever takes a lock that reserves need takes it for a moment, and does not stand in the queue for it for longer
than a reserve would wait behind it.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

import asyncpg
import structlog

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.statements import PARTITIONS
from regionquota.adapters.postgres.transaction import Connection, Deadlines, Pool, connection, plan_freely, transaction
from regionquota.errors import ConfigError, ProtocolError
from regionquota.ledger_files import ONE_DAY, day_of, start_of_day
from regionquota.ledger_ports import Ahead

_log = structlog.get_logger(__name__)

LOCK_WAIT_S: Final = 0.1
"""At most so long work on partitions waits for a lock, and whoever comes behind it, too. Below every lock_timeout."""
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.3
"""Between two attempts at a lock; after the last one the work is left to the next round."""
WORK_TIMEOUT_S: Final = 300.0
"""For one transaction: adding up a day reads all of it."""
MOST_COUNTED: Final = 100_000
"""Rows without a partition are counted up to here."""
_IN_CHARGE: Final = 0x7265_6772
"""The advisory lock of who works on partitions; the number after the one that migrations take."""

Bound: TypeAlias = datetime | uuid.UUID


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one partition for each `step`; `rest` asks whether its default partition holds any of a range."""

    name: str
    step: timedelta
    make: str
    rest_holds: str
    rest: str

    def partition(self, first: date) -> str:
        return f"{self.name}_{first:%Y%m%d}"

    def bounds(self, first: date) -> tuple[Bound, Bound]:
        return self._bound(first), self._bound(first + self.step)

    def _bound(self, day: date) -> Bound:
        start = start_of_day(day)
        return _first_id(start.timestamp()) if self is RESERVATIONS else start


def _first_id(seconds: float) -> uuid.UUID:
    """Below every UUIDv7 that is made from then on, and above all those made before."""
    return uuid.UUID(int=int(seconds * 1000) << 80)


USAGE_LEDGER: Final = Table(
    "usage_ledger", ONE_DAY, PARTITIONS["usage_partition"], PARTITIONS["usage_rest_holds"], PARTITIONS["usage_rest"]
)
RESERVATIONS: Final = Table(
    "reservations",
    timedelta(weeks=1),
    PARTITIONS["reservations_partition"],
    PARTITIONS["reservations_rest_holds"],
    PARTITIONS["reservations_rest"],
)


class _NotNow(Exception):  # noqa: N818
    """Somebody holds what this needs."""


class _InOtherHands(Exception):  # noqa: N818
    """Another server is working on partitions."""


class PostgresLedgerUpkeep:
    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines
        self._told: set[str] = set()

    async def make_ahead(self, now: float, days: int, weeks: int) -> Sequence[Ahead]:
        today = day_of(now)
        monday = today - timedelta(days=today.weekday())
        wanted = ((USAGE_LEDGER, today, days), (RESERVATIONS, monday, weeks))
        for table, first, more in wanted:
            async with connection(self._pool, self._deadlines) as conn:
                there = set(await first_days(conn, table))
            for begin in (first + n * table.step for n in range(more + 1)):
                if begin not in there:
                    await self._patiently(partial(self._make, table, begin))
        return [await self._look(table, first) for table, first, _ in wanted]

    async def days_before(self, day: date) -> Sequence[date]:
        async with connection(self._pool, self._deadlines) as conn:
            return [one for one in await first_days(conn, USAGE_LEDGER) if one < day]

    async def drop_day(self, day: date, lines: int | None = None) -> bool:
        return await self._patiently(partial(self._drop_day, day, lines))

    async def drop_reservations(self, before: float) -> int:
        async with connection(self._pool, self._deadlines) as conn:
            ended = [
                first
                for first in await first_days(conn, RESERVATIONS)
                if start_of_day(first + RESERVATIONS.step).timestamp() <= before
            ]
        dropped = 0
        for first in ended:
            dropped += await self._patiently(partial(self._drop_week, first, before))
        return dropped

    async def forget(self, before: float, unheard_since: float, most: int) -> int:
        ended, silent = rows.moment(before), rows.moment(unheard_since)
        async with connection(self._pool, self._deadlines) as conn:
            counts = [
                await conn.fetchval(PARTITIONS["forget_adjustments"], ended, most),
                await conn.fetchval(PARTITIONS["forget_reservations"], _first_id(before), ended, most),
                await conn.fetchval(PARTITIONS["forget_readings"], silent, most),
            ]
        return sum(counts)

    async def _make(self, table: Table, first: date) -> bool:
        name = table.partition(first)
        low, high = table.bounds(first)
        try:
            async with self._in_charge() as conn:
                if first in await first_days(conn, table):
                    return False
                if not await conn.fetchval(table.rest_holds, low, high, timeout=WORK_TIMEOUT_S):
                    for row in await conn.fetch(table.make, name, low, high):
                        await conn.execute(row["statement"])
                    return True
        except asyncpg.CheckViolationError:
            pass  # a row came in between
        if name not in self._told:
            self._told.add(name)
            _log.warning("no partition is made: the default one holds rows of its time, and keeps them", name=name)
        return False

    async def _drop_day(self, day: date, lines: int | None) -> bool:
        name = USAGE_LEDGER.partition(day)
        async with self._in_charge() as conn:
            if day not in await first_days(conn, USAGE_LEDGER):
                return False
            await conn.execute(await conn.fetchval(PARTITIONS["lock_partition"], name))
            low, high = USAGE_LEDGER.bounds(day)
            summed = await conn.fetchval(PARTITIONS["keep_sums"], low, high, timeout=WORK_TIMEOUT_S)
            if lines is not None and summed != lines:
                raise ProtocolError(f"{name} holds {summed} lines, its archive {lines}: it is not dropped")
            await conn.execute(await conn.fetchval(PARTITIONS["drop_partition"], name))
        return True

    async def _drop_week(self, first: date, before: float) -> bool:
        async with self._in_charge() as conn:
            if first not in await first_days(conn, RESERVATIONS):
                return False
            asked = (*RESERVATIONS.bounds(first), rows.moment(before))
            if await conn.fetchval(PARTITIONS["reservations_wait"], *asked, timeout=WORK_TIMEOUT_S):
                return False
            await conn.execute(await conn.fetchval(PARTITIONS["drop_partition"], RESERVATIONS.partition(first)))
        return True

    async def _patiently(self, work: Callable[[], Awaitable[bool]]) -> bool:
        for _ in range(ATTEMPTS):
            try:
                return await work()
            except _InOtherHands:
                return False
            except _NotNow:
                await asyncio.sleep(PAUSE_S)
        _log.info("work on a partition is left for the next round: others hold what it needs")
        return False

    @asynccontextmanager
    async def _in_charge(self) -> AsyncIterator[Connection]:
        """A transaction of whoever is the only one to work on partitions."""
        async with transaction(self._pool, self._deadlines) as conn:
            if not await conn.fetchval(PARTITIONS["take_charge"], _IN_CHARGE):
                raise _InOtherHands
            await plan_freely(conn, WORK_TIMEOUT_S)
            await conn.fetchrow(PARTITIONS["set_patience"], f"{LOCK_WAIT_S * 1000:.0f}", f"{WORK_TIMEOUT_S * 1000:.0f}")
            try:
                yield conn
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
                raise _NotNow from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise ConfigError(
                    f"the database's user may not work on partitions ({error}): it must own usage_ledger and "
                    "reservations and be allowed to create tables beside them; connect as their owner (postgres.dsn)"
                ) from error

    async def _look(self, table: Table, first: date) -> Ahead:
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, self._deadlines.statement)
            there = set(await first_days(conn, table))
            homeless = await conn.fetchval(table.rest, MOST_COUNTED)
        ahead = 0
        while first + (ahead + 1) * table.step in there:
            ahead += 1
        return Ahead(table.name, ahead * table.step.days, homeless)


async def first_days(conn: Connection, table: Table) -> Sequence[date]:
    """Of all partitions but the default one, ascending."""
    names = [row["name"] for row in await conn.fetch(PARTITIONS["partitions"], table.name)]
    return [date.fromisoformat(name.removeprefix(f"{table.name}_")) for name in names]
