"""A process is killed between the two writes of one operation: neither exists, and the ledgers still add up."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.statements import SLICES, STORE
from regionquota.adapters.postgres.store import PostgresRegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

ROOT = Path(__file__).parents[2]
ONE = reservation_name(1)
LATER = NOON + 60
LAST_WORDS = {
    "expire": "\n".join(STORE["counters"].splitlines()[:2]),  # the hold has ended, its units have not come back
    "apply": SLICES["append_slice"],  # the slice has changed, its ledger does not say so
    "adjust": "COMMIT;",
}
"""What a process was about to say when it was killed in the middle of each operation."""


async def die(dsn: str, operation: str) -> None:
    """Runs in a process of its own, which does not survive it."""
    async with fixtures.store_on(dsn, size=1) as store:
        _kill_before(LAST_WORDS[operation])
        match operation:
            case "expire":
                await store.expire(LATER, 10)
            case "apply":
                await store.apply(QUOTA, allocation(1000, eu=300), 11, LATER)
            case _:
                await store.transact([adjust(7, request="x")], LATER)


def _kill_before(statement: str) -> None:
    for name in ("fetch", "fetchval", "execute"):
        original = getattr(asyncpg.Connection, name)

        async def say(self: Any, query: str, *args: Any, _original: Any = original, **how: Any) -> Any:
            if statement in query:
                os.kill(os.getpid(), signal.SIGKILL)
            return await _original(self, query, *args, **how)

        setattr(asyncpg.Connection, name, say)


async def killed_during(operation: str, dsn: str) -> None:
    program = f"import asyncio; from {__name__} import die; asyncio.run(die({dsn!r}, {operation!r}))"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT)
    assert -signal.SIGKILL == await asyncio.wait_for(child.wait(), 60)


@pytest.fixture
async def store(open_store: fixtures.OpenStore) -> PostgresRegionStore:
    """With a hold that is overdue LATER, and a debt, which what comes back has to repay."""
    opened = await open_store()
    await opened.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await opened.transact([reserve(5, name=ONE, ttl=10), adjust(98, request="y")], NOON)
    return opened


@pytest.mark.parametrize("operation", LAST_WORDS)
async def test_what_a_killed_process_had_half_done_is_not_there(
    database: str, store: PostgresRegionStore, operation: str
) -> None:
    before = await store.holdings(), await store.reservation(ONE), await store.slice_history(0, 10)
    await killed_during(operation, database)
    assert before == (await store.holdings(), await store.reservation(ONE), await store.slice_history(0, 10))
    assert 1 == await fixtures.query(database, "SELECT count(*) FROM adjustments")
    assert [] == differences(await store.check_balances())


async def test_what_a_killed_sweeper_left_is_given_back_by_the_next(database: str, store: PostgresRegionStore) -> None:
    await killed_during("expire", database)
    async with asyncio.timeout(30):
        while not (await store.expire(LATER, 10)).holds:
            await asyncio.sleep(0.05)  # until Postgres has noticed, the hold is the dead process's
    (held,) = await store.holdings()
    assert (2, 0, 0) == (held.counter.available, held.counter.reserved, held.counter.debt)
