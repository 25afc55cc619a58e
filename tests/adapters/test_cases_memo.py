"""A memory of any size, or none: what is remembered spares a look and never decides anything."""

from random import Random

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, allocation, differences, reservation_name, reserve
from tests.core.worlds import Batch, Heard, Life, Step

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.adapters.postgres import memo
from regionquota.core.commands import Commit, Denied, Granted, Settled
from regionquota.ports import RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

STEPS = 60


def remember(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(memo, "MAX_COUNTERS", most)
    monkeypatch.setattr(memo, "MAX_RESERVATIONS", most)


@pytest.mark.parametrize("most", [0, 1])
async def test_a_process_that_remembers_next_to_nothing_still_enforces_the_limit(
    open_store: fixtures.OpenStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    remember(monkeypatch, most)
    store = await open_store()
    await store.apply(QUOTA, allocation(1000, eu=3), 10, NOON)
    outcomes = [(await store.transact([reserve(1, name=reservation_name(n))], NOON))[0] for n in range(5)]
    assert [Granted] * 3 + [Denied] * 2 == [type(one) for one in outcomes]
    (settled,) = await store.transact([Commit(reservation_name(0))], NOON)
    assert isinstance(settled, Settled)
    assert most >= max(len(store._memo._counters), len(store._memo._reservations))


async def answer(store: RegionStore, step: Step, now: float) -> object:
    match step:
        case Batch(commands):
            return list(await store.transact(commands, now))
        case Heard(key, document, revision):
            return await store.apply(key, document, revision, now)
        case _:
            return await store.expire(now, step.most)


@pytest.mark.parametrize("most", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
async def test_what_is_answered_does_not_depend_on_what_is_remembered(
    open_store: fixtures.OpenStore, monkeypatch: pytest.MonkeyPatch, most: int, seed: int
) -> None:
    """Two processes take turns, so that what one of them remembers is often not so any more."""
    remember(monkeypatch, most)
    memory, life, chance = MemoryRegionStore("eu"), Life(seed), Random(seed)
    pair = [await open_store(size=1), await open_store(size=1)]
    for step in life.steps(STEPS):
        expected = await answer(memory, step, life.now)
        assert expected == await answer(chance.choice(pair), step, life.now)
    checks = await pair[0].check_balances()
    assert [] == differences(checks)
    assert list(await memory.check_balances()) == list(checks)
