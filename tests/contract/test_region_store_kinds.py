"""What of policies, kinds, lines and metered usage crosses the store: the same lines against memory and Postgres."""

import asyncio
from collections.abc import Sequence

import pytest
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
    unlimited,
)

from regionquota.core.commands import (
    Adjusted,
    Charge,
    Commit,
    Denied,
    DenyReason,
    Forbidden,
    Granted,
    Meter,
    Metered,
    Outcome,
    Pledge,
    Release,
    Settled,
    Start,
)
from regionquota.core.counter import Counter
from regionquota.core.periods import Calendar, Period
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, QuotaPolicy, Refill
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reservation import Line, State
from regionquota.core.slice import MICROSECONDS, Holding
from regionquota.ports import Expired, RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store

ONE, TWO, THREE, FOUR = (reservation_name(number) for number in (1, 2, 3, 4))
PROJECT, SIBLING = (QuotaKey("acme", "vcpu", scope) for scope in ("project:x", "project:y"))

EVERYTHING = QuotaPolicy(
    calendar=Calendar(Period.DAY, "Europe/Berlin"),
    enforcement=Enforcement.SOFT,
    enforced_percent=30,
    admission_open=False,
    max_single=MAX_AMOUNT,
    min_ttl_s=2,
    max_ttl_s=3600,
    max_overdraft=7,
    parent='a "team"/ü\\',
    guarantee=MAX_AMOUNT,
    generation=12,
    normal_fill_percent=70,
    low_fill_percent=0,
)


async def give(
    store: RegionStore,
    slice_: int = 100,
    key: QuotaKey = QUOTA,
    *,
    revision: int = 10,
    kind: Kind = Kind.ALLOCATED,
    policy: QuotaPolicy = DEFAULT_POLICY,
    limit: int = MAX_AMOUNT,
    now: float = NOON,
) -> Holding:
    held = await store.apply(key, allocation(limit, kind=kind, policy=policy, eu=slice_), revision, now)
    assert held is not None
    return held


async def family(store: RegionStore, guarantee: int = 40) -> None:
    await give(store)
    await give(store, 100, PROJECT, policy=QuotaPolicy(guarantee=guarantee), limit=100)
    await give(store, 100, SIBLING, limit=100)
    await store.transact([Pledge(PROJECT, QUOTA)], NOON)


async def held(store: RegionStore, key: QuotaKey = QUOTA) -> Holding:
    found = await store.holding(key)
    assert found is not None
    return found


async def state(store: RegionStore, name: str) -> State:
    found = await store.reservation(name)
    assert found is not None
    return found.state


async def one(store: RegionStore, *batch: object, now: float = NOON) -> Outcome:
    return list(await store.transact(batch, now))[-1]  # type: ignore[arg-type]


async def exact(store: RegionStore) -> None:
    assert [] == differences(await store.check_balances())


def also_global(amount: int) -> Sequence[Charge]:
    return [Charge(QUOTA, amount, (0,))]


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, EVERYTHING], ids=["nothing", "everything"])
async def test_a_policy_is_read_as_it_was_heard(store: RegionStore, policy: QuotaPolicy) -> None:
    heard = await give(store, kind=Kind.CONSUMABLE, policy=policy)
    assert policy == heard.policy == (await held(store)).policy


async def test_a_policy_that_was_taken_back_is_gone(store: RegionStore) -> None:
    await give(store, kind=Kind.CONSUMABLE, policy=EVERYTHING)
    await give(store, kind=Kind.CONSUMABLE, revision=11)
    assert DEFAULT_POLICY == (await held(store)).policy


async def test_a_new_policy_is_in_force_from_the_next_request_on(store: RegionStore) -> None:
    await give(store)
    assert isinstance(await one(store, reserve(50, name=ONE)), Granted)
    await give(store, policy=QuotaPolicy(max_single=10, generation=2), revision=11)
    refused = await one(store, reserve(11, name=TWO))
    assert isinstance(refused, Denied)
    assert (DenyReason.MAX_SINGLE_RESERVATION, 2) == (refused.reason, refused.holding.policy.generation)


async def test_a_reservation_keeps_its_generation_and_what_was_beyond(store: RegionStore) -> None:
    await give(store, policy=QuotaPolicy(enforcement=Enforcement.SHADOW, generation=5))
    word = await one(store, reserve(130, name=ONE))
    assert isinstance(word, Granted)
    assert DenyReason.OVER_LIMIT is word.would_deny
    assert (5, 30) == (word.reservation.generation, word.reservation.over)
    assert word.reservation == await store.reservation(ONE)
    assert Counter(slice=100, reserved=130, overage=30) == (await held(store)).counter
    await exact(store)


