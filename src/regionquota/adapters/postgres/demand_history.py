"""DemandHistory on Postgres."""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from asyncpg import Record

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.statements import DEMAND
from regionquota.adapters.postgres.transaction import Deadlines, Pool, at_once, connection, read_again
from regionquota.core.forecast import Counted, Past
from regionquota.core.quota import QuotaKey


class PostgresDemandHistory:
    """Times out by `deadlines`; the pool is the caller's."""

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    async def add(self, hour: float, counted: Mapping[QuotaKey, Counted]) -> None:
        values = [
            (key.tenant, key.resource, key.scope, one.granted, one.freed, one.denied, one.peak)
            for key, one in counted.items()
        ]
        async with at_once(self._pool, self._deadlines) as conn:
            await conn.execute(DEMAND["add"], rows.moment(hour), *rows.columns(values, 7))

    @read_again
    async def recall(self, keys: Collection[QuotaKey], hours: Collection[float]) -> Sequence[Past]:
        names = rows.columns([(key.tenant, key.resource, key.scope) for key in keys], 3)
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(DEMAND["recall"], *names, [rows.moment(hour) for hour in hours])
        return [_past(key, list(lines)) for key, lines in groupby(found, rows.key_of)]

    async def forget(self, before: float, most: int) -> int:
        async with connection(self._pool, self._deadlines) as conn:
            return int(await conn.fetchval(DEMAND["forget"], rows.moment(before), most))


def _past(key: QuotaKey, lines: Sequence[Record]) -> Past:
    hours = {
        row["hour"].timestamp(): Counted(int(row["granted"]), int(row["freed"]), int(row["denied"]), int(row["peak"]))
        for row in lines
        if row["hour"] is not None
    }
    return Past(key, lines[0]["since"].timestamp(), hours)
