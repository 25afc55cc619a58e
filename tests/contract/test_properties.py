"""Random lives through memory and a real Postgres that two processes share: equal answers, exact after each step."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import differences
from tests.core.worlds import Batch, Heard, Life, Step, Swept

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import (
    Adjusted,
    Denied,
    DenyReason,
    Forbidden,
    Granted,
    Invalid,
    Metered,
    NotFound,
    Pledged,
    RequestConflict,
    Settled,
)
from regionquota.core.entries import EntryKind
from regionquota.core.policy import Priority
from regionquota.core.quota import Kind
from regionquota.core.slice import Holding
from regionquota.ports import BalanceCheck, RegionStore

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database

STEPS: Final = 40
LIVES_IN_POSTGRES: Final = 24
LIVES_IN_MEMORY: Final = 200

steady = settings(
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


async def live(store: RegionStore, step: Step, now: float) -> Any:
    """What the store answers to `step`."""
    match step:
        case Batch(commands):
            return list(await store.transact(commands, now))
        case Heard(key, document, revision):
            return await store.apply(key, document, revision, now)
        case Swept(most):
            return await store.expire(now, most)


def conserved(checks: Sequence[BalanceCheck]) -> None:
    """The equation, stated here once more: the counters' own check could be wrong."""
    for check in checks:
        held = check.counter
        owed = held.slice + held.overdraft_issued + held.overage
        assert owed == held.available + held.reserved + held.used + held.retired + held.overdraft_repaid
        assert held.available == 0 or (held.overdraft_issued, 0) == (held.overdraft_repaid, held.overage)


def guarantees_kept(holdings: Sequence[Holding]) -> None:
    for one in holdings:
        assert one.guaranteed == sum(other.lien for other in holdings if other.parent == one.key)


@settings(steady, max_examples=LIVES_IN_MEMORY)
@given(seed=st.integers(0, 2**32))
async def test_every_step_of_a_life_keeps_the_equation_and_the_ledgers_explain_it(seed: int) -> None:
    store, life = MemoryRegionStore("eu"), Life(seed)
    for step in life.steps(STEPS):
        await live(store, step, life.now)
        checks = await store.check_balances()
        assert [] == differences(checks)
        conserved(checks)
        guarantees_kept(await store.holdings())


async def test_the_lives_are_worth_living() -> None:
    """Every kind of answer is given, in lives of every kind, with debt, overage, ended periods and liens; what is kept
    for higher priorities denies requests of both lower ones.
    """
    answers, kinds, seen, kept = set[type](), set[Kind](), set[str](), set[Priority]()
    for seed in range(60):
        store, life = MemoryRegionStore("eu"), Life(seed)
        for step in life.steps(STEPS):
            answer = await live(store, step, life.now)
            answers.update(type(one) for one in answer) if isinstance(step, Batch) else None
            denials = [one for one in answer if isinstance(one, Denied)] if isinstance(step, Batch) else []
            kept.update(one.priority for one in denials if one.reason is DenyReason.KEPT_FOR_HIGHER_PRIORITY)
            holdings = await store.holdings()
            kinds.update(held.kind for held in holdings)
            seen.update(name for held in holdings for name in ("debt", "overage") if getattr(held.counter, name))
            seen.update("lien" for held in holdings if held.lien)
        seen.update("ended" for _ in (await store.check_balances())[len(await store.holdings()) :])
        seen.update(entry.kind for entry in store.entries)
    assert {
        Granted,
        Denied,
        Settled,
        Forbidden,
        NotFound,
        Invalid,
        RequestConflict,
        Adjusted,
        Metered,
        Pledged,
    } <= answers
    assert set(Kind) == kinds
    assert {Priority.NORMAL, Priority.LOW} == kept
    assert {"debt", "overage", "lien", "ended", *EntryKind} - {EntryKind.RECONCILE} == seen


@pytest.mark.timeout(120)
@settings(steady, max_examples=LIVES_IN_POSTGRES)
@given(seed=st.integers(0, 2**32))
async def test_memory_and_postgres_live_alike(database: str, seed: int) -> None:
    """The two processes take turns by chance: what one of them remembers the other has often changed."""
    await fixtures.empty(database)
    memory, life, chance = MemoryRegionStore("eu"), Life(seed), Random(seed)
    async with fixtures.store_on(database, size=1) as one, fixtures.store_on(database, size=1) as two:
        for step in life.steps(STEPS):
            expected = await live(memory, step, life.now)
            assert expected == await live(chance.choice([one, two]), step, life.now), f"{step} at {life.now}"
            checks = await one.check_balances()
            assert [] == differences(checks)
            assert list(await memory.check_balances()) == list(checks)
        assert list(await memory.holdings()) == list(await two.holdings())
        assert list(await memory.unknown(100)) == list(await two.unknown(100))
        assert await memory.overdue(life.now) == await two.overdue(life.now)


@pytest.mark.timeout(180)
@settings(steady, max_examples=LIVES_IN_POSTGRES)
@given(seed=st.integers(0, 2**32))
async def test_spread_counters_live_as_whole_ones_do(database: str, seed: int) -> None:
    """Three processes on shards of their own, that are laid out anew now and then, and one counter in memory."""
    await fixtures.empty(database)
    memory, life, chance = MemoryRegionStore("eu"), Life(seed, spreadable=True), Random(seed)
    async with AsyncExitStack() as opened:
        stores = [await opened.enter_async_context(fixtures.store_on(database, size=1, slot=n)) for n in range(3)]
        for step in life.steps(STEPS):
            if chance.random() < 0.4:
                await stores[0].spread(chance.choice(life.keys), chance.choice([1, 2, 3, 3]), life.now)
            expected = await live(memory, step, life.now)
            told = await live(chance.choice(stores), step, life.now)
            assert whole(expected) == whole(told), f"{step} at {life.now}"
            checks = await stores[0].check_balances()
            assert [] == differences(checks)
            assert list(await memory.check_balances()) == list(checks)
        assert list(await memory.holdings()) == list(await stores[1].holdings())


def whole(answers: Any) -> Any:
    """Without what a shard says of itself: what it has left is no more than all have together."""
    if not isinstance(answers, list):
        return answers
    return [msgspec.structs.replace(one, holding=None) if isinstance(one, Granted) else one for one in answers]
