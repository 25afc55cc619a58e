"""A hot counter over several rows: many processes at once, and never a unit more or less than one row would give."""

import asyncio
from collections import Counter as Counts
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
from tests.adapters.test_postgres_memo import statements
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, at, differences, reservation_name, reserve

from regionquota.adapters.postgres import shard_watch, sharding, writing
from regionquota.adapters.postgres.loading import lock_counters
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.rows import parts
from regionquota.adapters.postgres.slot import LockedSlot
from regionquota.adapters.postgres.statements import SLICES
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import open_pool
from regionquota.core.balances import Writes
from regionquota.core.commands import Adjusted, Charge, Command, Commit, Denied, Granted, Outcome, Release, Settled
from regionquota.core.counter import Counter
from regionquota.core.policy import Enforcement, QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.shards import CROWDED_PER_S
from regionquota.errors import StoreUnavailable
from regionquota.region.ids import reservation_id

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

Stores = Sequence[PostgresRegionStore]
ONE, TWO = reservation_name(1), reservation_name(2)


@pytest.fixture
async def processes(open_store: fixtures.OpenStore) -> Stores:
    """Four on one database, each with a slot of its own; the quota of 100 is spread over four shards."""
    stores = [await open_store(size=1, slot=slot) for slot in range(4)]
    await stores[0].apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await stores[0].spread(QUOTA, 4, NOON)
    return stores


async def put(store: PostgresRegionStore, *batch: Command, now: float = NOON) -> Outcome:
    """The last command's outcome."""
    return list(await store.transact(batch, now))[-1]


async def whole(store: PostgresRegionStore) -> Counter:
    held = await store.holding(QUOTA)
    assert held is not None
    assert [] == differences(await store.check_balances())
    return held.counter


async def somebody_waits(dsn: str, most: int = 1) -> None:
    """For a lock: `most` of them."""
    while await fixtures.query(dsn, "SELECT count(*) FROM pg_locks WHERE NOT granted") < most:
        await asyncio.sleep(0.01)


async def available(dsn: str) -> list[int]:
    """In each shard that is in use."""
    conn = await asyncpg.connect(dsn)
    try:
        found = await conn.fetch("SELECT available FROM quota_counters WHERE shard < shards ORDER BY shard")
        return [row["available"] for row in found]
    finally:
        await conn.close()


async def test_a_limit_of_twenty_over_four_shards_grants_twenty(open_store: fixtures.OpenStore, database: str) -> None:
    stores = [await open_store(size=1, slot=slot) for slot in range(4)]
    await stores[0].apply(QUOTA, allocation(1000, eu=20), 10, NOON)
    await stores[0].spread(QUOTA, 4, NOON)
    assert [5, 5, 5, 5] == await available(database)
    asked = [put(stores[n % 4], reserve(1, name=reservation_name(n))) for n in range(80)]
    answers = Counts(type(answer) for answer in await asyncio.gather(*asked))
    assert {Granted: 20, Denied: 60} == answers
    assert Counter(slice=20, reserved=20) == await whole(stores[0])


