"""Which of a region's server processes this is: the shard that it works on, where a counter has several."""

from contextlib import AsyncExitStack
from typing import Final

import asyncpg

from regionquota.adapters.postgres.transaction import UNAVAILABLE, Connection, Deadlines, Pool, connection
from regionquota.core.shards import MAX_SHARDS
from regionquota.errors import StoreUnavailable

_LOCKS: Final = 0x7271_736C  # "rqsl": any class of advisory locks that nobody else uses in this database


class Slot:
    """A number below MAX_SHARDS. Two processes that had the same would be slower, nothing else."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    async def keep(self) -> None:
        """Hold it, or take another if it was lost."""

    async def leave(self) -> None:
        """Others may have it."""


class LockedSlot(Slot):
    """The lowest that no other process has, under an advisory lock on a connection that is kept for it.

    A process that finds none shares the first.
    """

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        super().__init__()
        self._pool = pool
        self._deadlines = deadlines
        self._held = AsyncExitStack()
        self._session: Connection | None = None

    async def keep(self) -> None:
        """Raises `StoreUnavailable`: the number stays what it was."""
        if self._session is not None and _is_open(self._session):
            return
        await self.leave()
        session = await self._held.enter_async_context(connection(self._pool, self._deadlines))
        try:
            self.number = await _lowest_free(session)
        except UNAVAILABLE as error:
            raise StoreUnavailable(f"Postgres does not answer: {error or type(error).__name__}") from error
        self._session = session

    async def leave(self) -> None:
        """Close the session, and with it the lock."""
        session, self._session = self._session, None
        if session is not None and _is_open(session):
            session.terminate()
        await self._held.aclose()


def _is_open(session: Connection) -> bool:
    try:
        return not session.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken back what was broken
        return False


async def _lowest_free(session: Connection) -> int:
    for number in range(MAX_SHARDS):
        if await session.fetchval("SELECT pg_try_advisory_lock($1, $2)", _LOCKS, number):
            return number
    return 0
