import asyncio

import pytest

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.quota import GLOBAL_SCOPE, Kind, QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.limits import put_limit
from regionquota.simulator import virtual
from regionquota.simulator.network import FarEtcd, Link
from regionquota.simulator.server import VirtualClock

KEY = QuotaKey("tenant", "units", GLOBAL_SCOPE)


def far(link: Link) -> tuple[MemoryCoordination, FarEtcd]:
    etcd = MemoryCoordination(VirtualClock())
    return etcd, FarEtcd(etcd, link)


async def put(etcd: MemoryCoordination, version: int) -> None:
    await put_limit(etcd, KEY, Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(10 * version, version))


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_call_takes_a_round_trip_and_is_counted_if_it_writes() -> None:
    async def calls() -> None:
        link = Link(0.1, timeout_s=2)
        etcd, seen = far(link)
        await put(etcd, 1)
        revision, allocation = await seen.read(KEY)
        assert 0.1 == pytest.approx(now())
        assert allocation is not None
        assert await seen.swap(KEY, revision, allocation) is not None
        assert 0.2 == pytest.approx(now())
        assert 1 == link.writes

    virtual.run(calls())


def test_a_call_over_a_link_that_is_cut_fails_after_its_timeout() -> None:
    async def calls() -> None:
        link = Link(0.1, timeout_s=2)
        _, seen = far(link)
        link.cut()
        with pytest.raises(EtcdUnavailable):
            await seen.list()
        assert 2 == pytest.approx(now())
        link.restore()
        await seen.list()

    virtual.run(calls())


def test_an_answer_can_be_lost_after_the_write_was_made() -> None:
    async def calls() -> None:
        link = Link(0.1, timeout_s=2)
        etcd, seen = far(link)
        await put(etcd, 1)
        revision, allocation = await etcd.read(KEY)
        assert allocation is not None
        writing = asyncio.create_task(seen.swap(KEY, revision, allocation))
        await asyncio.sleep(0.07)
        link.cut()
        with pytest.raises(EtcdUnavailable):
            await writing
        assert (await etcd.read(KEY))[0] > revision

    virtual.run(calls())


def test_changes_are_heard_of_half_a_round_trip_later_however_many_are_under_way() -> None:
    async def watches() -> None:
        etcd, seen = far(Link(0.1, timeout_s=2))
        heard: list[float] = []

        async def listen() -> None:
            async for batch in seen.watch(0):
                heard.extend(now() for _ in batch)

        listening = asyncio.create_task(listen())
        for version in range(1, 6):
            await asyncio.sleep(0.01)
            await put(etcd, version)
        await asyncio.sleep(1)
        listening.cancel()
        assert [pytest.approx(0.06 + 0.01 * number) for number in range(5)] == heard

    virtual.run(watches())


def test_a_watch_over_a_link_that_is_cut_ends_at_the_next_change() -> None:
    async def watches() -> None:
        link = Link(0.1, timeout_s=2)
        etcd, seen = far(link)

        async def listen() -> None:
            async for _ in seen.watch(0):
                pass

        listening = asyncio.create_task(listen())
        await asyncio.sleep(1)
        link.cut()
        await put(etcd, 1)
        with pytest.raises(EtcdUnavailable):
            await listening

    virtual.run(watches())
