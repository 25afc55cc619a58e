import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.clocks import Clock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, finish, reservation_name, reserve

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import Command, Commit, Denied, Granted, NotFound, Outcome, Release, Reserve, Settled
from regionquota.errors import OutcomeUnknown, ProtocolError, StoreUnavailable
from regionquota.region import group_commit
from regionquota.region.group_commit import MAX_ATTEMPTS, GroupCommit

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store


class Store(MemoryRegionStore):
    """In memory, with a gate to hold transactions up and a way to make them fail."""

    def __init__(self, slice_: int = 1000) -> None:
        super().__init__("eu")
        finish(self.apply(QUOTA, allocation(10**6, eu=slice_), 10, NOON))
        self.batches: list[Sequence[Command]] = []
        self.at_work = 0
        self.most_at_work = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail: Callable[[Sequence[Command]], Exception | None] = lambda _: None

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        self.batches.append(batch)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await self.gate.wait()
            error = self.fail(batch)
            outcomes = [] if error and not isinstance(error, OutcomeUnknown) else await super().transact(batch, now)
            if error is not None:
                raise error
            return outcomes
        finally:
            self.at_work -= 1


@asynccontextmanager
async def started(store: Any, **how: Any) -> AsyncIterator[GroupCommit]:
    lanes: dict[str, Any] = {"lanes": 1, "max_batch": 100, "max_queue": 1000}
    group = GroupCommit(store, Clock(NOON), **(lanes | how))
    group.start()
    yield group
    async with asyncio.timeout(30):
        await group.stop()


def numbered(n: int, amount: int = 1) -> Reserve:
    return reserve(amount, name=reservation_name(n))


async def gathered(group: GroupCommit, count: int, bucket: int = 0) -> list[asyncio.Task[Outcome]]:
    """Callers who have submitted and wait."""
    callers = [asyncio.create_task(group.submit(numbered(n), bucket)) for n in range(count)]
    for _ in range(3):
        await asyncio.sleep(0)
    return callers


async def test_who_submits_gets_the_outcome_of_its_own_command() -> None:
    async with started(Store(slice_=10)) as group:
        outcomes = await asyncio.gather(
            group.submit(numbered(1, 10), 0), group.submit(numbered(2), 0), group.submit(Release("no"), 0)
        )
    assert [Granted, Denied, NotFound] == [type(one) for one in outcomes]
    assert isinstance(outcomes[0], Granted)
    assert reservation_name(1) == outcomes[0].reservation.id


async def test_those_who_come_while_a_transaction_runs_share_the_next() -> None:
    store = Store()
    async with started(store) as group:
        store.gate.clear()
        callers = await gathered(group, 50)
        store.gate.set()
        await asyncio.gather(*callers)
    assert 50 == sum(map(len, store.batches))
    assert 2 >= len(store.batches)


async def test_a_batch_has_no_more_commands_than_allowed() -> None:
    store = Store()
    async with started(store, max_batch=8) as group:
        await asyncio.gather(*await gathered(group, 50))
    assert 8 == max(map(len, store.batches))
    assert 50 == sum(map(len, store.batches))


async def test_a_caller_who_comes_alone_does_not_wait_for_others() -> None:
    store = Store()
    async with started(store) as group:
        async with asyncio.timeout(1):
            await group.submit(numbered(1), 0)
    assert [1] == [len(batch) for batch in store.batches]


async def test_every_size_of_a_batch_is_told() -> None:
    sizes: list[int] = []
    store = Store()
    async with started(store, on_batch=sizes.append) as group:
        await asyncio.gather(*await gathered(group, 20))
    assert [len(batch) for batch in store.batches] == sizes


async def test_one_lane_has_one_transaction_at_a_time() -> None:
    store = Store()
    async with started(store, lanes=1, max_batch=3) as group:
        await asyncio.gather(*await gathered(group, 30))
    assert 1 == store.most_at_work


async def test_lanes_work_side_by_side() -> None:
    store = Store()
    async with started(store, lanes=3) as group:
        store.gate.clear()
        callers = [asyncio.create_task(group.submit(numbered(bucket), bucket)) for bucket in range(6)]
        await asyncio.sleep(0.01)
        store.gate.set()
        await asyncio.gather(*callers)
    assert 3 == store.most_at_work


async def test_a_full_queue_turns_callers_away_at_once() -> None:
    store = Store()
    async with started(store, max_batch=1, max_queue=5) as group:
        store.gate.clear()
        accepted = await gathered(group, 1)
        accepted += [asyncio.create_task(group.submit(numbered(n), 0)) for n in range(10, 15)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="5 requests are waiting already: try again"):
            await group.submit(numbered(99), 0)
        store.gate.set()
        assert {Granted} == {type(one) for one in await asyncio.gather(*accepted)}


async def test_a_caller_who_goes_away_changes_nothing() -> None:
    store = Store()
    async with started(store) as group:
        store.gate.clear()
        callers = await gathered(group, 3)
        callers[1].cancel()
        store.gate.set()
        assert isinstance(await callers[0], Granted)
        assert isinstance(await callers[2], Granted)
    assert all(finish(store.reservation(reservation_name(n))) for n in range(3))


@pytest.mark.parametrize("error", [ValueError("not text"), ProtocolError("does not add up")])
async def test_a_poisonous_command_does_not_fail_its_neighbours(error: Exception) -> None:
    store = Store()
    poison = numbered(7)
    store.fail = lambda batch: error if poison in batch else None
    async with started(store) as group:
        store.gate.clear()
        callers = await gathered(group, 10)
        store.gate.set()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert error is outcomes.pop(7)
    assert {Granted} == {type(one) for one in outcomes}
    assert 9 == finish(store.holdings())[0].counter.reserved