async def test_each_process_works_on_a_row_of_its_own_with_one_statement(
    processes: Stores, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, store in enumerate(processes, 1):
        await put(store, reserve(number, name=reservation_name(number)))
    with statements(monkeypatch) as said:
        for number, store in enumerate(processes, 1):
            await put(store, Release(reservation_name(number)))
    assert 4 == len(said)
    assert [25, 25, 25, 25] == await available(database)


async def test_what_one_shard_has_not_the_others_give(processes: Stores) -> None:
    granted = await put(processes[3], reserve(97, name=ONE))
    assert isinstance(granted, Granted)
    refused = await put(processes[2], reserve(4, name=TWO))
    assert isinstance(refused, Denied)
    assert (3, 100, 3) == (refused.free, refused.holding.slice, refused.holding.counter.available)


async def test_a_hold_is_settled_by_whichever_process_is_asked(processes: Stores) -> None:
    await put(processes[0], reserve(20, name=ONE), reserve(20, name=TWO))
    assert isinstance(await put(processes[1], Commit(ONE, 15)), Settled)
    assert isinstance(await put(processes[2], Release(TWO)), Settled)
    assert Counter(slice=100, available=85, used=15) == await whole(processes[3])


async def test_more_used_than_reserved_is_charged_to_all_before_it_is_owed(processes: Stores, database: str) -> None:
    await put(processes[0], reserve(1, name=ONE), reserve(1, name=TWO))
    await put(processes[0], Commit(ONE, 90))
    assert Counter(slice=100, available=9, reserved=1, used=90) == await whole(processes[0])
    await put(processes[1], Commit(TWO, 20))
    owing = Counter(slice=100, used=110, overdraft_issued=10)
    assert owing == await whole(processes[1])
    assert 1 == len(await available(database)), "what is owed is owed in one place, where whoever admits sees it"
    assert isinstance(await put(processes[3], reserve(1, name=reservation_name(3))), Denied)


async def test_what_one_shard_would_owe_for_a_moment_is_not_owed(processes: Stores) -> None:
    """In one batch a shard overdraws and repays; all together had enough."""
    await put(processes[0], reserve(20, name=ONE), reserve(1, name=TWO))
    await put(processes[0], Commit(TWO, 15), Release(ONE))
    assert Counter(slice=100, available=85, used=15) == await whole(processes[0])


async def test_what_one_shard_would_let_in_beyond_its_slice_is_within_that_of_all(
    open_store: fixtures.OpenStore,
) -> None:
    here = await open_store(size=1, slot=0)
    soft = allocation(1000, policy=QuotaPolicy(enforcement=Enforcement.SOFT), eu=100)
    await here.apply(QUOTA, soft, 10, NOON)
    await here.spread(QUOTA, 4, NOON)
    await put(here, reserve(20, name=ONE))
    [granted, _] = await here.transact([reserve(20, name=TWO), Release(ONE)], NOON)
    assert isinstance(granted, Granted)
    assert (0, None) == (granted.reservation.over, granted.would_deny)


async def test_what_is_taken_back_may_have_been_used_in_any_shard(processes: Stores) -> None:
    for number, store in enumerate(processes):
        await put(store, reserve(10, name=reservation_name(number)), Commit(reservation_name(number)))
    answer = await put(processes[1], adjust(-35, request="x"))
    assert isinstance(answer, Adjusted)
    assert (5, 95) == (answer.adjustment.used, answer.adjustment.available)
    assert Counter(slice=100, available=95, used=5) == await whole(processes[0])


async def test_holds_in_any_shard_expire(processes: Stores) -> None:
    for number, store in enumerate(processes):
        await put(store, reserve(20, name=reservation_name(number), ttl=5))
    expired = await processes[0].expire(NOON + 6, 100)
    assert (4, {QUOTA: 80}) == (expired.holds, dict(expired.units))
    assert Counter(slice=100, available=100) == await whole(processes[0])


@pytest.mark.parametrize(("first", "second"), [(1, 4), (2, 4), (4, 1)])
async def test_holds_expire_in_a_counter_that_is_laid_out_anew_while_it_is_waited_for(
    processes: Stores, database: str, first: int, second: int
) -> None:
    """A statement that had to wait for a row still sees the others as they were when it began."""
    await processes[0].spread(QUOTA, shard_watch.ONE, NOON)
    await processes[0].spread(QUOTA, first, NOON)
    for number in range(8):
        await put(processes[number % 4], reserve(5, name=reservation_name(number), ttl=5))
    conn = await asyncpg.connect(database)
    try:
        async with conn.transaction():
            locked = await lock_counters(conn, [QUOTA], NOON)
            waiting = asyncio.create_task(processes[1].expire(NOON + 6, 100))
            await somebody_waits(database)
            await conn.execute(SLICES["open_shards"], *parts(QUOTA), second)
            laid = sharding.laid_out(locked.rows[QUOTA], locked.wholes[QUOTA], second)
            await writing.store(conn, Writes(), laid)
        assert 8 == (await waiting).holds
    finally:
        await conn.close()
    assert Counter(slice=100, available=100) == await whole(processes[0])


async def test_a_sweep_and_a_request_wait_in_no_circle_for_what_is_spread_meanwhile(
    open_store: fixtures.OpenStore, database: str
) -> None:
    """The sweep holds the one row of the first quota, and of the second; the request holds the first one's new row."""
    other = QuotaKey("acme", "vcpu", "zzz")
    here, there = [await open_store(size=4, slot=slot) for slot in range(2)]
    for key in (QUOTA, other):
        await here.apply(key, allocation(1000, eu=100), 10, NOON)
    both = [Charge(other, 1)]
    await put(here, reserve(1, name=ONE, also=both, ttl=5))
    first, second = await asyncpg.connect(database), await asyncpg.connect(database)
    try:
        held = second.transaction()
        await held.start()
        await lock_counters(second, [other], NOON)
        async with first.transaction():
            locked = await lock_counters(first, [QUOTA], NOON)
            sweeping = asyncio.create_task(here.expire(NOON + 6, 100))
            await somebody_waits(database)
            await first.execute(SLICES["open_shards"], *parts(QUOTA), 2)
            laid = sharding.laid_out(locked.rows[QUOTA], locked.wholes[QUOTA], 2)
            await writing.store(first, Writes(), laid)
        asking = asyncio.create_task(put(there, reserve(1, name=TWO, also=both)))
        await somebody_waits(database, 2)
        await held.rollback()
        assert 1 == (await sweeping).holds
        assert isinstance(await asking, Granted)
    finally:
        await first.close()
        await second.close()
    assert Counter(slice=100, available=99, reserved=1) == await whole(here)


async def test_a_smaller_slice_is_taken_from_all_shards(processes: Stores, database: str) -> None:
    await put(processes[0], reserve(20, name=ONE))
    changed = await processes[1].apply(QUOTA, allocation(1000, eu=10), 11, NOON)
    assert changed is not None
    assert (20, 11) == (changed.slice, changed.revision)
    grown = await processes[2].apply(QUOTA, allocation(1000, eu=61), 12, NOON)
    assert grown is not None
    assert 61 == grown.slice
    assert [11, 10, 10, 10] == await available(database)
    assert Counter(slice=61, available=41, reserved=20) == await whole(processes[0])
    assert 4 == await fixtures.query(database, "SELECT count(*) FROM quota_counters WHERE revision = 12")


async def test_a_period_ends_for_all_shards_together(open_store: fixtures.OpenStore) -> None:
    here, there = await open_store(size=1, slot=0), await open_store(size=1, slot=1)
    june, july = at(2026, 6, 30, 23, 59), at(2026, 7, 1, 0, 1)
    document = allocation(1000, kind=Kind.CONSUMABLE, eu=100)
    await here.apply(QUOTA, document, 10, june)
    await here.spread(QUOTA, 2, june)
    await put(here, reserve(30, name=ONE), Commit(ONE), now=june)
    await put(there, reserve(30, name=TWO), Commit(TWO), now=june)
    assert isinstance(await put(there, reserve(10, name=reservation_name(3)), now=july), Granted)
    assert isinstance(await put(here, reserve(80, name=reservation_name(4)), now=july), Granted)
    assert Counter(slice=100, available=10, reserved=90) == await whole(here)
    [ended, _] = await here.check_balances()
    assert Counter(slice=100, available=40, used=60) == ended.counter


async def test_a_counter_that_is_spread_while_it_is_waited_for_is_seen_whole(processes: Stores, database: str) -> None:
    """Whoever waits for the lock of the one row has not seen those that are made meanwhile."""
    await processes[0].spread(QUOTA, sharding_one := shard_watch.ONE, NOON)
    assert sharding_one == len(await available(database))
    conn = await asyncpg.connect(database)
    try:
        async with conn.transaction():
            locked = await lock_counters(conn, [QUOTA], NOON)
            waiting = asyncio.create_task(put(processes[1], adjust(5, request="x")))
            await somebody_waits(database)
            await conn.execute(SLICES["open_shards"], *parts(QUOTA), 4)
            laid = sharding.laid_out(locked.rows[QUOTA], locked.wholes[QUOTA], 4)
            await writing.store(conn, Writes(), laid)
        answer = await waiting
    finally:
        await conn.close()
    assert isinstance(answer, Adjusted)
    assert (5, 95) == (answer.adjustment.used, answer.adjustment.available)
    assert Counter(slice=100, available=95, used=5) == await whole(processes[0])


async def test_a_shard_that_was_closed_and_opened_again_is_not_taken_for_what_it_was(processes: Stores) -> None:
    await put(processes[3], reserve(5, name=ONE))  # remembered: 20 of 25 available
    await processes[0].spread(QUOTA, shard_watch.ONE, NOON)
    await put(processes[0], reserve(80, name=TWO))
    for _ in range(3):
        await processes[0].spread(QUOTA, 4, NOON)
        await processes[0].spread(QUOTA, shard_watch.ONE, NOON)
    for _ in range(2):  # as many writes to it as there were before
        await processes[0].spread(QUOTA, 4, NOON)
    assert isinstance(await put(processes[3], reserve(16, name=reservation_name(3))), Denied)
    assert 15 == (await whole(processes[0])).available


async def test_a_guarantee_gathers_the_counter(processes: Stores, database: str) -> None:
    policy = QuotaPolicy(guarantee=7)
    await processes[2].apply(QUOTA, allocation(1000, policy=policy, eu=100), 11, NOON)
    assert 1 == len(await available(database))
    assert await processes[2].spread(QUOTA, 4, NOON) is None


@pytest.mark.timeout(60)
async def test_one_request_at_two_servers_over_the_turn_of_the_week_is_held_once(
    open_store: fixtures.OpenStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each server's id falls into another week, where nothing is unique but within each."""
    sunday, monday = at(2026, 6, 14, 23, 59, 59), at(2026, 6, 15, 0, 0, 1)
    pool = await open_pool(database, password=None, size=1, deadlines=fixtures.PATIENT)
    await PostgresLedgerUpkeep(pool, fixtures.PATIENT).make_ahead(sunday, 2, 2)
    await pool.close()
    here, there = await open_store(size=1, slot=0), await open_store(size=1, slot=1)
    await here.apply(QUOTA, allocation(1000, eu=1000), 10, sunday)
    await here.spread(QUOTA, 2, sunday)
    for number in range(30):
        asked = [
            put(store, reserve(1, name=reservation_id("acme", now, number), request=f"r{number}"), now=now)
            for store, now in ((here, sunday), (there, monday))
        ]
        await asyncio.gather(*asked)
    assert 30 == (await whole(here)).reserved


async def test_whoever_is_overtaken_often_gets_a_shard_and_gives_it_back_in_calm(
    open_store: fixtures.OpenStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await open_store(size=1, slot=0), await open_store(size=1, slot=1)
    await here.apply(QUOTA, allocation(1000, eu=1000), 10, NOON)
    began = asyncio.get_running_loop().time()
    await there.rebalance_shards(NOON)
    for number in range(100):
        await put((here, there)[number % 2], reserve(1, name=reservation_name(number)))
    enough = 40 >= CROWDED_PER_S * (asyncio.get_running_loop().time() - began)
    assert enough, "a machine that is too slow for this test"
    assert [] == list((await here.rebalance_shards(NOON)).done), "the first slot has a row of its own by nature"
    [done] = (await there.rebalance_shards(NOON)).done
    assert (QUOTA, 1, 2) == (done.key, done.before, done.shards)
    assert [450, 450] == await available(database)
    await put(there, reserve(350, name=reservation_name(200)))
    evening = await there.rebalance_shards(NOON)
    [evened], [seen] = evening.done, evening.spread
    assert (1000, 550) == (seen.slice, seen.counter.available)
    assert (2, 2) == (evened.before, evened.shards)
    assert [275, 275] == await available(database)
    monkeypatch.setattr(shard_watch, "CALM_FOR_S", 0.0)
    await put(there, reserve(1, name=reservation_name(201)))
    [calm] = (await there.rebalance_shards(NOON)).done
    assert (2, 1) == (calm.before, calm.shards)
    assert Counter(slice=1000, available=549, reserved=451) == await whole(here)


async def test_one_process_alone_spreads_nothing(open_store: fixtures.OpenStore) -> None:
    alone = await open_store(size=1, slot=1)
    await alone.apply(QUOTA, allocation(1000, eu=1000), 10, NOON)
    for number in range(50):
        await put(alone, reserve(1, name=reservation_name(number)))
    assert [] == list((await alone.rebalance_shards(NOON)).done)


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE quota_counters SET shards = 2 WHERE shard = 3",
        "UPDATE quota_counters SET slice = slice + 1, overage = overage - 1 WHERE shard = 1",
        "UPDATE quota_counters SET available = 0, used = used + available + 1, overdraft_issued = 1 WHERE shard = 1",
        "UPDATE quota_counters SET guaranteed = 1 WHERE shard = 0",
        "UPDATE quota_counters SET shards = 17",
    ],
    ids=["units in no shard", "negative overage", "debt in a shard", "a guarantee in a shard", "too many"],
)
async def test_postgres_refuses_shards_that_are_none(processes: Stores, database: str, wrong: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await fixtures.query(database, wrong)
    assert Counter(slice=100, available=100) == await whole(processes[0])


@pytest.fixture
async def slots(database: str) -> AsyncIterator[list[LockedSlot]]:
    """Three processes' slots, each with a pool of its own."""
    pools = [await open_pool(database, password=None, size=2, deadlines=fixtures.PATIENT) for _ in range(3)]
    slots = [LockedSlot(pool, fixtures.PATIENT) for pool in pools]
    yield slots
    for slot, pool in zip(slots, pools, strict=True):
        await slot.leave()
        await pool.close()


async def test_every_process_has_a_slot_of_its_own(slots: list[LockedSlot], database: str) -> None:
    for slot in slots:
        await slot.keep()
    assert [0, 1, 2] == [slot.number for slot in slots]
    await fixtures.query(
        database, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1"
    )
    await slots[0].leave()
    async with asyncio.timeout(10):
        while slots[1].number != 0:
            try:
                await slots[1].keep()
            except StoreUnavailable:
                continue
            await asyncio.sleep(0.01)
    await slots[0].keep()
    assert [1, 0, 2] == [slot.number for slot in slots]
