"""Several servers that reconcile, and commits in flight meanwhile."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, differences, reservation_name, reserve
from tests.region import reconciling
from tests.region.reconciling import (
    RIPE,
    SETTLE,
    Region,
)

from regionquota.core.commands import Commit
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import Totals
from regionquota.region.counts import State
from regionquota.region.reconciler import LEASE_S, MAX_AGE_S

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store, postgres_store = fixtures.open_store, fixtures.postgres_store
memory_store = fixtures.memory_store
memory_region, postgres_region, region = reconciling.memory_region, reconciling.postgres_region, reconciling.region


async def test_another_server_is_left_to_its_work(region: Region) -> None:
    await region.give()
    await region.use(1000)
    await region.cases.lease("inventory", "other", NOON + RIPE, NOON + RIPE + LEASE_S)
    assert State.ELSEWHERE is (await region.compare(1020)).state
    assert 1000 == await region.used()
    region.clock.seconds += LEASE_S
    assert State.DONE is (await region.compare(1020)).state


async def test_a_server_that_lost_its_lease_stops(region: Region) -> None:
    await region.give()
    await region.use(1000)
    taken = iter([True])

    class Lost:
        def __getattr__(self, name: str) -> Any:
            return getattr(region.cases, name)

        async def lease(self, *_terms: Any) -> bool:
            return next(taken, False)

    other = Region(region.store, Lost(), region.clock, region.truth)  # type: ignore[arg-type]
    assert State.ELSEWHERE is (await other.compare(1020)).state
    assert 1000 == await region.used()


async def test_the_lease_ends_with_the_run_however_it_ends(region: Region) -> None:
    await region.give()
    region.truth.say({QUOTA: 1}, NOON - MAX_AGE_S - 1)
    with pytest.raises(SourceUnavailable):
        await region.reconciler(holder="one").run("inventory")
    await region.use(1000)
    assert State.DONE is (await region.compare(1020, holder="two")).state


async def test_servers_that_compare_the_same_count_at_once_adjust_it_once(region: Region) -> None:
    await region.give()
    await region.use(1000)
    region.truth.say({QUOTA: 1020}, NOON)
    region.clock.seconds = NOON + RIPE
    servers = [region.reconciler(holder=f"server-{n}") for n in range(4)]
    await asyncio.gather(*(one.run("inventory") for one in servers))
    assert 1020 == await region.used()
    assert 1 == len(region.adjusted)


async def test_only_a_run_to_the_end_is_a_success(region: Region) -> None:
    await region.give()
    region.truth.say({}, NOON)
    reconciler = region.reconciler()
    await reconciler.run("inventory")
    assert {} == await region.cases.successes()
    region.clock.seconds = NOON + RIPE
    await reconciler.run("inventory")
    assert {"inventory": NOON + RIPE} == await region.cases.successes()


# -- commits in flight --


@dataclass
class Inventory:
    """What is really in use. The clock moves with each count, so that a snapshot has an instant of its own."""

    clock: HandClock
    units: int = 0

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        return Totals(self.clock.now(), {QUOTA: self.units})


async def test_commits_that_race_the_reconciler_all_survive_it(region: Region) -> None:
    """200 times something is created and committed while counts are taken, wait and are compared; some usage was lost
    before. In the end the ledger says what is true.
    """
    random = Random(7)
    await region.give()
    await region.use(100_000)
    world = Inventory(region.clock, 100_300)  # 300 were lost
    reconciler = region.reconciler(truth=world)

    async def create(number: int) -> None:
        name, amount = reservation_name(number), random.randint(1, 50)
        await region.store.transact([reserve(amount, name=name, ttl=9999)], region.clock.now())
        await asyncio.sleep(0)
        world.units += amount
        for _ in range(random.randint(0, 3)):
            region.clock.seconds += random.choice((0.5, SETTLE / 2, SETTLE + 1))
            await asyncio.sleep(0)
        await region.store.transact([Commit(name)], region.clock.now())

    for number in range(1, 201):
        await asyncio.gather(create(number), reconciler.run("inventory"))
        region.clock.seconds += random.choice((0, 1, SETTLE, RIPE + 1))
    region.clock.seconds += RIPE
    for _ in range(3):  # the last count that is still waiting, and one that nothing races
        await reconciler.run("inventory")
        region.clock.seconds += RIPE
    assert world.units == await region.used()
    assert 0 == await region.cases.open_count()
    assert [] == differences(await region.store.check_balances())