async def test_a_lane_goes_on_after_a_poisonous_command() -> None:
    store = Store()
    store.fail = lambda batch: ValueError("not text") if numbered(1) in batch else None
    async with started(store) as group:
        with pytest.raises(ValueError, match="not text"):
            await group.submit(numbered(1), 0)
        assert isinstance(await group.submit(numbered(2), 0), Granted)


async def test_an_observer_that_fails_does_not_leave_callers_waiting() -> None:
    def broken(_: int) -> None:
        raise RuntimeError("no metrics today")

    group = GroupCommit(Store(), Clock(NOON), lanes=1, max_batch=9, max_queue=9, on_batch=broken)
    group.start()
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError):
            await group.submit(numbered(1), 0)
        await group.stop()


async def test_an_outage_shorter_than_the_attempts_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETRY_AFTER_S", 0.001)
    store = Store()
    store.fail = lambda _: StoreUnavailable("down") if len(store.batches) < MAX_ATTEMPTS else None
    async with started(store) as group:
        assert isinstance(await group.submit(numbered(1), 0), Granted)


async def test_a_longer_outage_is_told_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETRY_AFTER_S", 0.001)
    store = Store()
    store.fail = lambda _: StoreUnavailable("down")
    async with started(store) as group:
        outcomes = await asyncio.gather(*await gathered(group, 5), return_exceptions=True)
    assert [StoreUnavailable] * 5 == [type(one) for one in outcomes]
    assert MAX_ATTEMPTS == len(store.batches)


async def test_what_was_done_although_nobody_answered_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "RETRY_AFTER_S", 0.001)
    store = Store()
    store.fail = lambda _: OutcomeUnknown("broke at COMMIT") if len(store.batches) < MAX_ATTEMPTS else None
    async with started(store) as group:
        callers = await gathered(group, 5)
        callers.append(asyncio.create_task(group.submit(adjust(7, request="x"), 0)))
        await asyncio.gather(*callers)
    counter = finish(store.holdings())[0].counter
    assert (5, 7) == (counter.reserved, counter.used)


async def test_a_stop_answers_everybody_who_waits() -> None:
    store = Store()
    group = GroupCommit(store, Clock(NOON), lanes=2, max_batch=3, max_queue=100)
    group.start()
    store.gate.clear()
    callers = await gathered(group, 20) + await gathered(group, 20, bucket=1)
    stopping = asyncio.create_task(group.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done()
    store.gate.set()
    async with asyncio.timeout(5):
        await stopping
    assert all(caller.done() for caller in callers)


async def test_commands_on_a_real_database_share_few_transactions(postgres_store: Any, database: str) -> None:
    sizes: list[int] = []
    await postgres_store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    async with started(postgres_store, lanes=2, on_batch=sizes.append) as group:
        granted = await asyncio.gather(*(group.submit(numbered(n), n % 2) for n in range(400)))
        settled = await asyncio.gather(*(group.submit(Commit(reservation_name(n)), n % 2) for n in range(400)))
    assert ({Granted}, {Settled}) == ({type(one) for one in granted}, {type(one) for one in settled})
    assert 800 == sum(sizes)
    assert 40 > len(sizes)
    assert 400 == (await postgres_store.holdings())[0].counter.used
    assert [] == differences(await postgres_store.check_balances())


async def test_a_command_that_the_database_cannot_store_does_not_fail_its_neighbours(postgres_store: Any) -> None:
    await postgres_store.apply(QUOTA, allocation(10**6, eu=1000), 10, NOON)
    async with started(postgres_store) as group:
        poison = reserve(1, name=reservation_name(99), request="a\0b")
        callers = [*(numbered(n) for n in range(10)), poison]
        outcomes = await asyncio.gather(*(group.submit(one, 0) for one in callers), return_exceptions=True)
    assert isinstance(outcomes.pop(), Exception)
    assert {Granted} == {type(one) for one in outcomes}
    assert 10 == (await postgres_store.holdings())[0].counter.reserved


async def test_who_waited_too_long_for_a_database_that_hangs_is_told_so_and_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "GIVE_UP_AFTER_S", 0.05)
    store = Store()
    store.gate.clear()
    async with started(store, max_batch=1) as group:
        callers = await gathered(group, 5)
        await asyncio.sleep(0.1)
        store.gate.set()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [Granted] + [StoreUnavailable] * 4 == [type(outcome) for outcome in outcomes]
    assert 1 == len(store.batches)
    assert 1 == (await store.holding(QUOTA)).counter.reserved  # type: ignore[union-attr]


async def test_a_batch_that_failed_late_is_not_put_to_the_store_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "GIVE_UP_AFTER_S", -1.0)
    store = Store()
    store.fail = lambda _: StoreUnavailable("away")
    group = GroupCommit(store, Clock(NOON), lanes=1, max_batch=1, max_queue=1)
    with pytest.raises(StoreUnavailable):
        await group._put([numbered(1)])
    assert 1 == len(store.batches)


async def test_an_end_in_anger_leaves_nobody_waiting() -> None:
    """As when Postgres hangs for longer than a server may take to stop."""
    store = Store()
    store.gate.clear()
    group = GroupCommit(store, Clock(NOON), lanes=1, max_batch=1, max_queue=10)
    group.start()
    callers = await gathered(group, 2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await group.stop()
    await group.abandon()
    assert 0 == store.at_work
    assert [True, True] == [
        isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*callers, return_exceptions=True)
    ]
