"""Connections, transactions and what their failures mean."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from operator import methodcaller
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from regionquota.adapters.postgres.incarnation import FencedConnection
from regionquota.errors import ConfigError, OutcomeUnknown, StoreUnavailable

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

# What a server that is going down, starting up, read-only, out of room or too slow answers: nothing is wrong
# with the request. Everything else (a violated CHECK, a type) is an error of ours and is not hidden.
UNAVAILABLE: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says when a server ends the session in mid-statement
    OSError,
    TimeoutError,
)


# Every statement of the service looks up a few rows by key. Plans are made once per connection, perhaps on empty
# tables, and must stay right when these have grown: an index, row by row. Reports say otherwise for themselves.
LOOKUPS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. Each bounds how long a stalled process can hold what others wait for."""

    acquire: float = 2.0
    connect: float = 5.0
    statement: float = 2.0
    lock: float = 0.5
    idle_in_transaction: float = 1.0


class Distrust(Enum):
    """Which servers may lack what was committed before: see `incarnation`."""

    NOBODY = "nobody"
    """For those who admit nothing."""
    EVERY_START = "every start"
    NEW_TIMELINES = "new timelines"
    """Not one that was merely started again, on the timeline that it had."""


async def open_pool(
    dsn: str, *, password: str | None, size: int, deadlines: Deadlines, distrust: Distrust = Distrust.NOBODY
) -> Pool:
    """Raises `StoreUnavailable` if no connection can be made; `ConfigError` if sessions cannot have settings."""
    if distrust is Distrust.NOBODY:
        fenced: dict[str, Any] = {}
    else:
        learn = methodcaller("learn", with_start=distrust is Distrust.EVERY_START)
        fenced = {"connection_class": FencedConnection, "init": learn}
    settings = {
        "application_name": "regionquota",
        "statement_timeout": _milliseconds(deadlines.statement),
        "lock_timeout": _milliseconds(deadlines.lock),
        "idle_in_transaction_session_timeout": _milliseconds(deadlines.idle_in_transaction),
        "synchronous_commit": "on",
        "jit": "off",
        **LOOKUPS,
    }
    try:
        return await asyncpg.create_pool(
            dsn,
            password=password,
            min_size=1,
            max_size=size,
            timeout=deadlines.connect,
            # The server's own statement_timeout comes first; this one is for a server that answers nothing at all.
            command_timeout=2 * deadlines.statement,
            server_settings=settings,
            reset=_leave_as_it_is,
            **fenced,
        )
    except asyncpg.ProtocolViolationError as error:
        raise ConfigError(f"{_say(error)}: {POOLER}") from error
    except UNAVAILABLE as error:
        raise StoreUnavailable(f"Postgres does not answer: {_say(error)}") from error


POOLER: Final = (
    "is there a pooler such as pgbouncer in transaction mode before Postgres? Sessions of regionquota have settings "
    "and prepared statements of their own: set postgres.dsn to Postgres itself, or to a pool in session mode"
)


async def _leave_as_it_is(_connection: object) -> None:
    """Nothing here leaves state in a session, so asyncpg's own reset would be a round trip per call for nothing."""


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


@asynccontextmanager
async def connection(pool: Pool, deadlines: Deadlines) -> AsyncIterator[Connection]:
    """Raises `StoreUnavailable` for whatever goes wrong outside the statement itself."""
    try:
        async with asyncio.timeout(deadlines.acquire):  # a timeout of the pool's own would be a task per call
            acquired = await pool.acquire()
        try:
            yield acquired
        finally:
            await pool.release(acquired)
    except asyncpg.DataError:
        raise  # an argument of ours that does not fit its type: asyncpg counts it among the InterfaceErrors
    except UNAVAILABLE as error:
        raise StoreUnavailable(f"Postgres does not answer: {_say(error)}") from error


@asynccontextmanager
async def transaction(pool: Pool, deadlines: Deadlines) -> AsyncIterator[Connection]:
    """One transaction, durable once the block is left.

    Raises `StoreUnavailable`: certainly not committed; `OutcomeUnknown`: COMMIT was sent and not answered.
    """
    async with connection(pool, deadlines) as acquired:
        work = acquired.transaction()
        await work.start()
        try:
            yield acquired
        except BaseException:
            await _roll_back(work)
            raise
        try:
            await work.commit()
        except UNAVAILABLE as error:
            raise OutcomeUnknown(f"the connection broke at COMMIT: {_say(error)}") from error


@asynccontextmanager
async def at_once(pool: Pool, deadlines: Deadlines) -> AsyncIterator[Connection]:
    """A connection for one statement that writes, which is a transaction of its own: durable once it returns.

    Raises `StoreUnavailable`: certainly not committed; `OutcomeUnknown`: it was sent and not answered.
    """
    async with connection(pool, deadlines) as acquired:
        try:
            yield acquired
        except (asyncpg.DataError, asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            raise  # said by Postgres of a statement that it has given up
        except UNAVAILABLE as error:
            raise OutcomeUnknown(f"the connection broke in mid-statement: {_say(error)}") from error


P = ParamSpec("P")
T = TypeVar("T")
MAX_STALE_PLANS: Final = 5
"""asyncpg itself tries once more when a table has changed under a plan; a migration may change it several times."""


def read_again(read: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """For what only reads: do it again while a migration makes plans stale."""

    @wraps(read)
    async def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(MAX_STALE_PLANS - 1):
            try:
                return await read(*args, **kwargs)
            except asyncpg.InvalidCachedStatementError:
                continue
        return await read(*args, **kwargs)

    return reading


async def plan_freely(conn: Connection, timeout_s: float) -> None:
    """For a report over whole tables: let the rest of this transaction be planned by what is in them."""
    for name in LOOKUPS:
        await conn.execute(f"SET LOCAL {name} = {'auto' if name == 'plan_cache_mode' else 'on'}")
    await conn.execute(f"SET LOCAL statement_timeout = {_milliseconds(timeout_s)}")


async def _roll_back(work: asyncpg.transaction.Transaction) -> None:
    # Whatever prevents the rollback also ends the session, and with it the transaction; the first error matters.
    try:
        async with asyncio.timeout(1.0):
            await work.rollback()
    except (*UNAVAILABLE, asyncpg.PostgresError):
        return


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