async def test_unlimited_is_remembered_and_ends(store: RegionStore) -> None:
    await store.apply(QUOTA, unlimited(allocation(100)), 10, NOON)
    assert (await held(store)).unlimited
    assert isinstance(await one(store, reserve(10**9, name=ONE)), Granted)
    await give(store, revision=11)
    assert not (await held(store)).unlimited
    assert isinstance(await one(store, reserve(1, name=TWO)), Denied)
    await exact(store)


async def test_a_rate_quota_leaks_from_one_call_to_the_next(store: RegionStore) -> None:
    await give(store, kind=Kind.RATE, policy=QuotaPolicy(refill=Refill(1, 4, 100)))
    await store.transact([adjust(100, request="x")], NOON)
    await store.transact([adjust(1, request="y")], NOON + 10.5)
    after = await held(store)
    assert (100 + 1 - 2, int(NOON + 8) * MICROSECONDS) == (after.counter.used, after.leaked_at)
    await store.transact([adjust(1, request="z")], NOON + 12)
    assert 99 == (await held(store)).counter.used
    await exact(store)


async def test_a_rate_quota_that_grows_leaks_up_to_then_at_the_old_speed(store: RegionStore) -> None:
    policy = QuotaPolicy(refill=Refill(100, 10, 100))
    await give(store, 10, kind=Kind.RATE, policy=policy)
    await store.transact([adjust(60, request="x")], NOON)
    await give(store, 100, kind=Kind.RATE, policy=policy, revision=11, now=NOON + 5.5)
    assert Counter(slice=100, available=45, used=55, overdraft_issued=50, overdraft_repaid=50) == (
        (await held(store)).counter
    )
    await exact(store)


async def test_a_day_ends_at_the_midnight_of_its_zone(store: RegionStore) -> None:
    policy = QuotaPolicy(calendar=Calendar(Period.DAY, "Asia/Kolkata"))
    before, midnight = at(2026, 6, 14, 18, 29, 59), at(2026, 6, 14, 18, 30)
    await give(store, kind=Kind.CONSUMABLE, policy=policy, now=before)
    assert isinstance(await one(store, reserve(100, name=ONE), now=before), Granted)
    assert isinstance(await one(store, reserve(1, name=TWO), now=before + 0.5), Denied)
    assert isinstance(await one(store, reserve(100, name=THREE), now=midnight), Granted)
    await exact(store)


async def test_a_denial_in_a_new_period_writes_nothing(store: RegionStore) -> None:
    await give(store, kind=Kind.CONSUMABLE, policy=QuotaPolicy(calendar=Calendar(Period.HOUR)))
    await store.transact([adjust(60, request="x")], NOON)
    before = await held(store)
    assert isinstance(await one(store, reserve(101, name=ONE), now=NOON + 7200), Denied)
    assert before == await held(store)
    assert 1 == len(await store.check_balances())


async def test_the_debt_of_a_late_commit_moves_to_the_current_period(store: RegionStore) -> None:
    await give(store, kind=Kind.CONSUMABLE, policy=QuotaPolicy(calendar=Calendar(Period.HOUR)))
    await store.transact([reserve(100, name=ONE, ttl=4000)], NOON)
    await store.transact([reserve(10, name=TWO)], NOON + 3600)
    await store.transact([Commit(ONE, 130)], NOON + 3600)
    old, new = [check.counter for check in await store.check_balances()]
    assert Counter(slice=100, used=100, overdraft_issued=30, overdraft_repaid=30) == old
    assert Counter(slice=100, available=60, reserved=10, used=30) == new
    await exact(store)


async def test_lines_are_read_as_they_were_written(store: RegionStore) -> None:
    far = QuotaKey('ten/"ant', "calls ü\\", "scope:\u2713")
    await give(store)
    await give(store, MAX_AMOUNT, far, kind=Kind.CONSUMABLE)
    word = await one(store, reserve(30, name=ONE, also=[Charge(far, MAX_AMOUNT, (0,))]))
    assert isinstance(word, Granted)
    assert (Line(far, (await held(store, far)).epoch, MAX_AMOUNT, via=(0,)),) == word.reservation.also
    assert (
        word.reservation == await store.reservation(ONE) == await store.reservation_of_request("acme", f"request-{ONE}")
    )


async def test_lines_are_settled_and_remembered(store: RegionStore) -> None:
    await family(store)
    await store.transact([reserve(30, name=ONE, key=PROJECT, also=also_global(30))], NOON)
    done = await one(store, Commit(ONE, 20, {QUOTA: 25}))
    assert isinstance(done, Settled)
    assert done.reservation == await store.reservation(ONE)
    assert 25 == done.reservation.also[0].actual
    assert (20, 25) == ((await held(store, PROJECT)).counter.used, (await held(store)).counter.used)
    again = await one(store, Commit(ONE, 20, {QUOTA: 25}), now=NOON + 1)
    assert Settled(done.reservation, replayed=True) == again
    await exact(store)


