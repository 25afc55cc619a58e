"""What every `HistoryStore` promises, and what is read and written in a history only while it runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest
from tests.clocks import HandClock
from tests.core.builders import QUOTA, allocation

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import BoundAllocations, MemoryHistoryStore
from regionquota.core.history import Bond, History, Phase, Seen, Sight, Standing
from regionquota.core.policy import DEFAULT_POLICY
from regionquota.core.quota import MAX_IDENTIFIER_BYTES, Kind, QuotaKey
from regionquota.core.recovery import Stated, Statement
from regionquota.embedded import EmbeddedEtcd
from regionquota.errors import EtcdUnavailable, HistoryEnded, UnreadableDocument, WentBackwards
from regionquota.history_ports import HistoryStore
from regionquota.ports import AllocationStore, Directory, RegionRecord
from regionquota.recovery import rebuild_documents

RUNNING = History("first")
HALTED = History("first", Phase.HALTED, 1_800_000_000.5, "eu (host-1)", "it is at 3, but has been at 5")
RECOVERING = History("next", Phase.RECOVERING, 1_800_000_000.5, "somebody", "because")


@dataclass
class Etcd:
    histories: HistoryStore
    directory: Directory
    bound: Callable[[Bond], AllocationStore]
    recovering: Callable[[History], AllocationStore]


@pytest.fixture
def memory_etcd() -> Etcd:
    memory = MemoryCoordination(HandClock())
    return Etcd(
        MemoryHistoryStore(memory),
        memory,
        lambda bond: BoundAllocations(memory, bond),
        lambda history: BoundAllocations(memory, Bond(), history),
    )


@pytest.fixture
async def real_etcd(etcd: EmbeddedEtcd) -> AsyncIterator[Etcd]:
    prefix, clients = f"/{uuid4()}/", []

    def connect(bond: Bond | None = None) -> EtcdClient:
        clients.append(EtcdClient.connect([etcd.endpoint], prefix=prefix, timeout_s=10, bond=bond))
        return clients[-1]

    one = connect()
    yield Etcd(one.histories, one.directory, lambda bond: connect(bond).allocations, one.allocations_in)
    for client in clients:
        await client.close()


@pytest.fixture(params=["memory", "real"])
def store(request: pytest.FixtureRequest) -> Etcd:
    chosen: Etcd = request.getfixturevalue(f"{request.param}_etcd")
    return chosen


async def stand(store: Etcd, history: History) -> None:
    revision, _ = await store.histories.read()
    assert await store.histories.swap(history, revision)


def bound(name: str = "first") -> Bond:
    return Bond(Standing(name), Seen())


async def test_there_is_none_at_first(store: Etcd) -> None:
    assert (0, None) == await store.histories.read()


@pytest.mark.parametrize("history", [RUNNING, HALTED, RECOVERING])
async def test_what_was_written_is_read(store: Etcd, history: History) -> None:
    await stand(store, history)
    revision, found = await store.histories.read()
    assert history == found
    assert revision > 0


async def test_only_one_begins_it(store: Etcd) -> None:
    assert await store.histories.swap(RUNNING, 0)
    assert not await store.histories.swap(History("other"), 0)


async def test_the_record_of_a_region(store: Etcd) -> None:
    assert await store.histories.record("eu") is None
    await store.directory.swap_region(RegionRecord("eu", 7), 0)
    assert RegionRecord("eu", 7) == await store.histories.record("eu")


def stated(number: int) -> Stated:
    key = QuotaKey("a/b 東京", f"r{number}", "global")
    return Stated(key, Kind.CONSUMABLE, 100, False, DEFAULT_POLICY, 40, 24_000, number, 3)


async def test_what_was_stated_is_read(store: Etcd) -> None:
    eu = Statement("eu", Standing("first", 2, 1), [stated(1), stated(2)])
    us = Statement("us", Standing("first"), [], is_trusted=False)
    await store.histories.state(eu)
    await store.histories.state(us)
    assert [eu, us] == sorted(await store.histories.statements(), key=lambda one: one.region)


async def test_a_long_statement_is_replaced_by_a_shorter_one(store: Etcd) -> None:
    await store.histories.state(Statement("eu", Standing("first"), [stated(number) for number in range(2500)]))
    (found,) = await store.histories.statements()
    assert 2500 == len(found.stated)
    shorter = Statement("eu", Standing("next"), [stated(1)])
    await store.histories.state(shorter)
    assert [shorter] == await store.histories.statements()


async def test_a_statement_of_long_names_is_read(store: Etcd) -> None:
    """Quotation marks take twice as much room as they have letters."""
    longest = '"' * MAX_IDENTIFIER_BYTES
    policy = replace(DEFAULT_POLICY, parent=longest)
    words = [replace(stated(1), key=QuotaKey(longest, longest, f"{number}"), policy=policy) for number in range(2000)]
    await store.histories.state(Statement("eu", Standing("first"), words))
    assert [Statement("eu", Standing("first"), words)] == await store.histories.statements()


async def test_statements_are_forgotten(store: Etcd) -> None:
    await store.histories.state(Statement("eu", Standing("first"), [stated(1)]))
    await store.histories.forget_statements()
    assert [] == await store.histories.statements()


async def test_documents_are_written_while_it_runs(store: Etcd) -> None:
    await stand(store, RUNNING)
    allocations = store.bound(bound())
    revision = await allocations.swap(QUOTA, 0, allocation(100))
    assert (revision, allocation(100)) == await allocations.read(QUOTA)
    assert await allocations.swap(QUOTA, 0, allocation(100)) is None


@pytest.mark.parametrize("history", [HALTED, RECOVERING, History("next")])
async def test_nothing_is_read_or_written_in_it_once_it_has_ended(store: Etcd, history: History) -> None:
    await stand(store, RUNNING)
    allocations = store.bound(bound())
    revision = await allocations.swap(QUOTA, 0, allocation(100))
    assert revision is not None
    await stand(store, history)
    for refused in (
        allocations.read(QUOTA),
        allocations.list(),
        allocations.swap(QUOTA, revision, allocation(200)),
        allocations.swap_all([(QUOTA, revision, allocation(200))]),
        allocations.remove(QUOTA, revision),
    ):
        with pytest.raises(HistoryEnded):
            await refused
    name = history.name if history.phase is Phase.RUNNING else "third"
    await stand(store, History(name))
    assert (revision, allocation(100)) == await store.bound(bound(name)).read(QUOTA)


async def test_an_evicted_region_writes_nothing(store: Etcd) -> None:
    await stand(store, RUNNING)
    bond = bound()
    allocations = store.bound(bond)
    bond.is_evicted = True
    for refused in (
        allocations.swap(QUOTA, 0, allocation(100)),
        allocations.swap_all([(QUOTA, 0, allocation(100))]),
        allocations.remove(QUOTA, 1),
    ):
        with pytest.raises(EtcdUnavailable, match="is evicted"):
            await refused
    assert (0, None) == await allocations.read(QUOTA)


async def test_nothing_is_read_by_a_process_that_has_not_met_it(store: Etcd) -> None:
    await stand(store, RUNNING)
    with pytest.raises(EtcdUnavailable):
        await store.bound(Bond()).read(QUOTA)


async def test_only_the_recovery_writes_while_it_lasts(store: Etcd) -> None:
    await stand(store, RECOVERING)
    allocations = store.recovering(RECOVERING)
    assert await allocations.swap(QUOTA, 0, allocation(100)) is not None
    await stand(store, History("next"))
    with pytest.raises(HistoryEnded):
        await allocations.list()


async def test_an_etcd_that_remembers_less_than_was_seen_is_not_asked_again(store: Etcd) -> None:
    await stand(store, RUNNING)
    bond = bound()
    allocations = store.bound(bond)
    await allocations.read(QUOTA)
    bond.seen.recall(Sight(bond.seen.sight.cluster, 10**9))
    for _ in range(2):
        with pytest.raises(WentBackwards, match="has been at 1000000000"):
            await allocations.read(QUOTA)
    assert bond.seen.broken is not None


async def test_another_cluster_is_not_asked_again(etcd: EmbeddedEtcd) -> None:
    bond = Bond(Standing("first"), Seen(Sight(12345, 1)))
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid4()}/", bond=bond) as client:
        with pytest.raises(WentBackwards, match=r"another cluster answers.*region recover"):
            await client.directory.regions()
        assert (0, None) == await client.histories.read()


class Overtaken:
    """A process bound to a history that is being recovered. What it reads first is answered before the recovery
    rewrites the document and ends, what it reads next is answered after that.
    """

    def __init__(self, client: EtcdClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self._client = client
        self._ended = asyncio.Event()
        self._scan, self._get = client.gateway.scan, client.gateway._get
        monkeypatch.setattr(client.gateway, "scan", self.scan)
        monkeypatch.setattr(client.gateway, "_get", self.get)

    async def begin(self) -> None:
        await self._client.histories.swap(RECOVERING, 0)
        await self._client.allocations_in(RECOVERING).swap(QUOTA, 0, allocation(100, eu=50))

    async def end(self) -> None:
        if not self._ended.is_set():
            recovering = self._client.allocations_in(RECOVERING)
            key = self._client.allocations.key_of(QUOTA)
            (entry,) = (await self._scan(key))[1]
            await recovering.swap(QUOTA, entry.revision, allocation(100, eu=20))
            at, _ = await self._client.histories.read()
            await self._client.histories.swap(History("next"), at)
            self._ended.set()

    async def scan(self, prefix: bytes, **more: Any) -> Any:
        found = await self._scan(prefix, **more)
        await self.end()
        return found

    async def get(self, key: bytes) -> Any:
        if key.endswith(b"history"):
            await self._ended.wait()
            return await self._get(key)
        found = await self._get(key)
        await self.end()
        return found


async def test_what_was_read_before_a_recovery_ended_is_read_again(
    etcd: EmbeddedEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for look in ("read", "list"):
        async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid4()}/", bond=bound("next")) as client:
            world = Overtaken(client, monkeypatch)
            await world.begin()
            if look == "read":
                _, found = await client.allocations.read(QUOTA)
            else:
                _, (stored,) = await client.allocations.list()
                found = stored.allocation
            assert allocation(100, eu=20) == found, look


async def test_an_operators_command_writes_in_the_history_that_it_has_read(etcd: EmbeddedEtcd) -> None:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid4()}/") as client:
        await client.histories.swap(RUNNING, 0)
        revision = await client.allocations.swap(QUOTA, 0, allocation(100))
        assert revision is not None
        at, _ = await client.histories.read()
        await client.histories.swap(HALTED, at)
        assert (revision, allocation(100)) == await client.allocations.read(QUOTA)
        with pytest.raises(HistoryEnded, match="was halted by eu"):
            await client.allocations.swap(QUOTA, revision, allocation(200))


async def test_a_recovery_names_what_it_cannot_read(etcd: EmbeddedEtcd) -> None:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid4()}/") as client:
        await client.histories.swap(RECOVERING, 0)
        await client.gateway.put(client.allocations.key_of(QUOTA), b"?", 0)
        documents = client.allocations_in(RECOVERING)
        with pytest.raises(UnreadableDocument, match=r"acme/vcpu/global in etcd.*delete it"):
            await rebuild_documents(documents, client.directory, {}, HandClock())


async def test_an_operators_command_may_come_before_the_first_history(etcd: EmbeddedEtcd) -> None:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid4()}/") as client:
        assert (0, None) == await client.allocations.read(QUOTA)
        await client.histories.swap(RUNNING, 0)
        assert await client.allocations.swap(QUOTA, 0, allocation(100)) is None
        assert await client.allocations.swap(QUOTA, 0, allocation(100)) is not None


def test_answers_that_overtake_each_other_are_no_step_back() -> None:
    seen = Seen()
    early = seen.sight
    seen.note(early, Sight(1, 20))
    seen.note(early, Sight(1, 10))
    assert (None, Sight(1, 20)) == (seen.broken, seen.sight)
