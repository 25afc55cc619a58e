"""Who is suspended, with and without etcd."""

from collections.abc import Mapping

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.suspensions import MemorySuspensionStore
from regionquota.errors import EtcdUnavailable, StoreUnavailable
from regionquota.ports import Suspension
from regionquota.region.suspensions import Suspensions


class Etcd(MemoryCoordination):
    away = False

    async def suspensions(self) -> Mapping[str, Suspension]:
        if self.away:
            raise EtcdUnavailable("away")
        return await super().suspensions()


class Database(MemorySuspensionStore):
    away = False

    async def remember(self, suspensions: Mapping[str, Suspension]) -> None:
        if self.away:
            raise StoreUnavailable("away")
        await super().remember(suspensions)


@pytest.fixture
def etcd() -> Etcd:
    return Etcd(HandClock())


@pytest.fixture
def database() -> Database:
    return Database()


async def test_a_tenant_is_suspended_from_the_next_look_on(etcd: Etcd, database: Database) -> None:
    suspensions = Suspensions(etcd, database)
    await etcd.suspend("acme", 1.0, "unpaid")
    await suspensions.follow()
    assert ("unpaid", None) == (suspensions.why("acme"), suspensions.why("other"))


async def test_a_tenant_is_resumed_from_the_next_look_on(etcd: Etcd, database: Database) -> None:
    suspensions = Suspensions(etcd, database)
    await etcd.suspend("acme", 1.0, "unpaid")
    await suspensions.follow()
    await etcd.resume("acme")
    await suspensions.follow()
    assert suspensions.why("acme") is None
    assert {} == await database.recall()


async def test_a_suspension_holds_while_etcd_is_away(etcd: Etcd, database: Database) -> None:
    suspensions = Suspensions(etcd, database)
    await etcd.suspend("acme", 1.0, "unpaid")
    await suspensions.follow()
    etcd.away = True
    with pytest.raises(EtcdUnavailable):
        await suspensions.follow()
    assert "unpaid" == suspensions.why("acme")


async def test_a_suspension_outlives_a_restart_without_etcd(etcd: Etcd, database: Database) -> None:
    await etcd.suspend("acme", 1.0, "unpaid")
    await Suspensions(etcd, database).follow()
    etcd.away = True
    restarted = Suspensions(etcd, database)
    await restarted.recall()
    assert "unpaid" == restarted.why("acme")


async def test_a_suspension_holds_although_it_cannot_be_remembered(etcd: Etcd, database: Database) -> None:
    suspensions = Suspensions(etcd, database)
    await etcd.suspend("acme", 1.0, "unpaid")
    database.away = True
    with pytest.raises(StoreUnavailable):
        await suspensions.follow()
    assert "unpaid" == suspensions.why("acme")


async def test_what_a_slower_server_put_back_is_corrected_at_the_next_look(etcd: Etcd, database: Database) -> None:
    suspensions = Suspensions(etcd, database)
    await etcd.suspend("acme", 1.0, "unpaid")
    await suspensions.follow()
    await database.remember({})
    await suspensions.follow()
    assert ["acme"] == list(await database.recall())
