"""A release that fails in the middle of a larger transaction: only its own hold is affected, and that one heals."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.clocks import Clock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Command, Commit, Granted, Release, Settled
from regionquota.core.counter import Counter
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State
from regionquota.region.group_commit import GroupCommit
from regionquota.region.sweeper import sweep_all

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store

ONE, TWO, THREE, FOUR = (reservation_name(number) for number in (1, 2, 3, 4))
CANNOT_RELEASE = f"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON reservations FOR EACH ROW
  WHEN (NEW.state = 'RELEASED' AND NEW.id = '{TWO}') EXECUTE FUNCTION refuse();
"""


@pytest.fixture
async def broken(database: str) -> AsyncIterator[None]:
    """TWO cannot be released: every attempt fails in the database."""
    conn = await asyncpg.connect(database)
    await conn.execute(CANNOT_RELEASE)
    yield
    await conn.execute("DROP FUNCTION refuse() CASCADE")
    await conn.close()


def nobody(_key: QuotaKey, _units: int) -> None:
    pass


@pytest.mark.usefixtures("broken")
async def test_a_release_that_fails_takes_no_neighbour_with_it_and_its_hold_ends_with_its_time(
    postgres_store: PostgresRegionStore,
) -> None:
    await postgres_store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await postgres_store.transact([reserve(10, name=name, ttl=30) for name in (ONE, TWO, THREE)], NOON)
    sizes: list[int] = []
    group = GroupCommit(postgres_store, Clock(NOON), lanes=1, max_batch=10, max_queue=10, on_batch=sizes.append)
    group.start()
    commands: list[Command] = [Release(ONE), Release(TWO), Commit(THREE), reserve(10, name=FOUR)]
    one, two, three, four = await asyncio.gather(
        *(group.submit(command, 0) for command in commands), return_exceptions=True
    )
    await group.stop()
    assert 4 == sizes[0], "they were not in one transaction"
    assert [Settled, Settled, Granted] == [type(outcome) for outcome in (one, three, four)]
    assert isinstance(two, Exception)
    held = await postgres_store.holding(QUOTA)
    assert held is not None
    assert Counter(slice=100, available=70, reserved=20, used=10) == held.counter

    await sweep_all(postgres_store, Clock(NOON + 30), 100, nobody)
    found, held = await postgres_store.reservation(TWO), await postgres_store.holding(QUOTA)
    assert found is not None
    assert held is not None
    assert (State.EXPIRED, 80) == (found.state, held.counter.available)
    assert [] == differences(await postgres_store.check_balances())
