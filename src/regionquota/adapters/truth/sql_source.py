"""TruthSource as an SQL query on any Postgres: columns tenant_id, resource, scope, total and snapshot_at."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg

from regionquota.adapters.truth.checking import check_totals
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import MAX_TOTALS, Totals

COLUMNS: Final = ("tenant_id", "resource", "scope", "total", "snapshot_at")


class SqlTruthSource:
    """`query` takes $1, the period's first instant, and $2, the first after it, if it counts what is used up.

    It runs in a read-only transaction, on a connection of its own, within `deadline_s`. `secret` gives the password
    anew for each.
    """

    def __init__(self, name: str, dsn: str, query: str, *, deadline_s: float, secret: Callable[[], str | None]) -> None:
        self._name = f"the query of source {name}"
        self._dsn = dsn
        self._query = query
        self._deadline_s = deadline_s
        self._secret = secret

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        try:
            found = await self._fetch(period)
        except TimeoutError as error:
            raise SourceUnavailable(f"{self._name} gave no answer within {self._deadline_s:g} s") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise SourceUnavailable(f"{self._name} failed: {error or type(error).__name__}") from error
        if not found:
            raise SourceUnavailable(f"{self._name} returned no row, so nothing says of when it is: nothing is compared")
        missing = [column for column in COLUMNS if column not in found[0]]
        if missing:
            raise SourceUnavailable(f"{self._name} must return the columns {', '.join(COLUMNS)}; missing: {missing[0]}")
        moments = {row["snapshot_at"] for row in found}
        moment = next(iter(moments))
        if len(moments) > 1 or not isinstance(moment, datetime) or moment.tzinfo is None:
            raise SourceUnavailable(f"{self._name} must return one timestamptz as snapshot_at, the same in each row")
        rows = [(row["tenant_id"], row["resource"], row["scope"], row["total"]) for row in found]
        return Totals(moment.timestamp(), check_totals(self._name, rows, resources))

    async def _fetch(self, period: tuple[float, float] | None) -> Sequence[asyncpg.Record]:
        settings = {
            "application_name": "regionquota reconciler",
            "default_transaction_read_only": "on",
            "statement_timeout": str(max(1, round(self._deadline_s * 1000))),
        }
        conn = await asyncpg.connect(
            self._dsn, password=self._secret(), timeout=self._deadline_s, server_settings=settings,
            command_timeout=2 * self._deadline_s,
        )  # fmt: skip
        try:
            async with conn.transaction(readonly=True):
                statement = await conn.prepare(self._query)
                cursor = await statement.cursor(*self._arguments(len(statement.get_parameters()), period))
                return list(await cursor.fetch(MAX_TOTALS + 1))
        finally:
            conn.terminate()

    def _arguments(self, wanted: int, period: tuple[float, float] | None) -> Sequence[Any]:
        given = [] if period is None else [datetime.fromtimestamp(instant, UTC) for instant in period]
        if wanted > len(given) or (given and not wanted):
            takes = "$1, the period's start, and $2, its end, or $1 alone" if given else "no parameter"
            raise SourceUnavailable(f"{self._name} takes {wanted} parameters; it must take {takes}")
        return given[:wanted]
