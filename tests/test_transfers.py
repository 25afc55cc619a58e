"""Who gave, who received, how long it took, out of the slice ledgers."""

from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import LimitSource, Move, VersionedLimit, grant, new_allocation, request_moves
from regionquota.core.quota import Kind, QuotaKey
from regionquota.region.steps import synchronise
from regionquota.transfers import TransferReader

QUOTA = QuotaKey("acme", "vcpu")


async def test_a_transfer_is_told_from_both_ends_and_only_once() -> None:
    etcd = MemoryCoordination(HandClock())
    stores = {"eu": MemoryRegionStore("eu"), "us": MemoryRegionStore("us")}
    reader = TransferReader(stores)
    allocation = grant(new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1)), {"eu": 60, "us": 40})
    revision = await etcd.swap(QUOTA, 0, allocation)
    assert revision is not None
    for at, (region, store) in enumerate(stores.items()):
        await synchronise(QUOTA, region, etcd, store, 100.0 + at)
    assert [("eu", 60, None), ("us", 40, None)] == [
        (one.region, one.after - one.before, one.took) for one in await reader.following()
    ]

    await etcd.swap(QUOTA, revision, request_moves(allocation, [Move("m", "eu", "us", 25)]))
    await synchronise(QUOTA, "eu", etcd, stores["eu"], 200.0)
    await synchronise(QUOTA, "us", etcd, stores["us"], 200.5)

    gave, received = await reader.following()
    assert ("eu", -25, ["us"]) == (gave.region, gave.after - gave.before, list(gave.towards))
    assert ("us", 25, 0.5) == (received.region, received.after - received.before, received.took)
    assert [] == list(await reader.following())
