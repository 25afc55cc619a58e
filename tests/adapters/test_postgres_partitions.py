"""Partitions of the usage ledger and of the reservations: made ahead and append-only."""

import asyncio
import uuid
from datetime import UTC, date, datetime

import asyncpg
import pytest
import structlog
from tests.adapters import partitioned
from tests.adapters.partitioned import DAY, name_at, rows, tables, upkeep_on
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, adjust, at, reserve

from regionquota.adapters.postgres import partitions
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Granted
from regionquota.errors import ConfigError

server, migrated_database = fixtures.server, fixtures.migrated_database
database, upkeep = partitioned.database, partitioned.upkeep
store, other = partitioned.store, partitioned.other


async def test_there_are_partitions_for_today_and_this_week_and_as_many_ahead_as_asked_for(
    database: str, upkeep: PostgresLedgerUpkeep
) -> None:
    ahead = await upkeep.make_ahead(NOON + 3 * DAY, 2, 1)
    assert ["usage_ledger_20260618", "usage_ledger_20260619", "usage_ledger_20260620"] == await tables(
        database, "usage_ledger_[0-9]"
    )
    assert ["reservations_20260615", "reservations_20260622"] == await tables(database, "reservations_[0-9]")
    assert [("usage_ledger", 2, 0), ("reservations", 7, 0)] == [
        (one.table, one.days, one.homeless_rows) for one in ahead
    ]


async def test_days_begin_at_midnight_and_weeks_on_monday_both_in_utc(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await upkeep.make_ahead(NOON, 7, 1)
    monday = at(2026, 6, 22)
    for now in (monday - 0.001, monday):
        await store.transact([reserve(1, name=name_at(now)), adjust(1, request=f"a{now}")], now)
    days = ["usage_ledger_20260621", "usage_ledger_20260622"]
    assert [1, 1] == [await rows(database, day) for day in days]
    assert [1, 1] == [await rows(database, week) for week in ("reservations_20260615", "reservations_20260622")]


async def test_several_servers_at_once_make_each_partition_once(database: str) -> None:
    servers = [await upkeep_on(database) for _ in range(4)]
    try:
        async with asyncio.timeout(60):
            while (
                len(await tables(database, "usage_ledger_[0-9]")) < 4
            ):  # who finds another at it leaves it to that one
                await asyncio.gather(*(upkeep.make_ahead(NOON, 3, 1) for upkeep, _ in servers))
    finally:
        for _, pool in servers:
            pool.terminate()
    assert 4 == len(await tables(database, "usage_ledger_[0-9]"))
    assert 2 == len(await tables(database, "reservations_[0-9]"))


async def test_while_another_server_is_at_it_there_is_nothing_to_do(
    database: str, upkeep: PostgresLedgerUpkeep, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await other.execute("SELECT pg_advisory_lock($1)", partitions._IN_CHARGE)
    assert [0, 0] == [one.days for one in await upkeep.make_ahead(NOON, 2, 1)]
    await other.execute("SELECT pg_advisory_unlock($1)", partitions._IN_CHARGE)
    assert [2, 7] == [one.days for one in await upkeep.make_ahead(NOON, 2, 1)]


async def test_what_has_no_partition_is_caught_and_counted(
    upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await upkeep.make_ahead(NOON, 1, 1)
    late = NOON + 100 * DAY
    (outcome, *_) = await store.transact([reserve(1, name=name_at(late)), adjust(1, request="a")], late)
    assert isinstance(outcome, Granted)
    assert [1, 1] == [one.homeless_rows for one in await upkeep.make_ahead(NOON, 1, 1)]


async def test_a_day_that_the_default_partition_has_begun_stays_there_and_the_next_ones_are_made(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await store.transact([reserve(1, name=name_at(NOON)), adjust(1, request="a")], NOON)
    with structlog.testing.capture_logs() as said:
        for _ in range(2):
            await upkeep.make_ahead(NOON, 1, 1)
    assert ["usage_ledger_20260616"] == await tables(database, "usage_ledger_[0-9]")
    assert ["reservations_20260622"] == await tables(database, "reservations_[0-9]")
    assert ["usage_ledger_20260615", "reservations_20260615"] == [
        line["name"] for line in said if line["log_level"] == "warning"
    ]
    await store.transact([adjust(2, request="b")], NOON)
    assert 2 == await rows(database, "usage_ledger_rest")


async def test_a_request_id_is_one_hold_in_a_partition(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await upkeep.make_ahead(NOON, 1, 1)
    await store.transact([reserve(1, name=name_at(NOON), request="r")], NOON)
    columns = "tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at"
    copied = f"INSERT INTO reservations (id, {columns}) SELECT $1, {columns} FROM reservations"
    with pytest.raises(asyncpg.UniqueViolationError, match="one_hold_per_request_in_reservations_20260615"):
        await fixtures.query(database, copied, uuid.UUID(name_at(NOON)))


async def test_reservations_leave_room_for_their_changes(database: str, upkeep: PostgresLedgerUpkeep) -> None:
    await upkeep.make_ahead(NOON, 1, 1)
    for table in await tables(database, "^reservations"):
        assert ["fillfactor=80"] == await fixtures.query(
            database, "SELECT reloptions FROM pg_class WHERE relname = $1", table
        )


async def test_a_user_who_may_not_make_partitions_is_told_what_it_takes(database: str) -> None:
    await fixtures.query(database, "DROP ROLE IF EXISTS guest")
    await fixtures.query(database, "CREATE ROLE guest LOGIN")
    upkeep, pool = await upkeep_on(database.replace("postgres@", "guest@"))
    try:
        with pytest.raises(ConfigError, match="must own usage_ledger and reservations"):
            await upkeep.make_ahead(NOON, 1, 1)
    finally:
        pool.terminate()


@pytest.mark.parametrize("table", ["usage_ledger", "usage_ledger_20260615", "usage_ledger_rest"])
@pytest.mark.parametrize("change", ["UPDATE {} SET at = at", "DELETE FROM {}", "TRUNCATE {}"])
async def test_each_part_of_the_ledger_can_only_be_appended_to(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore, table: str, change: str
) -> None:
    await upkeep.make_ahead(NOON, 1, 1)
    for now in (NOON, NOON + 100 * DAY):
        await store.transact([adjust(1, request=f"a{now}")], now)
    before = await rows(database, table)
    with pytest.raises(asyncpg.RaiseError, match="is append-only"):
        await fixtures.query(database, change.format(table))
    assert 0 < before == await rows(database, table)


async def test_an_id_sorts_into_the_week_in_which_it_was_made() -> None:
    monday = datetime(2026, 6, 22, tzinfo=UTC).timestamp()
    bound = partitions.RESERVATIONS.bounds(date(2026, 6, 22))[0]
    assert uuid.UUID(name_at(monday - 0.001)) < bound <= uuid.UUID(name_at(monday))