async def test_lines_are_held_all_or_none(store: RegionStore) -> None:
    await family(store)
    await store.transact([adjust(80, request="x")], NOON)
    refused = await one(store, reserve(30, name=ONE, key=SIBLING, also=also_global(30)))
    assert isinstance(refused, Denied)
    assert QUOTA == refused.holding.key
    assert 0 == (await held(store, SIBLING)).counter.reserved
    await exact(store)


async def test_a_guarantee_is_kept_in_the_parent_and_given_to_its_owner(store: RegionStore) -> None:
    await family(store)
    assert (40, 40) == ((await held(store)).guaranteed, (await held(store, PROJECT)).lien)
    assert isinstance(await one(store, reserve(61, name=ONE, key=SIBLING, also=also_global(61))), Denied)
    assert isinstance(await one(store, reserve(60, name=TWO, key=SIBLING, also=also_global(60))), Granted)
    assert isinstance(await one(store, reserve(40, name=THREE, key=PROJECT, also=also_global(40))), Granted)
    assert (0, 0) == ((await held(store)).guaranteed, (await held(store, PROJECT)).lien)
    await exact(store)


async def test_a_lien_stays_as_it_was_while_its_parent_is_not_named(store: RegionStore) -> None:
    await family(store)
    await store.transact([reserve(30, name=ONE, key=PROJECT)], NOON)
    assert (40, 40) == ((await held(store)).guaranteed, (await held(store, PROJECT)).lien)
    await store.transact([Pledge(PROJECT, QUOTA)], NOON)
    assert (10, 10) == ((await held(store)).guaranteed, (await held(store, PROJECT)).lien)
    await exact(store)


async def test_an_expiry_gives_back_all_lines_and_the_guarantee(store: RegionStore) -> None:
    await family(store)
    await store.transact([reserve(30, name=ONE, key=PROJECT, also=also_global(30), ttl=5)], NOON)
    done = await store.expire(NOON + 8, 100)
    assert Expired(1, {PROJECT: 30, QUOTA: 30}, 3.0) == done
    assert (40, 0) == ((await held(store)).guaranteed, (await held(store)).counter.reserved)
    assert State.EXPIRED is await state(store, ONE)
    await exact(store)


async def test_the_oldest_overdue_holds_end_first_and_no_more_than_asked_for(store: RegionStore) -> None:
    await give(store)
    ttls = {ONE: 30, TWO: 10, THREE: 20}
    await store.transact([reserve(1, name=name, ttl=ttl) for name, ttl in ttls.items()], NOON)
    assert Expired(2, {QUOTA: 2}, 90.0) == await store.expire(NOON + 100, 2)
    assert [State.PENDING, State.EXPIRED, State.EXPIRED] == [await state(store, name) for name in (ONE, TWO, THREE)]
    assert NOON + 30 == await store.overdue(NOON + 100)
    assert Expired(1, {QUOTA: 1}, 70.0) == await store.expire(NOON + 100, 2)
    assert Expired(0, {}, 0.0) == await store.expire(NOON + 100, 2)
    await exact(store)


async def test_what_is_not_overdue_does_not_end(store: RegionStore) -> None:
    await give(store)
    await store.transact([reserve(1, name=ONE, ttl=60)], NOON)
    assert Expired(0, {}, 0.0) == await store.expire(NOON + 59.999, 100)


async def test_an_expiry_tells_when_it_was(store: RegionStore) -> None:
    await give(store)
    await store.transact([reserve(1, name=ONE, ttl=5)], NOON)
    await store.expire(NOON + 7.25, 100)
    found = await store.reservation(ONE)
    assert found is not None
    assert NOON + 7.25 == found.settled_at


async def test_a_hold_of_an_ended_period_is_given_back_there(store: RegionStore) -> None:
    await give(store, kind=Kind.CONSUMABLE, policy=QuotaPolicy(calendar=Calendar(Period.HOUR)))
    await store.transact([reserve(30, name=ONE, ttl=10)], NOON)
    await store.transact([reserve(50, name=TWO, ttl=10)], NOON + 3600)
    assert 2 == (await store.expire(NOON + 7200, 100)).holds
    assert [Counter(slice=100, available=100)] * 3 == [check.counter for check in await store.check_balances()]
    await exact(store)


