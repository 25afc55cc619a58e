"""What a region's database remembers of etcd's history, and what it refuses because of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.bound import bound_store
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.postgres.standing import PostgresStandingStore
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, Distrust, open_pool
from regionquota.core.allocation import Allocation
from regionquota.core.commands import Adjust
from regionquota.core.history import Bond, Seen, Sight, Standing
from regionquota.core.slice import Holding
from regionquota.errors import NotTrusted, StoreUnavailable, WentBackwards
from regionquota.history_ports import StandingStore
from regionquota.ports import RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database

ONE = reservation_name(1)
FIRST, AGAIN, NEXT = Standing("first"), Standing("first", 1), Standing("next")


@dataclass
class Region:
    """`process` is the store as a process with that bond has it."""

    standings: StandingStore
    store: RegionStore
    process: Callable[[Bond], RegionStore]

    def bound(self, bond: Bond) -> Callable[[Allocation, int], Awaitable[Holding | None]]:
        """Applies allocations as a process with that bond does."""
        return lambda document, revision: self.process(bond).apply(QUOTA, document, revision, NOON)


@pytest.fixture
def memory_region() -> Region:
    store = MemoryRegionStore("eu")
    return Region(store, store, lambda bond: bound_store(store, bond))


@pytest.fixture
async def postgres_region(database: str) -> AsyncIterator[Region]:
    await fixtures.query(database, "INSERT INTO region_identity (region) VALUES ('eu') ON CONFLICT DO NOTHING")
    pool = await open_pool(database, password=None, size=4, deadlines=fixtures.PATIENT, distrust=Distrust.EVERY_START)
    store = PostgresRegionStore(pool, "eu", fixtures.PATIENT)
    await store.trust((await store.incarnation()).name)
    yield Region(
        PostgresStandingStore(pool, fixtures.PATIENT),
        store,
        lambda bond: PostgresRegionStore(pool, "eu", fixtures.PATIENT, bond=bond),
    )
    pool.terminate()


@pytest.fixture(params=["memory", "postgres"])
def region(request: pytest.FixtureRequest) -> Region:
    chosen: Region = request.getfixturevalue(f"{request.param}_region")
    return chosen


async def test_nothing_was_met_at_first(region: Region) -> None:
    assert (None, Sight()) == await region.standings.recall()


async def test_what_was_adopted_is_recalled(region: Region) -> None:
    assert await region.standings.adopt(None, FIRST)
    assert (FIRST, Sight()) == await region.standings.recall()
    assert await region.standings.standing() == FIRST


async def test_only_from_where_it_stands(region: Region) -> None:
    assert await region.standings.adopt(None, FIRST)
    assert not await region.standings.adopt(None, NEXT)
    assert not await region.standings.adopt(Standing("first", 1), NEXT)
    assert FIRST == (await region.standings.recall())[0]


async def test_nothing_is_applied_by_a_process_that_has_not_met_etcd(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    with pytest.raises(StoreUnavailable):
        await region.bound(Bond())(allocation(100, eu=50), 10)


async def test_what_was_read_in_a_former_history_changes_nothing(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    before = region.bound(Bond(FIRST))
    await before(allocation(100, eu=50), 10)
    await region.standings.adopt(FIRST, NEXT)
    with pytest.raises(StoreUnavailable):
        await before(allocation(100, eu=80), 20)
    held = await region.store.holding(QUOTA)
    assert held is not None
    assert 50 == held.slice


async def test_what_was_read_before_an_eviction_changes_nothing(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    before = region.bound(Bond(FIRST))
    await region.standings.adopt(FIRST, Standing("first", 1))
    with pytest.raises(StoreUnavailable):
        await before(allocation(100, eu=80), 20)
    assert await region.store.holding(QUOTA) is None


async def test_revisions_of_a_new_history_are_newer_than_those_of_the_former(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 1000)
    await region.standings.adopt(FIRST, NEXT)
    held = await region.bound(Bond(NEXT))(allocation(100, eu=60), 7)
    assert held is not None
    assert (60, 7) == (held.slice, held.revision)


async def test_the_last_revision_of_the_former_history_can_still_be_told(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 1000)
    await region.standings.adopt(FIRST, NEXT)
    await region.standings.adopt(NEXT, Standing("third"))
    held = await region.store.holding(QUOTA)
    assert held is not None
    assert -1000 == held.revision


async def test_after_an_eviction_nothing_is_admitted_until_it_was_compared(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 10)
    await region.standings.adopt(FIRST, Standing("first", 1))
    if isinstance(region.store, PostgresRegionStore):
        await region.store._pool.expire_connections()
    assert not (await region.store.incarnation()).is_trusted
    with pytest.raises(NotTrusted):
        await region.store.transact([reserve(1, name=ONE)], NOON)


async def distrust(region: Region) -> str:
    """The incarnation that is to be compared with etcd, after another eviction."""
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 10)
    await region.standings.adopt(FIRST, AGAIN)
    if isinstance(region.store, PostgresRegionStore):
        await region.store._pool.expire_connections()
    return (await region.store.incarnation()).name


async def test_what_was_compared_before_an_eviction_is_not_trusted(region: Region) -> None:
    name = await distrust(region)
    assert not await region.process(Bond(FIRST)).trust(name)
    assert not (await region.store.incarnation()).is_trusted
    assert await region.process(Bond(AGAIN)).trust(name)
    assert (await region.store.incarnation()).is_trusted


async def test_an_evicted_region_holds_nothing_whatever_it_hears(region: Region) -> None:
    name = await distrust(region)
    await region.store.transact([Adjust(QUOTA, 3, "a", b"a", "because")], NOON)
    evicted = region.process(Bond(AGAIN, is_evicted=True))
    held = await evicted.apply(QUOTA, allocation(100, eu=50), 11, NOON, within=name)
    assert held is not None
    assert (0, 3) == (held.slice, held.counter.debt)
    await evicted.trust(name)
    held = await evicted.apply(QUOTA, allocation(100, eu=60), 12, NOON)
    assert held is not None
    assert 0 == held.slice
    readmitted = await region.process(Bond(AGAIN)).apply(QUOTA, allocation(100, eu=60), 12, NOON)
    assert readmitted is not None
    assert (60, 0) == (readmitted.slice, readmitted.counter.debt)


async def test_a_new_history_alone_stops_no_admission(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 10)
    await region.standings.adopt(FIRST, NEXT)
    assert 1 == len(await region.store.transact([reserve(1, name=ONE)], NOON))


async def test_a_database_that_is_new_says_so(region: Region) -> None:
    await region.standings.adopt(None, Standing("first", 3))
    assert Standing("first", 3, evictions_before=3) == (await region.standings.recall())[0]


async def test_a_database_of_before_there_were_histories_is_not_new(region: Region) -> None:
    await region.store.apply(QUOTA, allocation(100, eu=50), 10, NOON)
    await region.standings.adopt(None, Standing("first", 3))
    assert Standing("first", 3) == (await region.standings.recall())[0]


async def test_the_highest_revision_seen_is_remembered(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.standings.remember("first", Sight(2**64 - 1, 30))
    await region.standings.remember("first", Sight(2**64 - 1, 20))
    assert Sight(2**64 - 1, 30) == (await region.standings.recall())[1]


async def test_a_revision_that_was_applied_was_seen(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 40)
    assert Sight(None, 40) == (await region.standings.recall())[1]


async def test_what_was_seen_of_a_former_history_is_forgotten(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    await region.bound(Bond(FIRST))(allocation(100, eu=50), 40)
    await region.standings.remember("first", Sight(5, 30))
    await region.standings.adopt(FIRST, NEXT)
    await region.standings.remember("first", Sight(5, 50))
    assert (NEXT, Sight()) == await region.standings.recall()


async def test_a_document_that_owns_less_than_is_held_shows_that_etcd_went_backwards(region: Region) -> None:
    await region.standings.adopt(None, FIRST)
    bond = Bond(FIRST, Seen())
    await region.bound(bond)(allocation(100, eu=50), 10)
    with pytest.raises(WentBackwards, match="eu holds 50 of acme/vcpu"):
        await region.bound(bond)(allocation(100, eu=40), 11)
    assert bond.seen.broken is not None
    held = await region.store.holding(QUOTA)
    assert held is not None
    assert (50, 10) == (held.slice, held.revision)


async def test_an_adoption_takes_as_long_as_it_has_to(database: str) -> None:
    """Longer than a statement of the service may: every counter is written, and callers are waited for."""
    await fixtures.query(database, "INSERT INTO region_identity (region) VALUES ('eu') ON CONFLICT DO NOTHING")
    hasty = Deadlines(statement=0.1, lock=0.05)
    pool = await open_pool(database, password=None, size=2, deadlines=hasty)
    async with pool.acquire() as other, other.transaction():
        await other.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await other.fetch("SELECT FROM region_identity FOR SHARE")
        adopting = asyncio.create_task(PostgresStandingStore(pool, hasty).adopt(None, FIRST))
        await asyncio.sleep(0.5)
        assert not adopting.done()
    assert await adopting
    pool.terminate()


async def test_a_counter_that_several_servers_write_to_is_taken_away_whole(region: Region) -> None:
    name = await distrust(region)
    if isinstance(region.store, PostgresRegionStore):
        assert await region.store.spread(QUOTA, 3, NOON) is not None
    await region.store.transact([Adjust(QUOTA, 30, "a", b"a", "because")], NOON)
    evicted = region.process(Bond(AGAIN, is_evicted=True))
    held = await evicted.apply(QUOTA, allocation(100, eu=50), 11, NOON, within=name)
    assert held is not None
    assert (0, 30) == (held.slice, held.counter.debt)
    assert [] == differences(await region.store.check_balances())
