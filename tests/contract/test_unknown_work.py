"""What every `RegionStore` says of started work whose outcome nobody knows."""

from collections.abc import Sequence

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, reservation_name, reserve

from regionquota.core.commands import Commit, Start
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Reservation
from regionquota.ports import Backlog, RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store

ELSEWHERE = QuotaKey("other", "vcpu")
ONE, TWO, THREE, FOUR = (reservation_name(number) for number in (1, 2, 3, 4))
LATER = NOON + 3600


async def work(store: RegionStore, name: str, ttl: int, key: QuotaKey = QUOTA) -> None:
    await store.apply(key, allocation(1000, eu=1000), 10, NOON)
    await store.transact([reserve(1, name=name, ttl=ttl, key=key)], NOON)
    await store.transact([Start(name, f"operation-{name}")], NOON)


@pytest.fixture
async def unknown(store: RegionStore) -> RegionStore:
    """THREE is longest overdue, ONE the least; FOUR is another tenant's and as late as TWO."""
    for name, ttl, key in ((ONE, 30, QUOTA), (TWO, 20, QUOTA), (THREE, 10, QUOTA), (FOUR, 20, ELSEWHERE)):
        await work(store, name, ttl, key)
    await store.expire(LATER, 100)
    return store


def names(found: Sequence[Reservation]) -> list[str]:
    return [held.id for held in found]


async def test_the_longest_overdue_comes_first(unknown: RegionStore) -> None:
    assert [THREE, TWO, FOUR, ONE] == names(await unknown.unknown(100))


async def test_no_more_are_listed_than_were_asked_for(unknown: RegionStore) -> None:
    assert [THREE, TWO] == names(await unknown.unknown(2))


async def test_a_list_goes_on_behind_the_last_of_the_one_before(unknown: RegionStore) -> None:
    _, last = await unknown.unknown(2)
    assert [FOUR, ONE] == names(await unknown.unknown(2, after=last))


async def test_a_list_can_be_of_one_tenant(unknown: RegionStore) -> None:
    assert [FOUR] == names(await unknown.unknown(100, tenant="other"))


async def test_a_list_goes_on_behind_what_was_settled_meanwhile(unknown: RegionStore) -> None:
    first, *_ = await unknown.unknown(1)
    await unknown.transact([Commit(first.id)], LATER)
    assert [TWO, FOUR, ONE] == names(await unknown.unknown(100, after=first))


async def test_the_backlog_says_how_many_and_since_when(unknown: RegionStore) -> None:
    assert Backlog(4, NOON + 10) == await unknown.unknown_backlog()


async def test_work_that_is_settled_is_no_backlog(store: RegionStore) -> None:
    await work(store, ONE, 10)
    await store.expire(LATER, 100)
    await store.transact([Commit(ONE)], LATER)
    assert Backlog(0, None) == await store.unknown_backlog()


async def test_work_whose_time_has_not_come_is_no_backlog(store: RegionStore) -> None:
    await work(store, ONE, 10)
    assert Backlog(0, None) == await store.unknown_backlog()
