"""What every `RegionStore` promises of slices, and of the history of their changes."""

from collections.abc import Sequence

from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import (
    NOON,
    OTHER,
    QUOTA,
    adjust,
    allocation,
    at,
    differences,
    move,
    reservation_name,
    reserve,
)

from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.ports import BalanceCheck, RegionStore, SliceEntry

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store

ONE, TWO, THREE = (reservation_name(number) for number in (1, 2, 3))
MAY, JUNE = (epoch_of(Kind.CONSUMABLE, at(2026, month)) for month in (5, 6))
LATE_IN_MAY, IN_JUNE = at(2026, 5, 31, 23, 59, 30), at(2026, 6, 1, 0, 0, 10)


async def give(
    store: RegionStore, slice_: int, *, key: QuotaKey = QUOTA, revision: int = 10, now: float = NOON
) -> None:
    assert await store.apply(key, allocation(MAX_AMOUNT, eu=slice_), revision, now) is not None


async def give_month(store: RegionStore, slice_: int, *, revision: int = 10, now: float = LATE_IN_MAY) -> None:
    document = allocation(MAX_AMOUNT, kind=Kind.CONSUMABLE, eu=slice_)
    assert await store.apply(QUOTA, document, revision, now) is not None


async def counter(store: RegionStore, key: QuotaKey = QUOTA) -> Counter:
    held = await store.holding(key)
    assert held is not None
    return held.counter


async def exact(store: RegionStore) -> Sequence[BalanceCheck]:
    checks = await store.check_balances()
    assert [] == differences(checks)
    return checks


async def test_what_apply_returns_is_what_is_held_afterwards(store: RegionStore) -> None:
    held = await store.apply(QUOTA, allocation(1000, eu=300), 10, NOON)
    assert held is not None
    assert (300, 1000, 10) == (held.slice, held.limit, held.revision)
    assert held == await store.holding(QUOTA)


async def test_a_region_without_a_slice_holds_the_quota_at_zero(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(1000, us=300), 10, NOON)
    assert Counter() == await counter(store)
    assert [] == list(await store.slice_history(0, 10))


async def test_a_stalled_agent_cannot_raise_a_slice_again(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(1000, eu=300, moves=[move("eu", "us", 40)]), 11, NOON)
    assert await store.apply(QUOTA, allocation(1000, eu=300), 10, NOON) is None
    assert 260 == (await counter(store)).slice


async def test_hearing_of_the_same_allocation_again_changes_nothing(store: RegionStore) -> None:
    document = allocation(1000, eu=300)
    first = await store.apply(QUOTA, document, 10, NOON)
    assert first == await store.apply(QUOTA, document, 10, NOON + 5)
    assert 1 == len(await store.slice_history(0, 10))


async def test_a_new_limit_is_remembered_although_the_slice_stays(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(1000, eu=300), 10, NOON)
    held = await store.apply(QUOTA, allocation(2000, eu=300), 11, NOON)
    assert held == await store.holding(QUOTA)
    assert held is not None
    assert (2000, 11) == (held.limit, held.revision)
    assert 1 == len(await store.slice_history(0, 10))


async def test_every_change_of_a_slice_is_in_its_history(store: RegionStore) -> None:
    await store.apply(QUOTA, allocation(1000, eu=300), 10, NOON)
    await store.apply(QUOTA, allocation(1000, eu=300, moves=[move("eu", "us", 40, "m7")]), 11, NOON + 1)
    first, second = await store.slice_history(0, 10)
    assert SliceEntry(first.id, NOON, QUOTA, 10, 0, 300, []) == first
    assert SliceEntry(second.id, NOON + 1, QUOTA, 11, 300, 260, [{"id": "m7", "to": "us", "amount": 40}]) == second
    assert first.id < second.id


async def test_the_history_of_slices_can_be_read_in_pages(store: RegionStore) -> None:
    for revision in range(10, 15):
        await give(store, revision, revision=revision)
    page = await store.slice_history(0, 3)
    rest = await store.slice_history(page[-1].id, 3)
    assert [10, 11, 12] == [entry.after for entry in page]
    assert [13, 14] == [entry.after for entry in rest]


async def test_the_history_of_one_quota_is_its_own(store: RegionStore) -> None:
    await give(store, 5)
    await give(store, 6, key=OTHER)
    assert [OTHER] == [entry.key for entry in await store.slice_history(0, 10, OTHER)]


async def test_a_slice_that_shrinks_leaves_what_is_spent(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(70, name=ONE), adjust(20, request="x")], NOON)
    await give(store, 0, revision=11)
    assert Counter(slice=90, reserved=70, used=20) == await counter(store)
    await exact(store)


async def test_a_larger_slice_repays_debt_and_the_ledger_says_so(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([adjust(130, request="x")], NOON)
    await give(store, 150, revision=11)
    assert Counter(slice=150, available=20, used=130, overdraft_issued=30, overdraft_repaid=30) == await counter(store)
    await exact(store)