async def test_started_work_that_is_overdue_is_unknown_keeps_its_capacity_and_is_listed(store: RegionStore) -> None:
    await give(store)
    await store.transact([reserve(2, name=name, ttl=ttl) for name, ttl in ((ONE, 20), (TWO, 10), (THREE, 10))], NOON)
    await store.transact([Start(ONE, "operation-1"), Start(TWO, "operation-2")], NOON)
    assert Expired(3, {QUOTA: 2}, 20.0) == await store.expire(NOON + 30, 100)
    assert [TWO, ONE] == [found.id for found in await store.unknown(10)]
    assert [TWO] == [found.id for found in await store.unknown(1)]
    assert 4 == (await held(store)).counter.reserved
    assert await store.overdue(NOON + 30) is None
    await exact(store)


async def test_a_start_is_remembered_and_binds_one_operation(store: RegionStore) -> None:
    await give(store)
    await store.transact([reserve(2, name=ONE)], NOON)
    done = await one(store, Start(ONE, "operation ü"))
    assert isinstance(done, Settled)
    assert done.reservation == await store.reservation(ONE)
    assert (State.STARTED, "operation ü") == (done.reservation.state, done.reservation.operation_id)
    assert Settled(done.reservation, replayed=True) == await one(store, Start(ONE, "operation ü"))
    assert isinstance(await one(store, Start(ONE, "another")), Forbidden)


@pytest.mark.parametrize("end", [Commit(ONE, 1), Release(ONE)], ids=["receipt", "nothing was done"])
async def test_unknown_work_is_settled_by_who_knows(store: RegionStore, end: Commit | Release) -> None:
    await give(store)
    await store.transact([reserve(2, name=ONE, ttl=5), Start(ONE, "operation")], NOON)
    await store.expire(NOON + 5, 100)
    assert isinstance(await one(store, end, now=NOON + 6), Settled)
    assert [] == list(await store.unknown(10))
    assert 0 == (await held(store)).counter.reserved
    await exact(store)


async def test_a_reading_is_remembered_and_no_word_adds_twice(store: RegionStore) -> None:
    await give(store)
    first = await one(store, Meter(QUOTA, "gateway", "boot-1", 3, 30), now=NOON + 0.25)
    assert isinstance(first, Metered)
    again = await one(store, Meter(QUOTA, "gateway", "boot-1", 3, 30), now=NOON + 9)
    late = await one(store, Meter(QUOTA, "gateway", "boot-1", 2, 20), now=NOON + 9)
    assert isinstance(again, Metered)
    assert isinstance(late, Metered)
    assert (first.reading, first.reading, True) == (again.reading, late.reading, late.replayed)
    restarted = await one(store, Meter(QUOTA, "gateway", "boot-2", 1, 5))
    assert isinstance(restarted, Metered)
    assert 35 == (await held(store)).counter.used
    await exact(store)


async def test_words_of_one_source_in_one_batch_are_counted_in_order(store: RegionStore) -> None:
    await give(store)
    await give(store, 100, OTHER)
    await store.transact([Meter(QUOTA, "g", "b", n, 10 * n, (OTHER,)) for n in (1, 3, 2)], NOON)
    assert (30, 30) == ((await held(store)).counter.used, (await held(store, OTHER)).counter.used)
    await exact(store)


async def test_an_adjustment_is_made_in_the_parents_too(store: RegionStore) -> None:
    await family(store)
    word = await one(store, adjust(30, request="x", key=PROJECT, also=[QUOTA]))
    assert isinstance(word, Adjusted)
    assert (30, 30, 10) == (
        (await held(store, PROJECT)).counter.used,
        (await held(store)).counter.used,
        (await held(store)).guaranteed,
    )
    await exact(store)


async def test_a_late_commit_charges_every_line(store: RegionStore) -> None:
    await family(store)
    await store.transact([reserve(30, name=ONE, key=PROJECT, also=also_global(30), ttl=5)], NOON)
    await store.expire(NOON + 5, 100)
    assert isinstance(await one(store, Commit(ONE, 20), now=NOON + 6), Settled)
    assert (20, 20) == ((await held(store, PROJECT)).counter.used, (await held(store)).counter.used)
    await exact(store)


async def test_sweepers_at_once_end_each_hold_of_several_lines_once(open_store: fixtures.OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    await family(stores[0])
    names = [reservation_name(n) for n in range(1, 41)]
    await stores[0].transact([reserve(1, name=n, key=PROJECT, also=also_global(1), ttl=1) for n in names], NOON)
    done = await asyncio.gather(*(stores[n % 3].expire(NOON + 9, 7) for n in range(12)))
    rest = await stores[0].expire(NOON + 9, 100)
    assert 40 == sum(one.holds for one in (*done, rest))
    assert 40 == sum(one.units.get(PROJECT, 0) for one in (*done, rest))
    assert [0, 0] == [(await held(stores[0], key)).counter.reserved for key in (PROJECT, QUOTA)]
    await exact(stores[0])
