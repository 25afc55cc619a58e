"""What every `RegionStore` promises: the same lines against memory and against a real Postgres."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import (
    NOON,
    OTHER,
    QUOTA,
    adjust,
    allocation,
    at,
    differences,
    reservation_name,
    reserve,
)
from tests.core.scripts import Batch, Happening, Heard, scripts

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import (
    Adjusted,
    Commit,
    Denied,
    DenyReason,
    Expire,
    Extend,
    Forbidden,
    Granted,
    Invalid,
    NotFound,
    Release,
    RequestConflict,
    Settled,
    UnknownQuota,
)
from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reservation import State
from regionquota.ports import BalanceCheck, RegionStore

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


async def test_a_region_that_was_told_nothing_holds_nothing(store: RegionStore) -> None:
    assert await store.holding(QUOTA) is None
    assert [] == list(await store.holdings())
    assert [] == list(await store.check_balances())
    assert [] == list(await store.slice_history(0, 10))


async def test_holdings_come_in_the_order_of_their_keys(store: RegionStore) -> None:
    keys = [QuotaKey("b", "x"), QuotaKey("a", "x"), QuotaKey("Z", "x"), QuotaKey("a", "B"), QuotaKey("é", "x", "eu")]
    for key in keys:
        await give(store, 1, key=key)
    assert sorted(keys) == [held.key for held in await store.holdings()]


@pytest.mark.parametrize("most", [1, 2, 4, 5, 6])
async def test_holdings_come_in_pages(store: RegionStore, most: int) -> None:
    keys = [QuotaKey("b", "x"), QuotaKey("a", "x"), QuotaKey("Z", "x"), QuotaKey("a", "B"), QuotaKey("é", "x", "eu")]
    for key in keys:
        await give(store, 1, key=key)
    found, after = list[QuotaKey](), None
    while page := await store.holdings_after(after, most):
        assert len(page) <= most
        found += [held.key for held in page]
        after = found[-1]
    assert sorted(keys) == found


async def test_holdings_of_one_tenant_are_its_own(store: RegionStore) -> None:
    for tenant in ("acme", "acme2", "Acme"):
        await give(store, 1, key=QuotaKey(tenant, "vcpu"))
    assert ["acme"] == [held.key.tenant for held in await store.holdings("acme")]


async def test_an_empty_batch_has_no_outcomes(store: RegionStore) -> None:
    assert [] == list(await store.transact([], NOON))


async def test_a_granted_hold_can_be_looked_up_by_id_and_by_request(store: RegionStore) -> None:
    await give(store, 100)
    (granted,) = await store.transact([reserve(30, name=ONE, request="x")], NOON + 0.25)
    assert isinstance(granted, Granted)
    assert granted.reservation == await store.reservation(ONE)
    assert granted.reservation == await store.reservation_of_request("acme", "x")
    assert (NOON + 0.25, NOON + 60.25) == (granted.reservation.created_at, granted.reservation.expires_at)
    assert granted.holding == await store.holding(QUOTA)


async def test_a_hold_is_its_tenants_own(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE, request="x")], NOON)
    assert await store.reservation_of_request("other", "x") is None


async def test_what_never_was_is_not_there(store: RegionStore) -> None:
    assert await store.reservation(ONE) is None
    assert await store.reservation_of_request("acme", "x") is None


async def test_two_tenants_may_use_the_same_request_id(store: RegionStore) -> None:
    theirs = QuotaKey("other", "vcpu")
    await give(store, 100)
    await give(store, 100, key=theirs)
    outcomes = await store.transact(
        [reserve(30, name=ONE, request="x"), reserve(40, name=TWO, request="x", key=theirs)], NOON
    )
    assert [Granted, Granted] == [type(one) for one in outcomes]


async def test_a_denied_reserve_leaves_no_hold(store: RegionStore) -> None:
    await give(store, 100)
    before = await store.holding(QUOTA)
    assert before is not None
    (denied,) = await store.transact([reserve(101, name=ONE, request="x")], NOON)
    assert Denied(DenyReason.OVER_LIMIT, 101, before, room=100) == denied
    assert before == await store.holding(QUOTA)
    assert await store.reservation_of_request("acme", "x") is None


async def test_a_quota_that_was_never_used_here_is_unknown(store: RegionStore) -> None:
    await give(store, 100)
    outcomes = await store.transact(
        [reserve(1, name=ONE, key=OTHER), adjust(1, request="x", key=OTHER), reserve(1, name=TWO)], NOON
    )
    assert [UnknownQuota(OTHER), UnknownQuota(OTHER)] == list(outcomes[:2])
    assert isinstance(outcomes[2], Granted)


async def test_a_repeated_reserve_is_answered_with_the_first_hold(store: RegionStore) -> None:
    await give(store, 100)
    (first,) = await store.transact([reserve(30, name=ONE, request="x")], NOON)
    (again,) = await store.transact([reserve(30, name=TWO, request="x")], NOON + 5)
    assert isinstance(first, Granted)
    assert Granted(first.reservation, first.holding, replayed=True) == again
    assert 30 == (await counter(store)).reserved


async def test_a_repeated_reserve_is_answered_with_the_first_hold_although_nothing_is_left(store: RegionStore) -> None:
    await give(store, 30)
    (first,) = await store.transact([reserve(30, name=ONE, request="x")], NOON)
    (again,) = await store.transact([reserve(30, name=TWO, request="x")], NOON + 5)
    assert isinstance(first, Granted)
    assert Granted(first.reservation, first.holding, replayed=True) == again


async def test_a_request_id_with_other_content_is_a_conflict_although_it_does_not_fit(store: RegionStore) -> None:
    await give(store, 30)
    await store.transact([reserve(30, name=ONE, request="x")], NOON)
    assert [RequestConflict("x")] == list(await store.transact([reserve(31, name=TWO, request="x")], NOON))


async def test_a_request_id_with_other_content_is_a_conflict(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE, request="x")], NOON)
    assert [RequestConflict("x")] == list(await store.transact([reserve(31, name=TWO, request="x")], NOON))


async def test_a_request_id_used_on_another_quota_is_a_conflict(store: RegionStore) -> None:
    await give(store, 100)
    await give(store, 100, key=OTHER)
    await store.transact([reserve(30, name=ONE, request="x")], NOON)
    assert [RequestConflict("x")] == list(await store.transact([reserve(30, name=TWO, request="x", key=OTHER)], NOON))
    assert 0 == (await counter(store, OTHER)).reserved


async def test_a_request_id_used_on_another_quota_does_not_disturb_its_neighbours(store: RegionStore) -> None:
    await give(store, 100)
    await give(store, 100, key=OTHER)
    await store.transact([reserve(30, name=ONE, request="x")], NOON)
    outcomes = await store.transact(
        [reserve(1, name=TWO, request="x", key=OTHER), reserve(2, name=THREE, key=OTHER)], NOON
    )
    assert [RequestConflict, Granted] == [type(one) for one in outcomes]
    await exact(store)


async def test_outcomes_come_in_the_order_of_the_commands(store: RegionStore) -> None:
    await give(store, 100)
    outcomes = await store.transact(
        [
            reserve(60, name=ONE),
            reserve(60, name=TWO),
            Commit(ONE, 50),
            Commit(THREE),
            Release(ONE),
            adjust(-10, request="x"),
            adjust(-50, request="y"),
        ],
        NOON,
    )
    assert [Granted, Denied, Settled, NotFound, Forbidden, Adjusted, Invalid] == [type(one) for one in outcomes]
    assert Counter(slice=100, available=60, used=40) == await counter(store)
    await exact(store)


async def test_a_commit_is_remembered(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE)], NOON)
    (done,) = await store.transact([Commit(ONE, 20)], NOON + 5)
    assert isinstance(done, Settled)
    assert done.reservation == await store.reservation(ONE)
    assert (State.COMMITTED, 20, NOON + 5) == (
        done.reservation.state,
        done.reservation.actual,
        done.reservation.settled_at,
    )
    assert [Settled(done.reservation, replayed=True)] == list(await store.transact([Commit(ONE, 20)], NOON + 9))


async def test_a_release_is_remembered(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE)], NOON)
    (done,) = await store.transact([Release(ONE)], NOON + 5)
    assert isinstance(done, Settled)
    assert done.reservation == await store.reservation(ONE)
    assert [Settled(done.reservation, replayed=True)] == list(await store.transact([Release(ONE)], NOON + 9))
    assert Counter(slice=100, available=100) == await counter(store)


async def test_an_extension_is_remembered(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE)], NOON)
    await store.transact([Extend(ONE, 300)], NOON + 5)
    held = await store.reservation(ONE)
    assert held is not None
    assert NOON + 305 == held.expires_at
    assert await store.overdue(NOON + 60) is None


async def test_an_adjustment_is_remembered(store: RegionStore) -> None:
    await give(store, 100)
    (first,) = await store.transact([adjust(30, request="x", reason="recount")], NOON)
    await store.transact([adjust(5, request="y")], NOON)
    (again,) = await store.transact([adjust(30, request="x", reason="recount")], NOON + 9)
    assert isinstance(first, Adjusted)
    assert ("recount", 30, 70, NOON) == (
        first.adjustment.reason,
        first.adjustment.used,
        first.adjustment.available,
        first.adjustment.at,
    )
    assert Adjusted(first.adjustment, replayed=True) == again
    assert 35 == (await counter(store)).used


async def test_a_hold_is_overdue_from_the_second_its_time_ran_out(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE, ttl=60)], NOON)
    assert await store.overdue(NOON + 59.999) is None
    assert NOON + 60 == await store.overdue(NOON + 60)


async def test_what_has_ended_is_not_overdue(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(1, name=name, ttl=10) for name in (ONE, TWO, THREE)], NOON)
    await store.transact([Commit(ONE), Release(TWO), Expire(THREE)], NOON + 10)
    assert await store.overdue(NOON + 100) is None


async def test_a_late_commit_is_recorded_in_full(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(30, name=ONE, ttl=10)], NOON)
    await store.transact([Expire(ONE), reserve(90, name=TWO)], NOON + 10)
    await store.transact([Commit(ONE)], NOON + 20)
    assert Counter(slice=100, reserved=90, used=30, overdraft_issued=20) == await counter(store)
    await exact(store)


async def test_a_hold_that_outlives_its_month_is_charged_to_it(store: RegionStore) -> None:
    await give_month(store, 100)
    await store.transact([reserve(30, name=ONE, ttl=600)], LATE_IN_MAY)
    await store.transact([reserve(80, name=TWO)], IN_JUNE)
    await store.transact([Commit(ONE, 25)], IN_JUNE)
    may, june = await exact(store)
    assert (MAY, Counter(slice=100, available=75, used=25)) == (may.epoch, may.counter)
    assert (JUNE, Counter(slice=100, available=20, reserved=80)) == (june.epoch, june.counter)


async def test_an_allocation_heard_of_in_the_new_month_closes_the_old_one(store: RegionStore) -> None:
    await give_month(store, 100)
    await store.transact([adjust(130, request="x")], LATE_IN_MAY)
    await give_month(store, 150, revision=11, now=IN_JUNE)
    may, june = await exact(store)
    assert Counter(slice=100, used=100, overdraft_issued=30, overdraft_repaid=30) == may.counter
    assert Counter(slice=150, available=120, used=30) == june.counter


async def test_a_clock_that_goes_back_does_not_open_the_old_month_again(store: RegionStore) -> None:
    await give_month(store, 100)
    await store.transact([reserve(1, name=ONE)], IN_JUNE)
    (granted,) = await store.transact([reserve(1, name=TWO)], LATE_IN_MAY)
    assert isinstance(granted, Granted)
    assert JUNE == granted.reservation.epoch


async def test_the_largest_numbers_are_kept_to_the_last_unit(store: RegionStore) -> None:
    await give(store, MAX_AMOUNT)
    await store.transact([reserve(MAX_AMOUNT, name=ONE)], NOON)
    await store.transact([Commit(ONE, MAX_AMOUNT)], NOON)
    assert Counter(slice=MAX_AMOUNT, used=MAX_AMOUNT) == await counter(store)
    await exact(store)


async def test_a_sum_that_passes_the_largest_number_is_refused_and_its_neighbours_are_served(
    store: RegionStore,
) -> None:
    await give(store, 100)
    outcomes = await store.transact(
        [reserve(30, name=ONE), adjust(MAX_AMOUNT, request="x"), Commit(ONE, MAX_AMOUNT)], NOON
    )
    assert [Granted, Invalid, Settled] == [type(one) for one in outcomes]
    await exact(store)


async def test_the_ledgers_of_a_whole_life_replay_to_the_balances(store: RegionStore) -> None:
    await give(store, 100)
    await store.transact([reserve(50, name=ONE), reserve(50, name=TWO), adjust(7, request="x")], NOON)
    await store.transact([Commit(ONE, 80), Release(TWO), adjust(-60, request="y")], NOON)
    await give(store, 40, revision=11)
    await store.transact([reserve(5, name=THREE, ttl=1)], NOON)
    (check,) = await exact(store)
    assert QUOTA == check.key
    assert {"slice", "reserved", "used", "overdraft_issued", "overdraft_repaid", "guaranteed"} == set(check.replayed)
    assert (40, 27, 5) == (check.counter.slice, check.counter.used, check.counter.reserved)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(script=scripts())
async def test_memory_and_postgres_do_the_same(database: str, script: list[Happening]) -> None:
    await fixtures.empty(database)
    memory = MemoryRegionStore("eu")
    async with fixtures.store_on(database, size=1) as postgres:
        for happening in script:
            match happening:
                case Batch(commands, now):
                    assert await memory.transact(commands, now) == list(await postgres.transact(commands, now))
                case Heard(key, document, revision, now):
                    assert await memory.apply(key, document, revision, now) == await postgres.apply(
                        key, document, revision, now
                    )
        assert list(await memory.check_balances()) == list(await postgres.check_balances())
        assert list(await memory.holdings()) == list(await postgres.holdings())
        assert [entry.after for entry in await memory.slice_history(0, 10**6)] == [
            entry.after for entry in await postgres.slice_history(0, 10**6)
        ]
        assert await memory.expire(now, 100) == await postgres.expire(now, 100)
        assert list(await memory.check_balances()) == list(await postgres.check_balances())
