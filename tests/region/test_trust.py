"""A database that lost a decrease: what it gave away stays with the one who has it."""

from collections.abc import Sequence
from copy import deepcopy

import pytest
from tests.clocks import Clock
from tests.core.builders import NOON, QUOTA, differences, finish, reserve

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import (
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    hand_over,
    new_allocation,
    request_moves,
)
from regionquota.core.commands import Commit, Denied, Granted, Release
from regionquota.core.quota import Kind
from regionquota.errors import EtcdUnavailable, NotTrusted
from regionquota.ports import Stored
from regionquota.region.steps import synchronise
from regionquota.region.trust import Trust


class World:
    """Two regions share 100; eu has given 40 of its 70 to us. The replica of eu has not heard of it."""

    def __init__(self, used: int) -> None:
        self.clock = Clock(NOON)
        self.etcd = MemoryCoordination(self.clock)
        self.stores = {region: MemoryRegionStore(region) for region in ("eu", "us")}
        whole = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
        document = grant(whole, {"eu": 70, "us": 30})
        revision = finish(self.etcd.swap(QUOTA, 0, document))
        self.synchronise("eu", "us")
        if used:
            finish(self.stores["eu"].transact([reserve(used, name="a"), Commit("a")], NOON))
        self.replica = deepcopy(self.stores["eu"])
        assert revision is not None
        finish(self.etcd.swap(QUOTA, revision, request_moves(document, [Move("m", "eu", "us", 40)])))
        self.synchronise("eu", "us")

    def synchronise(self, *regions: str) -> None:
        for region in regions:
            finish(synchronise(QUOTA, region, self.etcd, self.stores[region], NOON))

    def fail_over(self) -> Trust:
        self.replica.life += 1
        self.stores["eu"] = self.replica
        return Trust("eu", self.etcd, self.replica, self.clock)

    def slices(self) -> tuple[int, int]:
        eu, us = (finish(self.stores[region].holding(QUOTA)) for region in ("eu", "us"))
        assert eu is not None
        assert us is not None
        return eu.slice, us.slice


async def test_a_lost_decrease_is_made_again_before_anybody_may_spend_it() -> None:
    world = World(used=0)
    assert (30, 70) == world.slices()
    trust = world.fail_over()
    assert (70, 70) == world.slices(), "the replica holds what us owns by now"
    with pytest.raises(NotTrusted):
        await world.replica.transact([reserve(70, name="b")], NOON)
    await trust.step()
    assert (30, 70) == world.slices()
    [denied, granted] = await world.replica.transact([reserve(31, name="c"), reserve(30, name="d")], NOON)
    assert (Denied, Granted) == (type(denied), type(granted))


class Listed(MemoryCoordination):
    """What a process has listed before others went on."""

    async def list(self) -> tuple[int, Sequence[Stored]]:
        return self.listed

    def __init__(self, etcd: MemoryCoordination) -> None:
        super().__init__(Clock(NOON))
        self.listed = finish(etcd.list())


async def test_what_another_process_heard_meanwhile_leaves_nothing_that_is_not_owned() -> None:
    world = World(used=0)
    world.fail_over()
    world.replica.trusted = world.replica.life
    await world.replica.transact([reserve(50, name="b")], NOON)
    world.replica.life += 1
    slow = Trust("eu", Listed(world.etcd), world.replica, world.clock)
    revision, document = await world.etcd.read(QUOTA)
    assert document is not None
    await world.etcd.swap(QUOTA, revision, request_moves(document, [Move("n", "us", None, 1)]))
    world.synchronise("eu")
    await slow.step()
    assert (30, 70) == world.slices()


async def test_what_was_spent_of_it_meanwhile_is_owed() -> None:
    """Only possible if the replica served callers before: the units are somebody else's all the same."""
    world = World(used=0)
    trust = world.fail_over()
    world.replica.trusted = world.replica.life
    await world.replica.transact([reserve(50, name="b")], NOON)
    world.replica.life += 1
    await trust.step()
    assert (30, 70) == world.slices()
    held = await world.replica.holding(QUOTA)
    assert held is not None
    assert 20 == held.counter.debt
    assert [] == differences(await world.replica.check_balances())
    assert isinstance((await world.replica.transact([reserve(1, name="c")], NOON))[0], Denied)


async def test_without_etcd_nothing_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(used=5)
    trust = world.fail_over()

    async def silent() -> None:
        raise EtcdUnavailable("no answer")

    monkeypatch.setattr(world.etcd, "list", silent)
    with pytest.raises(EtcdUnavailable):
        await trust.step()
    with pytest.raises(NotTrusted):
        await world.replica.transact([reserve(1, name="b")], NOON)


async def test_a_failover_during_the_comparison_begins_it_anew() -> None:
    world = World(used=0)
    trust = world.fail_over()
    listed = world.etcd.list

    async def list_and_fail_over() -> object:
        found = await listed()
        world.replica.life += 1
        return found

    world.etcd.list = list_and_fail_over  # type: ignore[method-assign, assignment]
    with pytest.raises(Exception, match="another incarnation"):
        await trust.step()
    assert not (await world.replica.incarnation()).is_trusted
    world.etcd.list = listed  # type: ignore[method-assign]
    await trust.step()
    assert (await world.replica.incarnation()).is_trusted
    assert (30, 70) == world.slices()


async def test_a_quota_that_has_ended_meanwhile_is_closed() -> None:
    world = World(used=0)
    trust = world.fail_over()
    revision, _ = await world.etcd.read(QUOTA)
    await world.etcd.remove(QUOTA, revision)
    await trust.step()
    assert 0 == world.slices()[0]


async def test_what_was_let_go_of_before_the_failover_cannot_be_given_away_after_it() -> None:
    """The database has forgotten the release that made the decrease possible, and the agent has not heard of that."""
    world = World(used=0)
    store = world.stores["eu"]
    await store.transact([reserve(20, name="a")], NOON)
    revision, document = await world.etcd.read(QUOTA)
    assert document is not None
    wanted = request_moves(document, [Move("n", "eu", "us", 25)])
    revision = await world.etcd.swap(QUOTA, revision, wanted) or 0
    replica = store.copy()
    await store.transact([Release("a")], NOON)
    let_go = await store.apply(QUOTA, wanted, revision, NOON)
    assert let_go is not None
    assert 5 == let_go.slice
    store.fail_over(replica)
    await Trust("eu", world.etcd, store, world.clock).step()
    handed_over = hand_over(wanted, "eu", let_go.slice, let_go.epoch)
    assert await world.etcd.swap(QUOTA, revision, handed_over) is None
    world.synchronise("us")
    assert (20, 80) == world.slices()


async def test_a_quota_that_the_database_has_forgotten_is_compared_too() -> None:
    """Else an agent that slept could carry out what it had read before everything was given away."""
    world = World(used=0)
    store = world.stores["eu"]
    revision, document = await world.etcd.read(QUOTA)
    assert document is not None
    read = request_moves(document, [Move("n", "eu", "us", 30)])
    revision = await world.etcd.swap(QUOTA, revision, read) or 0
    world.synchronise("eu", "us")
    assert (0, 100) == world.slices()
    store.fail_over(MemoryRegionStore("eu"))
    await Trust("eu", world.etcd, store, world.clock).step()
    assert await store.apply(QUOTA, document, revision - 1, NOON) is None
    assert (0, 100) == world.slices()


async def test_a_server_that_is_trusted_is_not_compared_again() -> None:
    world = World(used=0)
    trust = Trust("eu", world.etcd, world.stores["eu"], world.clock)
    world.etcd.list = None  # type: ignore[method-assign, assignment]
    await trust.step()
