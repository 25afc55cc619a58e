"""SuspensionStore on Postgres."""

from collections.abc import Mapping

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.statements import SUSPENSIONS
from regionquota.adapters.postgres.transaction import Deadlines, Pool, connection
from regionquota.ports import Suspension


class PostgresSuspensionStore:
    """Times out by `deadlines`; the pool is the caller's."""

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    async def recall(self) -> Mapping[str, Suspension]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(SUSPENSIONS["recall"])
        return {row["tenant_id"]: Suspension(row["tenant_id"], row["since"].timestamp(), row["why"]) for row in found}

    async def remember(self, suspensions: Mapping[str, Suspension]) -> None:
        values = [(one.tenant, rows.moment(one.since), one.why) for one in suspensions.values()]
        async with connection(self._pool, self._deadlines) as conn:
            await conn.execute(SUSPENSIONS["remember"], *rows.columns(values, 3))
