"""Documents that this release cannot read, and the past of those it can."""

import uuid
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from regionquota.adapters.etcd import EtcdClient, history
from regionquota.adapters.etcd.codec import encode_allocation
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, new_allocation
from regionquota.core.quota import Kind, QuotaKey
from regionquota.embedded import EmbeddedEtcd
from regionquota.errors import EtcdUnavailable, UnreadableDocument
from regionquota.ports import CompactedError, Presence, RegionRecord, Stored

CPU = QuotaKey("acme", "vcpu")
DISK = QuotaKey("acme", "disk")


def plan(amount: int) -> Allocation:
    return new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(amount, 1))


@pytest.fixture
async def client(etcd: EmbeddedEtcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=10) as client:
        yield client


async def spoil(client: EtcdClient, key: QuotaKey) -> None:
    await client.gateway.put(client.allocations.key_of(key), b'{"v":99}', lease=0)


async def versions(client: EtcdClient, key: QuotaKey, count: int) -> list[Stored]:
    made: list[Stored] = []
    for amount in range(1, count + 1):
        revision = await client.allocations.swap(key, made[-1].revision if made else 0, plan(amount))
        assert revision is not None
        made.append(Stored(key, revision, plan(amount)))
    return made


async def test_a_read_of_an_unreadable_document_names_it(client: EtcdClient) -> None:
    await spoil(client, CPU)
    with pytest.raises(UnreadableDocument, match="/acme/vcpu/global"):
        await client.allocations.read(CPU)


async def test_a_list_passes_over_an_unreadable_document_and_says_so_once(client: EtcdClient) -> None:
    await spoil(client, CPU)
    good = await client.allocations.swap(DISK, 0, plan(1))
    with capture_logs() as logs:
        for _ in range(3):
            _, stored = await client.allocations.list()
            assert [good] == [document.revision for document in stored]
    assert [client.allocations.key_of(CPU).decode()] == [line["key"] for line in logs]


async def test_an_unreadable_document_written_again_is_spoken_of_again(client: EtcdClient) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            await spoil(client, CPU)
            await client.allocations.list()
    assert 2 == len(logs)


async def test_a_watch_passes_over_an_unreadable_document(client: EtcdClient) -> None:
    start, _ = await client.allocations.list()
    await spoil(client, CPU)
    good = await client.allocations.swap(DISK, 0, plan(1))
    with capture_logs() as logs:
        changes = await anext(client.allocations.watch(start))
    assert [good] == [document.revision for document in changes]
    assert 1 == len(logs)


async def test_a_key_that_nobody_writes_is_passed_over(client: EtcdClient) -> None:
    await client.gateway.put(client.allocations.key_of(CPU) + b"/more", b"{}", lease=0)
    with capture_logs() as logs:
        _, stored = await client.allocations.list()
    assert [] == list(stored)
    assert "not that of a quota" in logs[0]["why"]


async def test_the_directory_passes_over_unreadable_documents(client: EtcdClient) -> None:
    session = await client.directory.open_session(60)
    await client.directory.swap_region(RegionRecord("eu"), 0)
    await client.directory.announce(session, Presence("eu", "host", "http://host", 1))
    prefix = client.allocations.key_of(CPU).split(b"alloc/")[0]
    for key in (b"regions/us", b"live/us/host", b"demand/us/host/0000"):
        await client.gateway.put(prefix + key, b"{", lease=0)
    with capture_logs() as logs:
        assert ["eu"] == list(await client.directory.regions())
        assert ["eu"] == [presence.region for presence in await client.directory.present()]
        assert [] == list(await client.directory.demand())
    assert 3 == len(logs)


async def test_a_suspension_that_cannot_be_read_still_suspends(client: EtcdClient) -> None:
    prefix = client.allocations.key_of(CPU).split(b"alloc/")[0]
    for tenant, raw in ((b"acme", b"{"), (b"later", b'{"v":99,"since":1,"why":"x"}'), (b"odd", b'{"v":1,"since":-1}')):
        await client.gateway.put(prefix + b"suspended/" + tenant, raw, lease=0)
    with capture_logs() as logs:
        assert {"acme", "later", "odd"} == (await client.directory.suspensions()).keys()
    assert 3 == len(logs)


async def test_a_suspension_of_nobody_that_can_be_named_is_passed_over(client: EtcdClient) -> None:
    prefix = client.allocations.key_of(CPU).split(b"alloc/")[0]
    for tenant in (b"", b"%00", b"%FF", b"not encoded", b"a/b"):
        await client.gateway.put(prefix + b"suspended/" + tenant, b'{"v":1,"since":1,"why":"x"}', lease=0)
    with capture_logs() as logs:
        assert {} == await client.directory.suspensions()
    assert 5 == len(logs)


async def test_a_deleted_document_is_seen_as_deleted(client: EtcdClient) -> None:
    start, _ = await client.allocations.list()
    lease = await client.gateway.grant_lease(60)
    await client.gateway.put(client.allocations.key_of(CPU), encode_allocation(plan(1)), lease)
    await client.gateway.revoke_lease(lease)
    changes = client.allocations.watch(start)
    seen = [stored for _ in range(2) for stored in await anext(changes)]
    assert [(CPU, plan(1)), (CPU, None)] == [(stored.key, stored.allocation) for stored in seen]


# -- history --


async def test_history_has_every_version_in_order(client: EtcdClient) -> None:
    before, _ = await client.allocations.list()
    made = await versions(client, CPU, 5)
    await versions(client, DISK, 3)
    now, _ = await client.allocations.list()
    assert made == await history(client, CPU, before, now)


async def test_history_is_after_one_revision_and_up_to_another(client: EtcdClient) -> None:
    made = await versions(client, CPU, 5)
    assert made[1:4] == await history(client, CPU, made[0].revision, made[3].revision)
    assert [] == await history(client, CPU, made[4].revision, made[4].revision)


async def test_history_of_thousands_of_versions(client: EtcdClient) -> None:
    before, _ = await client.allocations.list()
    made = await versions(client, CPU, 2_500)
    assert made == await history(client, CPU, before, made[-1].revision)


async def test_an_unknown_document_has_no_history(client: EtcdClient) -> None:
    now, _ = await client.allocations.list()
    assert [] == await history(client, CPU, now, now)


async def test_history_before_a_compaction_is_gone(client: EtcdClient) -> None:
    made = await versions(client, CPU, 5)
    await client.gateway.compact(made[3].revision)
    with pytest.raises(CompactedError):
        await history(client, CPU, made[0].revision, made[4].revision)
    with pytest.raises(CompactedError):
        await history(client, CPU, made[0].revision, made[1].revision)
    assert made[3:] == await history(client, CPU, made[2].revision, made[4].revision)


async def test_history_leaves_nothing_out(client: EtcdClient) -> None:
    made = await versions(client, CPU, 1)
    await spoil(client, CPU)
    now, _ = await client.allocations.list()
    with pytest.raises(UnreadableDocument):
        await history(client, CPU, made[0].revision - 1, now)


async def test_history_has_a_deadline(client: EtcdClient) -> None:
    made = await versions(client, CPU, 1)
    with pytest.raises(EtcdUnavailable, match="took longer than 0 s"):
        await history(client, CPU, made[0].revision - 1, made[0].revision, deadline_s=0)


async def test_history_of_the_future_is_refused(client: EtcdClient) -> None:
    now, _ = await client.allocations.list()
    with pytest.raises(EtcdUnavailable, match="future revision"):
        await history(client, CPU, 0, now + 1_000)
