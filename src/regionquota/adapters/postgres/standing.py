"""StandingStore on Postgres, and the fence of `apply` that rests upon it."""

from typing import Final

import asyncpg

from regionquota.adapters.postgres.statements import STANDING
from regionquota.adapters.postgres.transaction import Connection, Deadlines, Pool, connection, plan_freely, transaction
from regionquota.core.history import Bond, Sight, Standing
from regionquota.errors import StoreUnavailable

ADOPT_TIMEOUT_S: Final = 60.0
"""Every counter is written once."""
# Longer than anybody else waits: where two wait for each other it is the callers who give way.
_PATIENCE: Final = f"SET LOCAL lock_timeout = '{ADOPT_TIMEOUT_S}s'"


class PostgresStandingStore:
    """Times out by `deadlines`; the pool is the caller's."""

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    async def standing(self) -> Standing | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(STANDING["standing"])
        assert row is not None
        return _standing_of(row)

    async def recall(self) -> tuple[Standing | None, Sight]:
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, ADOPT_TIMEOUT_S)
            row = await conn.fetchrow(STANDING["recall"], timeout=ADOPT_TIMEOUT_S)
        assert row is not None
        cluster = None if row["etcd_cluster"] is None else int(row["etcd_cluster"], 16)
        return _standing_of(row), Sight(cluster, row["etcd_revision"])

    async def adopt(self, before: Standing | None, standing: Standing, *, distrust: bool = False) -> bool:
        history, evictions = (None, 0) if before is None else (before.history, before.evictions)
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, ADOPT_TIMEOUT_S)
            await conn.execute(_PATIENCE)
            words = (history, evictions, standing.history, standing.evictions, distrust)
            adopted = await conn.fetchval(STANDING["adopt"], *words, timeout=ADOPT_TIMEOUT_S)
            if adopted and history not in (None, standing.history):
                await conn.execute(STANDING["forget_revisions"], timeout=ADOPT_TIMEOUT_S)
        return bool(adopted)

    async def remember(self, history: str, sight: Sight) -> None:
        cluster = None if sight.cluster is None else f"{sight.cluster:x}"
        async with connection(self._pool, self._deadlines) as conn:
            await conn.execute(STANDING["remember"], history, cluster, sight.revision)


def _standing_of(row: asyncpg.Record) -> Standing | None:
    return None if row["history"] is None else Standing(row["history"], row["evictions"], row["evictions_before"])


async def require_standing(conn: Connection, bond: Bond) -> None:
    """To be called within the transaction that changes a slice. Raises `StoreUnavailable`: nothing is changed."""
    if bond.standing is None:
        raise StoreUnavailable("this process has not learnt yet which history of etcd it works in")
    row = await conn.fetchrow(STANDING["require"])
    assert row is not None
    if (row["history"], row["evictions"]) != (bond.standing.history, bond.standing.evictions):
        raise StoreUnavailable(
            f"the slices belong to history {row['history']} of etcd after {row['evictions']} evictions by now: "
            "what was read before changes nothing"
        )
