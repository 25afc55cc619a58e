"""Which life of which database server a connection leads to, and whether the slices found in it may be spent.

A server that was restarted, promoted or restored may lack what was committed before, such as a decrease of a slice
that another region owns by now. So each incarnation is compared with etcd before anything is admitted in it.
"""

from typing import TYPE_CHECKING, Final, TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from regionquota.core.history import Standing
from regionquota.errors import StoreUnavailable
from regionquota.ports import Incarnation

# The control file lags behind a promotion; the name of the log segment does not.
_LOOK: Final = """
SELECT system_identifier::text AS system, pg_is_in_recovery() AS is_recovering,
       CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline,
       extract(epoch FROM pg_postmaster_start_time())::text AS started
  FROM pg_control_system()
"""
_TRUSTED: Final = "SELECT trusted IS NOT DISTINCT FROM $1 FROM region_identity"
_TRUST: Final = "UPDATE region_identity SET trusted = $1 WHERE $2::text IS NULL OR (history, evictions) = ($2, $3)"


if TYPE_CHECKING:  # generic in its stubs only
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection


class FencedConnection(_Connection):
    """Knows its server's incarnation: a server does not change it while a connection lasts."""

    incarnation = ""
    is_trusted = False

    async def learn(self, *, with_start: bool) -> None:
        """Raises `StoreUnavailable` on a server that is in recovery: a standby has no slices to spend."""
        found = await self.fetchrow(_LOOK)
        assert found is not None
        if found["is_recovering"]:
            raise StoreUnavailable("Postgres is in recovery: postgres.dsn must lead to the primary")
        lives = (found["system"], found["timeline"], found["started"])
        self.incarnation = "/".join(lives if with_start else lives[:2])

    async def look_for_trust(self) -> None:
        """Once it is trusted it stays so."""
        self.is_trusted = bool(await self.fetchval(_TRUSTED, self.incarnation))

    async def trust(self, standing: Standing | None) -> bool:
        """What was compared under another standing says nothing."""
        words = (None, 0) if standing is None else (standing.history, standing.evictions)
        return bool(await self.execute(_TRUST, self.incarnation, *words) == "UPDATE 1")


Pooled: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"


def life_of(conn: Pooled) -> str:
    """The name of the incarnation that `conn` leads to; without a fence all are one."""
    return cast(FencedConnection, conn).incarnation if hasattr(conn, "incarnation") else ""


async def incarnation_of(conn: Pooled) -> Incarnation:
    """Of the server that `conn` leads to. Without a fence any is trusted."""
    fenced = cast(FencedConnection, conn)
    if not hasattr(conn, "incarnation"):
        return Incarnation("", is_trusted=True)
    if not fenced.is_trusted:
        await fenced.look_for_trust()
    return Incarnation(fenced.incarnation, fenced.is_trusted)


async def trust(conn: Pooled, name: str, standing: Standing | None) -> bool:
    """Let what is there be spent. False: the server is in another incarnation than `name`, or under another standing
    than `standing` (None: whatever it is).
    """
    fenced = cast(FencedConnection, conn)
    if (await incarnation_of(conn)).name != name:
        return False
    return await fenced.trust(standing) if name else True
