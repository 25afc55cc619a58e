"""Unknown work is settled by what the executor knows, once, and by nothing less."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve

from regionquota.core.commands import Commit, Outcome, Release, Start
from regionquota.core.reservation import Reservation, State
from regionquota.errors import ExecutorUnavailable
from regionquota.executor_ports import Finding, Verdict
from regionquota.ports import RegionStore
from regionquota.region.resolver import Resolver

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store, store = fixtures.memory_store, fixtures.store

LATER = NOON + 3600


class Knowing:
    """An executor that knows of each reservation what `verdicts` say, and fails for what it is `sick` of."""

    def __init__(self, verdicts: Callable[[Reservation], Finding | None]) -> None:
        self.verdicts = verdicts
        self.sick: set[str] = set()
        self.asked: list[list[str]] = []

    async def ask(self, reservations: Sequence[Reservation]) -> Sequence[Finding]:
        self.asked.append([held.id for held in reservations])
        if self.sick & set(self.asked[-1]):
            raise ExecutorUnavailable("sick")
        await asyncio.sleep(0)
        return [found for held in reservations if (found := self.verdicts(held)) is not None]


def always(verdict: Verdict, actual: int | None = None) -> Knowing:
    return Knowing(lambda held: Finding(held.id, verdict, actual))


def resolver(store: RegionStore, executor: Knowing, batch: int = 100) -> Resolver:
    async def commit(name: str, actual: int | None) -> Outcome:
        return (await store.transact([Commit(name, actual)], LATER))[0]

    async def release(name: str) -> Outcome:
        return (await store.transact([Release(name)], LATER))[0]

    return Resolver(store, executor, commit, release, batch=batch)


async def unknown(store: RegionStore, count: int, amount: int = 5) -> list[str]:
    """The names of started holds whose deadline passed, longest overdue first."""
    await store.apply(QUOTA, allocation(1000, eu=1000), 10, NOON)
    names = [reservation_name(number + 1) for number in range(count)]
    for place, name in enumerate(names):
        await store.transact([reserve(amount, name=name, ttl=10 + place)], NOON)
        await store.transact([Start(name, f"operation-{name}")], NOON)
    await store.expire(LATER, 1000)
    return names


async def state(store: RegionStore, name: str) -> State:
    held = await store.reservation(name)
    assert held is not None
    return held.state


async def balances(store: RegionStore) -> tuple[int, int]:
    held = await store.holding(QUOTA)
    assert held is not None
    assert [] == differences(await store.check_balances())
    return held.counter.used, held.counter.reserved


async def test_work_that_was_done_is_committed_at_what_it_took(store: RegionStore) -> None:
    [name] = await unknown(store, 1)
    assert 1 == await resolver(store, always(Verdict.COMMITTED, 3)).resolve()
    assert (State.COMMITTED, (3, 0)) == (await state(store, name), await balances(store))


async def test_work_that_was_done_without_saying_how_much_is_committed_in_full(store: RegionStore) -> None:
    await unknown(store, 1)
    await resolver(store, always(Verdict.COMMITTED)).resolve()
    assert (5, 0) == await balances(store)


async def test_work_that_was_not_done_is_released(store: RegionStore) -> None:
    [name] = await unknown(store, 1)
    assert 1 == await resolver(store, always(Verdict.RELEASED)).resolve()
    assert (State.RELEASED, (0, 0)) == (await state(store, name), await balances(store))


@pytest.mark.parametrize("verdict", [Verdict.RUNNING, Verdict.UNKNOWN])
async def test_work_that_goes_on_or_is_not_known_keeps_its_capacity(store: RegionStore, verdict: Verdict) -> None:
    [name] = await unknown(store, 1)
    assert 0 == await resolver(store, always(verdict)).resolve()
    assert (State.UNKNOWN, (0, 5)) == (await state(store, name), await balances(store))


async def test_what_the_executor_does_not_speak_of_keeps_its_capacity(store: RegionStore) -> None:
    await unknown(store, 1)
    await resolver(store, Knowing(lambda _: None)).resolve()
    assert (0, 5) == await balances(store)


async def test_nobody_is_asked_about_nothing(store: RegionStore) -> None:
    executor = always(Verdict.RELEASED)
    assert 0 == await resolver(store, executor).resolve()
    assert [] == executor.asked


async def test_all_are_asked_about_in_batches_oldest_first(store: RegionStore) -> None:
    names = await unknown(store, 5)
    executor = always(Verdict.RUNNING)
    await resolver(store, executor, batch=2).resolve()
    assert [names[:2], names[2:4], names[4:]] == executor.asked


async def test_a_question_that_always_fails_does_not_keep_the_others_from_being_asked(store: RegionStore) -> None:
    names = await unknown(store, 5)
    executor = always(Verdict.RELEASED)
    executor.sick = {names[0]}
    one = resolver(store, executor, batch=2)
    with pytest.raises(ExecutorUnavailable):
        await one.resolve()
    assert 3 == await one.resolve()
    assert [State.UNKNOWN, State.UNKNOWN, State.RELEASED] == [await state(store, name) for name in names[:3]]


async def test_work_that_its_caller_settled_meanwhile_is_left_as_it_is(store: RegionStore) -> None:
    [name] = await unknown(store, 1)

    def settle_first(held: Reservation) -> Finding:
        return Finding(held.id, Verdict.RELEASED)

    class Slow(Knowing):
        async def ask(self, reservations: Sequence[Reservation]) -> Sequence[Finding]:
            await store.transact([Commit(name, 4)], LATER)
            return await super().ask(reservations)

    assert 0 == await resolver(store, Slow(settle_first)).resolve()
    assert (State.COMMITTED, (4, 0)) == (await state(store, name), await balances(store))


async def test_servers_that_ask_at_the_same_time_settle_each_once(open_store: fixtures.OpenStore) -> None:
    stores = [await open_store() for _ in range(3)]
    await unknown(stores[0], 30)
    settled = await asyncio.gather(
        *(resolver(store, always(Verdict.COMMITTED, 3), batch=7).resolve() for store in stores)
    )
    assert 30 == sum(settled)
    assert (90, 0) == await balances(stores[0])
