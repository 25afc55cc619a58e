"""What a process remembers of a primary that is gone says nothing about the copy that took its place."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Distrust, Pool, open_pool
from regionquota.core.commands import Denied, Granted
from regionquota.embedded import EmbeddedPostgres, TcpProxy, copy_of, free_port, promote, scratch_directory


@dataclass
class Primary:
    server: EmbeddedPostgres
    standby: EmbeddedPostgres
    link: TcpProxy
    address: TcpProxy
    pools: list[Pool] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@{self.address.endpoint}/postgres"

    async def is_replaced(self) -> None:
        await self.server.kill()
        self.address.cut(reset=True)
        await promote(self.standby)
        self.address.target_port = self.standby.port
        self.address.heal()


@pytest.fixture
async def primary() -> AsyncIterator[Primary]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "primary")
        await server.start()
        await migrate(server.dsn)
        await fixtures.query(server.dsn, "INSERT INTO region_identity (region) VALUES ('eu')")
        link, address = TcpProxy("127.0.0.1", server.port), TcpProxy("127.0.0.1", server.port)
        await link.start()
        await address.start()
        standby = await copy_of(directory / "standby", link.listen_port, port=free_port())
        await standby.start()
        primary = Primary(server, standby, link, address)
        yield primary
        for pool in primary.pools:
            pool.terminate()
        await address.stop()
        await link.stop()
        await standby.kill()
        await server.kill()


async def process(primary: Primary) -> PostgresRegionStore:
    pool = await open_pool(
        primary.dsn, password=None, size=1, deadlines=fixtures.PATIENT, distrust=Distrust.EVERY_START
    )
    primary.pools.append(pool)
    return PostgresRegionStore(pool, "eu", fixtures.PATIENT)


async def take(store: PostgresRegionStore, number: int, amount: int) -> object:
    (outcome,) = await store.transact([reserve(amount, name=reservation_name(number), request=f"r{number}")], NOON)
    return outcome


async def replayed(primary: Primary) -> None:
    """Wait until the standby has everything."""
    newest = await fixtures.query(primary.server.dsn, "SELECT pg_current_wal_lsn()::text")
    caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{newest}'"
    while not await fixtures.query(primary.standby.dsn, caught_up):
        await asyncio.sleep(0.05)


async def test_a_row_of_the_same_version_is_another_row(primary: Primary) -> None:
    here, there = await process(primary), await process(primary)
    await here.trust((await here.incarnation()).name)
    await here.apply(QUOTA, allocation(1000, eu=100), 10, NOON)
    await take(here, 1, 10)
    await replayed(primary)
    primary.link.cut()
    await take(here, 2, 1)  # the last that it remembers of the primary: 11 are held
    await primary.is_replaced()
    await there.trust((await there.incarnation()).name)
    assert isinstance(await take(there, 3, 90), Granted)  # the same number of writes as the copy lacks; 100 are held
    assert isinstance(await take(here, 4, 5), Denied)
    held = await here.holding(QUOTA)
    assert held is not None
    assert (100, 0) == (held.counter.reserved, held.counter.available)
    assert [] == differences(await here.check_balances())
