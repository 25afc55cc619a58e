"""What a synchronous standby has not seen is not acknowledged, neither at once nor when it is asked for later."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, reservation_name, reserve

from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.embedded import EmbeddedPostgres, TcpProxy, copy_of, free_port, reach, scratch_directory
from regionquota.errors import StoreUnavailable
from regionquota.ports import RegionStore

SOON = replace(fixtures.PATIENT, statement=0.25)
HELD = reservation_name(1)
ASKED = reserve(1, name=HELD)


@pytest.fixture(scope="module")
async def primary() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "primary")
        await server.start()
        await migrate(server.dsn)
        link = TcpProxy("127.0.0.1", server.port)
        await link.start()
        standby = await copy_of(directory / "standby", link.listen_port, port=free_port())
        await standby.start()
        await reach(server, synchronous=True)
        async with fixtures.store_on(server.dsn) as store:
            await store.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
        link.cut()
        async with fixtures.store_on(server.dsn, deadlines=SOON) as store:
            with pytest.raises(StoreUnavailable):
                await store.transact([ASKED], NOON)
        yield server
        await link.stop()
        await standby.kill()
        await server.kill(hard=True)


@pytest.fixture
async def store(primary: EmbeddedPostgres) -> AsyncIterator[PostgresRegionStore]:
    """Of a process that has just begun: it remembers nothing."""
    async with fixtures.store_on(primary.dsn, deadlines=SOON) as one:
        yield one


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.transact([ASKED], NOON),
        lambda store: store.reservation(HELD),
        lambda store: store.reservation_of_request(QUOTA.tenant, ASKED.request_id),
    ],
    ids=["the same again", "by its id", "by its request"],
)
async def test_a_hold_that_the_standby_lacks_is_not_told_of(
    store: RegionStore, ask: Callable[[RegionStore], Awaitable[object]]
) -> None:
    with pytest.raises(StoreUnavailable):
        await ask(store)


async def test_that_there_is_no_such_hold_needs_no_standby(store: RegionStore) -> None:
    assert await store.reservation(reservation_name(2)) is None
