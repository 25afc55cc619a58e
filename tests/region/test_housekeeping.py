"""What is kept for how long, on a real Postgres, and what a step does when something is in its way."""

import gzip
from collections.abc import AsyncIterator, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, reserve

from regionquota.adapters.archive import DirectoryArchive
from regionquota.adapters.postgres.demand_history import PostgresDemandHistory
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Pool, open_pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.core.commands import Adjusted, Granted, Meter, Release
from regionquota.core.forecast import Counted, Past
from regionquota.embedded import EmbeddedPostgres
from regionquota.errors import ProtocolError
from regionquota.ledger_ports import Ahead
from regionquota.region.housekeeping import DAY_S, Housekeeping, Keeping
from regionquota.region.ids import reservation_id

server, migrated_database = fixtures.server, fixtures.migrated_database
numbers = count(1)
TODAY = date(2026, 6, 15)
KEEPING = Keeping(days_ahead=2, weeks_ahead=1, retention_days=400, idempotency_days=7, meter_days=90, batch=2)


@pytest.fixture
async def pool(server: EmbeddedPostgres, migrated_database: str) -> AsyncIterator[Pool]:
    """On a migrated database that is nobody else's: partitions stay."""
    name = f"house_{next(numbers)}"
    await fixtures.query(server.dsn, f"CREATE DATABASE {name} TEMPLATE migrated")
    pool = await open_pool(fixtures.dsn_of(server, name), password=None, size=3, deadlines=fixtures.PATIENT)
    yield pool
    pool.terminate()


@pytest.fixture
async def store(pool: Pool) -> PostgresRegionStore:
    store = PostgresRegionStore(pool, "eu", fixtures.PATIENT)
    await store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    return store


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOON)


def house(
    pool: Pool, clock: HandClock, archive: Any = None, looks: list[Sequence[Ahead]] | None = None
) -> Housekeeping:
    upkeep, ledger = PostgresLedgerUpkeep(pool, fixtures.PATIENT), PostgresUsageLedger(pool, fixtures.PATIENT)
    return Housekeeping(upkeep, ledger, archive, clock, KEEPING, ([] if looks is None else looks).append)


async def test_what_was_asked_for_is_kept_for_two_weeks(pool: Pool, clock: HandClock) -> None:
    history = PostgresDemandHistory(pool, fixtures.PATIENT)
    upkeep, ledger = PostgresLedgerUpkeep(pool, fixtures.PATIENT), PostgresUsageLedger(pool, fixtures.PATIENT)
    keeper = Housekeeping(upkeep, ledger, None, clock, KEEPING, lambda _: None, history)
    hours = [NOON - days * DAY_S for days in (16, 15.5, 15, 14)]
    for hour in hours:
        await history.add(hour, {QUOTA: Counted(1)})
    await keeper.forget()
    assert [Past(QUOTA, hours[2], {hours[2]: Counted(1), hours[3]: Counted(1)})] == await history.recall([QUOTA], hours)


async def lines(pool: Pool) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM usage_ledger"))


async def test_partitions_are_made_and_told_of(pool: Pool, clock: HandClock) -> None:
    looks: list[Sequence[Ahead]] = []
    await house(pool, clock, looks=looks).prepare()
    assert [[Ahead("usage_ledger", 2, 0), Ahead("reservations", 7, 0)]] == looks


async def test_a_line_is_kept_for_its_days_and_then_archived_and_dropped(
    pool: Pool, store: PostgresRegionStore, clock: HandClock, tmp_path: Path
) -> None:
    keeper = house(pool, clock, DirectoryArchive(tmp_path, "eu"))
    await keeper.step()
    await store.transact([adjust(1, request="a"), adjust(2, request="b")], NOON)
    clock.seconds += 400 * DAY_S
    await keeper.step()
    assert 2 == await lines(pool)
    clock.seconds += DAY_S
    await keeper.step()
    assert 0 == await lines(pool)
    archived = gzip.decompress((tmp_path / "usage-ledger-eu-2026-06-15.jsonl.gz").read_bytes())
    assert [1, 2] == [archived.count(b'"delta":%d,' % n) * n for n in (1, 2)]
    assert [] == differences(await store.check_balances())


async def test_without_an_archive_a_day_is_dropped_all_the_same(
    pool: Pool, store: PostgresRegionStore, clock: HandClock
) -> None:
    await house(pool, clock).step()
    await store.transact([adjust(1, request="a")], NOON)
    clock.seconds += 401 * DAY_S
    await house(pool, clock).step()
    assert 0 == await lines(pool)


class FullDisk:
    async def keep(self, day: date, parts: Any) -> int:
        raise OSError(28, "No space left on device")


class ShortOfOne(DirectoryArchive):
    async def keep(self, day: date, parts: Any) -> int:
        return await super().keep(day, parts) - 1


@pytest.mark.parametrize(("broken", "error"), [(FullDisk, OSError), (ShortOfOne, ProtocolError)])
async def test_a_day_that_is_not_archived_whole_is_not_dropped(
    pool: Pool, store: PostgresRegionStore, clock: HandClock, tmp_path: Path, broken: Any, error: type[Exception]
) -> None:
    await house(pool, clock).step()
    await store.transact([adjust(1, request="a")], NOON)
    clock.seconds += 401 * DAY_S
    with pytest.raises(error):
        await house(pool, clock, broken(*([] if broken is FullDisk else [tmp_path, "eu"]))).step()
    assert 1 == await lines(pool)


async def test_ids_are_answered_for_their_days_and_forgotten_then(
    pool: Pool, store: PostgresRegionStore, clock: HandClock
) -> None:
    keeper = house(pool, clock)
    await keeper.step()
    name = reservation_id("acme", NOON, 1)
    asked = [reserve(1, name=name, request="r"), Release(name), *(adjust(n, request=f"a{n}") for n in (1, 2, 3))]
    await store.transact(asked, NOON)
    again = [reserve(1, name=reservation_id("acme", NOON, 2), request="r"), adjust(1, request="a1")]

    clock.seconds += 7 * DAY_S
    await keeper.step()
    outcomes = await store.transact(again, clock.now())
    assert [True, True] == [one.replayed for one in outcomes if isinstance(one, Granted | Adjusted)]

    clock.seconds += 7 * DAY_S  # the week has ended, and seven days have passed since
    await keeper.step()
    assert await store.reservation(name) is None
    outcomes = await store.transact(again, clock.now())
    assert [False, False] == [one.replayed for one in outcomes if isinstance(one, Granted | Adjusted)]


async def test_a_source_is_remembered_until_it_is_silent_for_long(
    pool: Pool, store: PostgresRegionStore, clock: HandClock
) -> None:
    keeper = house(pool, clock)
    await store.transact([Meter(QUOTA, f"source-{n}", "1", 1, 5) for n in range(5)], NOON)
    clock.seconds += 90 * DAY_S
    await keeper.step()
    assert 5 == await pool.fetchval("SELECT count(*) FROM meter_readings")
    clock.seconds += 1
    await keeper.step()
    assert 0 == await pool.fetchval("SELECT count(*) FROM meter_readings")
