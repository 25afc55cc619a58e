"""What the database itself refuses, whatever a bug in the code or a hand in psql would do to it."""

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, at, reservation_name, reserve

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Adjust, Commit, Release
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

PENDING, COMMITTED, RELEASED = (reservation_name(number) for number in (1, 2, 3))
LATE_IN_MAY, IN_JUNE = at(2026, 5, 31, 23, 59, 30), at(2026, 6, 1, 0, 0, 10)


@pytest.fixture
async def lived_in(database: str, open_store: fixtures.OpenStore) -> str:
    """A database with something in every table."""
    store: PostgresRegionStore = await open_store()
    await store.apply(QUOTA, allocation(1000, kind=Kind.CONSUMABLE, eu=100), 10, LATE_IN_MAY)
    await store.transact([reserve(5, name=COMMITTED), Commit(COMMITTED)], LATE_IN_MAY)
    batch = [reserve(5, name=RELEASED), Release(RELEASED), reserve(60, name=PENDING), adjust(20, request="x")]
    await store.transact(batch, IN_JUNE)
    assert epoch_of(Kind.CONSUMABLE, IN_JUNE) == (await store.holdings())[0].epoch
    assert 2 == len(await store.check_balances())
    return database


@pytest.mark.parametrize("table", ["quota_counters", "closed_counters"])
@pytest.mark.parametrize(
    "change",
    [
        "slice = slice + 1",
        "available = available - 1",
        "reserved = reserved + 1",
        "used = used - 1",
        "retired = retired + 1",
        "overdraft_issued = overdraft_issued + 1",
        "available = available + 1, overdraft_issued = overdraft_issued + 1",
        "available = available + 101, slice = slice + 101, overdraft_issued = 7, used = used + 7",
        "overdraft_repaid = 1, available = available - 1",
        "overage = overage + 1",
        "available = available + 101, slice = slice + 101, overage = 7, used = used + 7",
        "overage = -1, reserved = reserved - 1",
        "slice = -1, available = available - slice - 1",
        "available = -1, used = used + available + 1",
        "reserved = -1, used = used + reserved + 1",
        "used = -1, reserved = reserved + used + 1",
    ],
)
async def test_a_counter_that_does_not_add_up_is_refused(lived_in: str, table: str, change: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(lived_in, f"UPDATE {table} SET {change}")


@pytest.mark.parametrize(
    "change",
    [
        "limit_total = -1",
        "revision = 0",
        "epoch = -1",
        "kind = 'other'",
        "leaked_at = -1",
        "guaranteed = -1",
        "lien = -1",
    ],
)
async def test_a_counter_out_of_range_is_refused(lived_in: str, change: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(lived_in, f"UPDATE quota_counters SET {change}")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (PENDING, "state = 'COMMITTED', settled_at = now()"),
        (PENDING, "state = 'RELEASED'"),
        (PENDING, "actual = 5"),
        (PENDING, "settled_at = now()"),
        (PENDING, "amount = 0"),
        (PENDING, "amount = -1"),
        (PENDING, "state = 'STARTED'"),
        (PENDING, "state = 'UNKNOWN'"),
        (PENDING, "state = 'OTHER'"),
        (PENDING, "over = -1"),
        (PENDING, "over = amount + 1"),
        (COMMITTED, "state = 'PENDING'"),
        (COMMITTED, "actual = NULL"),
        (COMMITTED, "actual = 0"),
        (RELEASED, "actual = 5"),
    ],
)
async def test_a_reservation_that_contradicts_itself_is_refused(lived_in: str, name: str, change: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(lived_in, f"UPDATE reservations SET {change} WHERE id = $1", name)


async def test_a_second_hold_for_the_same_request_is_refused(lived_in: str) -> None:
    columns = "tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at, actual"
    copied = f"INSERT INTO reservations SELECT gen_random_uuid(), {columns}, settled_at FROM reservations"
    with pytest.raises(asyncpg.UniqueViolationError, match="one_hold_per_request"):
        await fixtures.query(lived_in, copied)


@pytest.mark.parametrize("table", ["usage_ledger", "slice_ledger"])
@pytest.mark.parametrize("change", ["UPDATE {} SET at = now()", "DELETE FROM {}", "TRUNCATE {}"])
async def test_a_ledger_can_only_be_appended_to(lived_in: str, table: str, change: str) -> None:
    before = await fixtures.query(lived_in, f"SELECT count(*) FROM {table}")
    with pytest.raises(asyncpg.RaiseError, match=rf"{table}\w* is append-only"):
        await fixtures.query(lived_in, change.format(table))
    assert 0 < before == await fixtures.query(lived_in, f"SELECT count(*) FROM {table}")


async def test_a_ledger_line_of_nothing_is_refused(lived_in: str) -> None:
    columns = "at, tenant_id, resource, scope, epoch, kind"
    line = f"INSERT INTO usage_ledger ({columns}, delta) SELECT {columns}, 0 FROM usage_ledger"
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(lived_in, line)


async def test_a_database_has_one_owner(database: str) -> None:
    await fixtures.query(database, "INSERT INTO region_identity (region) VALUES ('eu')")
    with pytest.raises(asyncpg.UniqueViolationError):
        await fixtures.query(database, "INSERT INTO region_identity (region) VALUES ('us')")
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(database, "INSERT INTO region_identity (only_row, region) VALUES (false, 'us')")


async def test_what_a_counter_refuses_leaves_nothing_else_of_its_batch(
    lived_in: str, open_store: fixtures.OpenStore
) -> None:
    """So a bug in the balances aborts a transaction and corrupts nothing; the constraint stands for such a bug."""
    await fixtures.query(lived_in, "ALTER TABLE quota_counters ADD CONSTRAINT broken CHECK (used < 25)")
    store: PostgresRegionStore = await open_store()
    with pytest.raises(asyncpg.CheckViolationError, match="broken"):
        await store.transact([reserve(5, name=reservation_name(9), request="y"), adjust(5, request="z")], NOON)
    await fixtures.query(lived_in, "ALTER TABLE quota_counters DROP CONSTRAINT broken")
    assert await store.reservation_of_request("acme", "y") is None


async def test_what_the_driver_refuses_leaves_nothing_of_its_batch(
    lived_in: str, open_store: fixtures.OpenStore
) -> None:
    """The text is found out when the counters are written already, and the server knows nothing of it."""
    store: PostgresRegionStore = await open_store()
    before = await store.holding(QUOTA)
    with pytest.raises((asyncpg.DataError, UnicodeEncodeError)):
        await store.transact([Adjust(QUOTA, 5, "y", b"digest", "no text: \ud800")], IN_JUNE)
    assert before == await store.holding(QUOTA)
