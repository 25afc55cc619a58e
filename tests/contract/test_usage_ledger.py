"""What every `UsageLedger` promises: the same lines against memory and against a real Postgres."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime

import asyncpg
import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, OTHER, QUOTA, adjust, allocation, at, reservation_name, reserve

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.memory.usage_ledger import MemoryUsageLedger
from regionquota.adapters.postgres import usage
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.transaction import Pool, open_pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.core.commands import Commit
from regionquota.core.entries import Entry, EntryKind
from regionquota.core.quota import QuotaKey
from regionquota.ledger_ports import LedgerLine, LedgerPosition, UsageLedger, UsageSum
from regionquota.ports import RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store

BEGIN = LedgerPosition()
TODAY = date(2026, 6, 15)
DAY = 86_400.0
THEIRS = QuotaKey("zoo", "vcpu")


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, password=None, size=3, deadlines=fixtures.PATIENT)
    yield pool
    pool.terminate()


@pytest.fixture
def postgres_ledger(pool: Pool) -> PostgresUsageLedger:
    return PostgresUsageLedger(pool, fixtures.PATIENT)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, store: RegionStore) -> UsageLedger:
    if isinstance(store, MemoryRegionStore):
        return MemoryUsageLedger(store)
    chosen: UsageLedger = request.getfixturevalue("postgres_ledger")
    return chosen


async def write(store: RegionStore, *deltas: int, key: QuotaKey = QUOTA, now: float = NOON) -> None:
    """A line in a transaction of its own for each."""
    if await store.holding(key) is None:
        await store.apply(key, allocation(10**6, eu=10**5), 10, now)
    for n, delta in enumerate(deltas):
        await store.transact([adjust(delta, request=f"{key}{now}{n}{delta}", key=key)], now)


def deltas(lines: Sequence[LedgerLine]) -> list[int]:
    return [line.entry.delta for line in lines]


async def all_of(ledger: UsageLedger, day: date, tenant: str | None = None) -> list[LedgerLine]:
    return [line async for lines in ledger.day(day, tenant) for line in lines]


async def read_on(
    ledger: UsageLedger, most: int, after: LedgerPosition = BEGIN, **only: str
) -> tuple[list[list[int]], LedgerPosition]:
    """The pages until there is nothing more, and where they end."""
    pages: list[list[int]] = []
    more = True
    while more:
        page = await ledger.page("acme", after, most, **only)
        pages.append(deltas(page.lines))
        after, more = page.following, page.more
    return pages, after


# -- paging --


async def test_a_line_says_what_was_written(store: RegionStore, ledger: UsageLedger) -> None:
    await store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    name = reservation_name(1)
    await store.transact([reserve(5, name=name), Commit(name, 3)], NOON)
    await store.transact([adjust(-2, request="a", reason="deleted")], NOON + 0.5)
    first, second = (await ledger.page("acme", BEGIN, 10)).lines
    assert Entry(QUOTA, 0, EntryKind.COMMIT, 3, NOON, name, first.entry.request_id, first.entry.reason) == first.entry
    assert Entry(QUOTA, 0, EntryKind.ADJUST, -2, NOON + 0.5, None, "a", "deleted") == second.entry


async def test_pages_go_through_all_lines_once_and_in_order(store: RegionStore, ledger: UsageLedger) -> None:
    await write(store, 1, 2, 3, 4, 5)
    assert [[1, 2], [3, 4], [5]] == (await read_on(ledger, 2))[0]


async def test_a_page_that_ends_with_the_last_line_says_so_at_the_latest_in_the_next(
    store: RegionStore, ledger: UsageLedger
) -> None:
    await write(store, 1, 2)
    pages, _ = await read_on(ledger, 2)
    assert [1, 2] == [delta for page in pages for delta in page]


async def test_without_lines_there_is_nothing_more(store: RegionStore, ledger: UsageLedger) -> None:
    assert ([[]], BEGIN) == await read_on(ledger, 2)


async def test_reading_goes_on_where_it_ended(store: RegionStore, ledger: UsageLedger) -> None:
    await write(store, 1, 2)
    _, reached = await read_on(ledger, 10)
    assert [[]] == (await read_on(ledger, 10, reached))[0]
    await write(store, 3, now=NOON + 1)
    assert [[3]] == (await read_on(ledger, 10, reached))[0]


async def test_a_page_is_of_one_tenant_and_of_the_resource_and_scope_asked_for(
    store: RegionStore, ledger: UsageLedger
) -> None:
    team = QuotaKey("acme", "vcpu", "team:a")
    for delta, key in enumerate((QUOTA, OTHER, THEIRS, team, QUOTA), start=1):
        await write(store, delta, key=key)
    assert [[1, 2, 4, 5]] == (await read_on(ledger, 10))[0]
    assert [[2]] == (await read_on(ledger, 10, resource="disk"))[0]
    assert [[1, 5]] == (await read_on(ledger, 10, resource="vcpu", scope="global"))[0]
    assert [[4]] == (await read_on(ledger, 10, scope="team:a"))[0]


async def test_lines_of_one_transaction_may_stand_on_two_pages(store: RegionStore, ledger: UsageLedger) -> None:
    await store.apply(QUOTA, allocation(10**6, eu=100), 10, NOON)
    await store.transact([adjust(n, request=f"a{n}") for n in (1, 2, 3)], NOON)
    assert [[1, 2], [3]] == (await read_on(ledger, 2))[0]


async def test_nothing_that_is_written_later_comes_to_stand_below_a_cursor(
    database: str, postgres_store: RegionStore, postgres_ledger: PostgresUsageLedger
) -> None:
    """A transaction that began first and ends last has the lower number."""
    await write(postgres_store, 1)
    slow = await asyncpg.connect(database)
    try:
        work = slow.transaction()
        await work.start()
        await slow.execute(
            "INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta) "
            "VALUES (now(), 'acme', 'vcpu', 'global', 0, 'adjust', 2)"
        )
        await write(postgres_store, 3, now=NOON + 1)
        seen, reached = await read_on(postgres_ledger, 10)
        assert [[1]] == seen
        await work.commit()
        assert [[2, 3]] == (await read_on(postgres_ledger, 10, reached))[0]
    finally:
        await slow.close()


async def test_readers_miss_nothing_while_many_write(
    postgres_ledger: PostgresUsageLedger, open_store: fixtures.OpenStore
) -> None:
    stores: list[RegionStore] = [await open_store() for _ in range(3)]
    await write(stores[0], 1)
    seen: list[int] = []

    async def read(until: int) -> None:
        reached = BEGIN
        while len(seen) < until:
            page = await postgres_ledger.page("acme", reached, 7)
            reached = page.following
            seen.extend(deltas(page.lines))

    async with asyncio.timeout(60):
        reading = asyncio.create_task(read(91))
        for n in range(30):
            await asyncio.gather(*(write(one, 1, now=NOON + 100 * n + m) for m, one in enumerate(stores, start=1)))
        await reading
    assert 91 == len(seen)


async def test_one_look_for_a_rare_resource_is_bounded(
    postgres_store: RegionStore, postgres_ledger: PostgresUsageLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_LOOKED_AT", 3)
    await write(postgres_store, 1, 2, 3, 4)
    await write(postgres_store, 5, key=OTHER)
    assert [[], [5]] == (await read_on(postgres_ledger, 2, resource="disk"))[0]


async def test_the_last_lines_are_the_newest_in_order(store: RegionStore, ledger: UsageLedger) -> None:
    await write(store, 1, 2, 3)
    await write(store, 4, key=OTHER)
    await write(store, 5, key=THEIRS)
    assert [3, 4] == deltas(await ledger.last("acme", 2))
    assert [2, 3] == deltas(await ledger.last("acme", 2, resource="vcpu", scope="global"))


# -- days --


async def test_a_day_is_from_midnight_to_midnight_utc(store: RegionStore, ledger: UsageLedger) -> None:
    midnight = at(2026, 6, 16)
    for delta, now in enumerate((at(2026, 6, 15) - 0.001, at(2026, 6, 15), midnight - 0.001, midnight), start=1):
        await write(store, delta, now=now)
    assert [2, 3] == deltas(await all_of(ledger, TODAY))


async def test_a_day_is_told_by_tenant_whatever_the_size_of_its_parts(
    store: RegionStore, ledger: UsageLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "PART", 2)
    await write(store, 1, 2, key=THEIRS)
    await write(store, 3, 4, 5)
    assert [3, 4, 5, 1, 2] == deltas(await all_of(ledger, TODAY))
    assert [3, 4, 5] == deltas(await all_of(ledger, TODAY, "acme"))
    assert [1, 2] == deltas(await all_of(ledger, TODAY, "zoo"))
    assert [] == await all_of(ledger, TODAY, "nobody")


async def test_sums_are_by_quota_epoch_and_kind(store: RegionStore, ledger: UsageLedger) -> None:
    await write(store, 5, -2)
    await write(store, 7, key=THEIRS)
    await write(store, 9, now=NOON + DAY)
    name = reservation_name(1)
    await store.transact([reserve(3, name=name), Commit(name)], NOON)
    mine = [UsageSum(QUOTA, 0, EntryKind.ADJUST, 2, 3), UsageSum(QUOTA, 0, EntryKind.COMMIT, 1, 3)]
    assert [*mine, UsageSum(THEIRS, 0, EntryKind.ADJUST, 1, 7)] == await ledger.sums(TODAY)
    assert mine == await ledger.sums(TODAY, "acme")


async def test_sums_may_pass_what_one_amount_may_be(database: str, postgres_ledger: PostgresUsageLedger) -> None:
    columns = "at, tenant_id, resource, scope, epoch, kind, delta"
    line = f"INSERT INTO usage_ledger ({columns}) VALUES ($1, 'acme', 'vcpu', 'global', 0, 'commit', {2**63 - 1})"
    for _ in range(2):
        await fixtures.query(database, line, datetime(2026, 6, 15, tzinfo=UTC))
    (total,) = await postgres_ledger.sums(TODAY)
    assert 2 * (2**63 - 1) == total.delta


async def test_it_is_all_there_until_something_is_dropped(store: RegionStore, ledger: UsageLedger) -> None:
    await write(store, 1)
    assert await ledger.kept_since() is None


async def test_after_a_day_was_dropped_the_next_one_is_the_first(
    postgres_store: RegionStore, postgres_ledger: PostgresUsageLedger, pool: Pool
) -> None:
    upkeep = PostgresLedgerUpkeep(pool, fixtures.PATIENT)
    await upkeep.make_ahead(NOON, 2, 0)
    await write(postgres_store, 1)
    assert await upkeep.drop_day(TODAY)
    assert date(2026, 6, 16) == await postgres_ledger.kept_since()
