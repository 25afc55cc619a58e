"""What a coordinator knows of the documents without reading them in every round."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace
from tests.clocks import HandClock
from tests.core.builders import allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.documents import Documents
from regionquota.core.allocation import Move, Retired
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import QuotaKey
from regionquota.core.region_rules import RegionRules
from regionquota.ports import Stored

ONE, TWO = QuotaKey("acme", "vcpu"), QuotaKey("acme", "disk")


@pytest.fixture
def etcd() -> MemoryCoordination:
    return MemoryCoordination(HandClock())


@pytest.fixture
async def documents(etcd: MemoryCoordination) -> AsyncIterator[Documents]:
    await etcd.swap(ONE, 0, allocation(100, eu=50))
    known = Documents(etcd, relist_interval_s=3600)
    following = asyncio.create_task(known.follow())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    yield known
    following.cancel()


async def heard(documents: Documents, *keys: QuotaKey) -> Sequence[Stored]:
    for _ in range(5):
        await asyncio.sleep(0)
    return sorted(documents.active(keys), key=lambda stored: stored.key)


async def test_what_is_reported_is_active(documents: Documents) -> None:
    assert [] == await heard(documents)
    assert [ONE] == [stored.key for stored in await heard(documents, ONE, TWO)]


async def test_changes_are_heard_of(etcd: MemoryCoordination, documents: Documents) -> None:
    revision, _ = await etcd.read(ONE)
    written = await etcd.swap(ONE, revision, allocation(200, eu=50))
    (stored,) = await heard(documents, ONE)
    assert (written, allocation(200, eu=50)) == (stored.revision, stored.allocation)
    assert await etcd.remove(ONE, written or 0)
    assert [] == await heard(documents, ONE)


@pytest.mark.parametrize(
    "waiting",
    [
        allocation(100, eu=50, moves=[Move("1", "eu", None, 1)]),
        allocation(100, eu=150),
        replace(allocation(100), retired={"ap": Retired(7)}, pool=93),
    ],
)
async def test_what_waits_for_somebody_is_active_until_it_is_done(
    etcd: MemoryCoordination, documents: Documents, waiting: object
) -> None:
    revision = await etcd.swap(TWO, 0, waiting)  # type: ignore[arg-type]
    assert [TWO] == [stored.key for stored in await heard(documents)]
    await etcd.swap(TWO, revision or 0, allocation(100, eu=50))
    assert [] == await heard(documents)


async def test_what_an_evicted_region_has_left_is_active(etcd: MemoryCoordination, documents: Documents) -> None:
    await etcd.swap(TWO, 0, allocation(100, ap=50))
    await heard(documents)
    assert [TWO] == [stored.key for stored in documents.active((), ["ap", "sa"])]
    assert [] == list(documents.active((), ["sa"]))


async def test_what_a_region_lacks_of_a_floor_is_active_if_it_can_be_given(
    etcd: MemoryCoordination, documents: Documents
) -> None:
    rules = QuotaPolicy(regions={"eu": RegionRules(floor=10), "ap": RegionRules(floor=5)})
    revision = await etcd.swap(TWO, 0, allocation(100, policy=rules, eu=9, ap=5))
    assert [] == await heard(documents)
    assert [] == list(documents.active((), able=["ap", "us"]))
    assert [TWO] == [stored.key for stored in documents.active((), able=["eu"])]
    await etcd.swap(TWO, revision or 0, allocation(100, policy=rules, eu=10, ap=5))
    await heard(documents)
    assert [] == list(documents.active((), able=["eu"]))


async def test_an_older_word_changes_nothing(documents: Documents) -> None:
    (known,) = await heard(documents, ONE)
    documents.learn(Stored(ONE, known.revision - 1, allocation(7)))
    assert [known] == await heard(documents, ONE)
