"""Partitions of the usage ledger and of the reservations: dropped in time."""

import asyncio
import time
from datetime import date
from typing import Any

import asyncpg
import pytest
from tests.adapters import partitioned
from tests.adapters.partitioned import AS_SERVED, DAY, TODAY, name_at, rows, upkeep_on
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, at, differences, reserve

from regionquota.adapters.postgres import partitions
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.core.commands import Commit, Granted, Meter, Release, Start
from regionquota.errors import ProtocolError

server, migrated_database = fixtures.server, fixtures.migrated_database
database, upkeep = partitioned.database, partitioned.upkeep
store, other = partitioned.store, partitioned.other


# -- the end of a day --


async def lived_in(upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore) -> None:
    """Lines of all three sums on two days; the second day's are in the same epochs."""
    await upkeep.make_ahead(NOON, 1, 1)
    held = name_at(NOON)
    await store.transact([reserve(900, name=held), adjust(10, request="a")], NOON)
    await store.transact([Commit(held, 1100)], NOON + 1)
    await store.transact([adjust(-300, request="b")], NOON + DAY)


async def test_a_day_is_dropped_and_what_it_added_up_to_is_kept(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await lived_in(upkeep, store)
    for day in (TODAY, date(2026, 6, 16)):
        assert await upkeep.drop_day(day)
        assert [] == differences(await store.check_balances())
    assert 0 == await rows(database, "usage_ledger")
    assert 1 == await rows(database, "usage_openings")
    assert [] == await upkeep.days_before(date(2027, 1, 1))


async def test_days_before_one_are_those_that_have_a_partition(upkeep: PostgresLedgerUpkeep) -> None:
    await upkeep.make_ahead(NOON, 2, 1)
    assert [TODAY, date(2026, 6, 16)] == await upkeep.days_before(date(2026, 6, 17))


async def test_a_day_that_is_not_as_it_was_archived_is_not_dropped(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await lived_in(upkeep, store)
    there = await rows(database, "usage_ledger_20260615")
    with pytest.raises(ProtocolError, match=f"holds {there} lines, its archive {there - 1}"):
        await upkeep.drop_day(TODAY, there - 1)
    assert there == await rows(database, "usage_ledger_20260615")
    assert 0 == await rows(database, "usage_openings")
    assert await upkeep.drop_day(TODAY, there)


async def test_a_day_is_dropped_once_by_several_servers(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await lived_in(upkeep, store)
    servers = [await upkeep_on(database) for _ in range(4)]
    try:
        dropped = await asyncio.gather(*(upkeep.drop_day(TODAY) for upkeep, _ in servers))
    finally:
        for _, pool in servers:
            pool.terminate()
    assert 1 == sum(dropped)
    assert [] == differences(await store.check_balances())


# -- while others work --


async def reserve_until(store: PostgresRegionStore, done: asyncio.Event) -> list[float]:
    """One after the other, as callers of a server would; how long each took."""
    took = []
    while not done.is_set():
        began = time.perf_counter()
        name = name_at(NOON)
        (outcome,) = await store.transact([reserve(1, name=name)], NOON)
        assert isinstance(outcome, Granted)
        await store.transact([Release(name)], NOON)
        took.append(time.perf_counter() - began)
    return took


async def test_reserves_go_on_while_partitions_are_made_and_dropped(
    upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    await lived_in(upkeep, store)
    done = asyncio.Event()
    reserving = asyncio.create_task(reserve_until(store, done))
    await upkeep.make_ahead(NOON, 30, 8)
    for day in await upkeep.days_before(date(2026, 7, 10)):
        assert await upkeep.drop_day(day)
    done.set()
    assert len(await reserving) > 10


async def test_who_waits_for_a_long_reader_does_not_keep_reserves_waiting(
    database: str,
    upkeep: PostgresLedgerUpkeep,
    store: PostgresRegionStore,
    other: "asyncpg.Connection[asyncpg.Record]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lock that a drop needs conflicts with every reader, and whoever comes later queues up behind it."""
    monkeypatch.setattr(partitions, "PAUSE_S", 0.05)
    await lived_in(upkeep, store)
    reading = other.transaction()
    await reading.start()
    await other.execute("SELECT count(*) FROM usage_ledger; SELECT count(*) FROM reservations")
    done = asyncio.Event()
    reserving = asyncio.create_task(reserve_until(store, done))
    assert not await upkeep.drop_day(TODAY)
    assert 0 == await upkeep.drop_reservations(NOON + 100 * DAY)
    done.set()
    assert max(await reserving) < AS_SERVED.lock
    assert 0 == await rows(database, "usage_openings")
    await reading.rollback()
    assert await upkeep.drop_day(TODAY)
    assert [] == differences(await store.check_balances())


async def test_nothing_is_added_to_a_day_between_its_summing_up_and_its_end(
    upkeep: PostgresLedgerUpkeep,
    store: PostgresRegionStore,
    other: "asyncpg.Connection[asyncpg.Record]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lived_in(upkeep, store)
    slowly = partitions.PARTITIONS["keep_sums"].replace(
        "SELECT coalesce(sum", "SELECT pg_sleep(1) IS NULL, coalesce(sum"
    )
    monkeypatch.setitem(partitions.PARTITIONS, "keep_sums", slowly)
    dropping = asyncio.create_task(upkeep.drop_day(TODAY))
    await asyncio.sleep(0.3)
    await other.execute("SET lock_timeout = '100ms'")
    columns = "at, tenant_id, resource, scope, epoch, kind, delta"
    with pytest.raises(asyncpg.LockNotAvailableError):
        await other.execute(f"INSERT INTO usage_ledger ({columns}) SELECT {columns} FROM usage_ledger_20260615 LIMIT 1")
    assert await dropping
    assert [] == differences(await store.check_balances())


# -- the end of a week --


async def week_with(upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore, *batch: Any, name: str) -> None:
    await upkeep.make_ahead(NOON, 1, 0)
    await store.transact([reserve(1, name=name, ttl=86_400), *batch], NOON)


END_OF_WEEK = at(2026, 6, 22)


async def test_a_week_is_dropped_once_it_has_ended(upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore) -> None:
    name = name_at(NOON)
    await week_with(upkeep, store, Release(name), name=name)
    assert 0 == await upkeep.drop_reservations(END_OF_WEEK - 1)
    assert await store.reservation(name) is not None
    assert 1 == await upkeep.drop_reservations(END_OF_WEEK)
    assert await store.reservation(name) is None


@pytest.mark.parametrize("state", ["PENDING", "STARTED", "UNKNOWN"])
async def test_a_week_with_work_that_is_not_settled_waits(
    upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore, state: str
) -> None:
    name = name_at(NOON)
    await week_with(upkeep, store, *([] if state == "PENDING" else [Start(name, "op")]), name=name)
    if state == "UNKNOWN":
        await store.expire(NOON + 2 * DAY, 10)
    held = await store.reservation(name)
    assert held is not None
    assert state == held.state.value
    assert 0 == await upkeep.drop_reservations(END_OF_WEEK + 100 * DAY)
    await store.transact([Commit(name)], NOON + 3 * DAY)
    assert 1 == await upkeep.drop_reservations(END_OF_WEEK + 100 * DAY)
    assert [] == differences(await store.check_balances())


async def test_a_week_waits_for_answers_that_may_still_be_asked_for(
    upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    name = name_at(NOON)
    await week_with(upkeep, store, Start(name, "op"), name=name)
    settled_at = END_OF_WEEK + 20 * DAY
    await store.transact([Commit(name)], settled_at)
    assert 0 == await upkeep.drop_reservations(settled_at - 1)
    assert 1 == await upkeep.drop_reservations(settled_at + 1)


# -- what is forgotten row by row --


async def test_old_adjustments_silent_sources_and_homeless_holds_are_forgotten_in_batches(
    database: str, upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore
) -> None:
    for n in range(5):
        name = name_at(NOON)
        await store.transact([reserve(1, name=name), Release(name)], NOON)
        await store.transact([adjust(1, request=f"a{n}"), Meter(QUOTA, f"s{n}", "1", 1, 5)], NOON)
    later = NOON + DAY
    await store.transact([adjust(1, request="later"), Meter(QUOTA, "later", "1", 1, 5)], later)
    pending, released = name_at(NOON), name_at(later)
    await store.transact([reserve(1, name=pending), reserve(1, name=released), Release(released)], later)
    assert [9, 6] == [await upkeep.forget(later, later, 3) for _ in range(2)]
    assert 0 == await upkeep.forget(later, later, 3)
    assert [1, 1, 2] == [await rows(database, table) for table in ("adjustments", "meter_readings", "reservations")]
    assert [] == differences(await store.check_balances())


async def test_what_somebody_works_on_is_passed_over(
    upkeep: PostgresLedgerUpkeep, store: PostgresRegionStore, other: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    for n in range(2):
        await store.transact([adjust(1, request=f"a{n}")], NOON)
    working = other.transaction()
    await working.start()
    await other.execute("SELECT FROM adjustments WHERE request_id = 'a0' FOR UPDATE")
    assert 1 == await upkeep.forget(NOON + 1, NOON, 10)
    await working.rollback()
