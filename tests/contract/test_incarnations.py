"""A server that may have lost commits: nothing is admitted until its slices were compared with etcd."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, reservation_name, reserve

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Distrust, open_pool
from regionquota.core.commands import Adjusted, Commit, Granted, Release, Settled
from regionquota.core.counter import Counter
from regionquota.embedded import EmbeddedPostgres, scratch_directory
from regionquota.errors import NotTrusted, StoreUnavailable
from regionquota.ports import RegionStore

ONE, TWO, THREE = (reservation_name(number) for number in (1, 2, 3))


@dataclass
class Region:
    store: RegionStore
    restart: Callable[[], Awaitable[None]]


@pytest.fixture
async def mortal() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        await migrate(server.dsn)
        await fixtures.query(server.dsn, "INSERT INTO region_identity (region) VALUES ('eu')")
        yield server
        await server.kill()


async def on_postgres(server: EmbeddedPostgres, distrust: Distrust = Distrust.EVERY_START) -> PostgresRegionStore:
    pool = await open_pool(server.dsn, password=None, size=2, deadlines=fixtures.PATIENT, distrust=distrust)
    return PostgresRegionStore(pool, "eu", fixtures.PATIENT)


async def begun(store: RegionStore, restart: Callable[[], Awaitable[None]]) -> Region:
    """Of a slice of 100, 10 are held as ONE; its server is trusted."""
    await store.trust((await store.incarnation()).name)
    await store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await store.transact([reserve(10, name=ONE)], NOON)
    return Region(store, restart)


@pytest.fixture
async def memory_region() -> Region:
    store = MemoryRegionStore("eu")

    async def restart() -> None:
        store.life += 1

    return await begun(store, restart)


@pytest.fixture
async def postgres_region(mortal: EmbeddedPostgres) -> Region:
    async def restart() -> None:
        await mortal.stop()
        await mortal.start()

    return await begun(await on_postgres(mortal), restart)


@pytest.fixture(params=["memory", "postgres"])
def region(request: pytest.FixtureRequest) -> Region:
    chosen: Region = request.getfixturevalue(f"{request.param}_region")
    return chosen


async def exact(store: RegionStore) -> Counter:
    assert [] == differences(await store.check_balances())
    held = await store.holding(QUOTA)
    assert held is not None
    return held.counter


async def test_nothing_is_admitted_in_a_server_that_was_not_compared(region: Region) -> None:
    before = await region.store.incarnation()
    await region.restart()
    after = await region.store.incarnation()
    assert (True, False) == (before.is_trusted, after.is_trusted)
    assert before.name != after.name
    for batch in ([reserve(1, name=TWO)], [Release(ONE), reserve(1, name=TWO)]):
        with pytest.raises(NotTrusted):
            await region.store.transact(batch, NOON)
    assert Counter(slice=100, available=90, reserved=10) == await exact(region.store)


async def test_what_is_held_is_settled_and_usage_corrected_meanwhile(region: Region) -> None:
    await region.restart()
    settled, corrected = await region.store.transact([Commit(ONE), adjust(5, request="x")], NOON)
    assert (Settled, Adjusted) == (type(settled), type(corrected))
    assert Counter(slice=100, available=85, used=15) == await exact(region.store)


async def test_once_it_is_trusted_everything_goes_on(region: Region) -> None:
    await region.restart()
    name = (await region.store.incarnation()).name
    assert await region.store.trust(name)
    assert (await region.store.incarnation()).is_trusted
    assert isinstance((await region.store.transact([reserve(1, name=TWO)], NOON))[0], Granted)


async def test_only_the_server_that_is_there_can_be_trusted(region: Region) -> None:
    await region.restart()
    name = (await region.store.incarnation()).name
    await region.restart()
    assert not await region.store.trust(name)
    with pytest.raises(StoreUnavailable):
        await region.store.apply(QUOTA, allocation(1000, eu=50), 11, NOON, within=name)
    with pytest.raises(NotTrusted):
        await region.store.transact([reserve(1, name=TWO)], NOON)
    assert 100 == (await exact(region.store)).slice


async def test_what_it_does_not_own_is_taken_away_even_if_it_is_in_use_and_owed(region: Region) -> None:
    await region.store.transact([reserve(30, name=TWO), Commit(TWO)], NOON)
    await region.restart()
    name = (await region.store.incarnation()).name
    held = await region.store.apply(QUOTA, allocation(1000, eu=25), 11, NOON, within=name)
    assert held is not None
    assert 25 == held.slice
    assert Counter(slice=25, reserved=10, used=30, overdraft_issued=15) == await exact(region.store)
    await region.store.transact([Release(ONE), adjust(-10, request="x")], NOON)
    settled = Counter(slice=25, available=5, used=20, overdraft_issued=15, overdraft_repaid=15)
    assert settled == await exact(region.store)


async def test_a_plain_restart_may_be_trusted_unseen(mortal: EmbeddedPostgres) -> None:
    store = await on_postgres(mortal, Distrust.NEW_TIMELINES)
    await store.trust((await store.incarnation()).name)
    await store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await mortal.stop()
    await mortal.start()
    assert isinstance((await store.transact([reserve(1, name=ONE)], NOON))[0], Granted)


async def test_a_server_in_recovery_has_no_slices_to_spend(mortal: EmbeddedPostgres) -> None:
    await mortal.stop()
    (mortal.data_dir / "standby.signal").touch()
    await mortal.start()
    with pytest.raises(StoreUnavailable, match="primary"):
        await on_postgres(mortal)
