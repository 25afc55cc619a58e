"""etcd away, hung, full, or back again: every call says so in time."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import stall

from regionquota.adapters.etcd import EtcdClient, history
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, new_allocation
from regionquota.core.quota import Kind, QuotaKey
from regionquota.embedded import EmbeddedEtcd, TcpProxy, free_port
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Fence, Presence, RegionRecord, Session

CPU = QuotaKey("acme", "vcpu")
TIMEOUT_S = 0.4
SILENCE_S = 0.9
SLACK_S = 0.5


def plan(amount: int) -> Allocation:
    return new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(amount, 1))


@contextmanager
def unavailable(within: float) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(EtcdUnavailable):
        yield
    assert time.monotonic() - began < within + SLACK_S


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    server = EmbeddedEtcd(tmp_path / "etcd", unsafe_no_fsync=True)
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
async def proxy(server: EmbeddedEtcd) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy("127.0.0.1", server.client_port)
    await proxy.start()
    yield proxy
    await proxy.stop()


def connect(*endpoints: str) -> EtcdClient:
    return EtcdClient.connect(endpoints, timeout_s=TIMEOUT_S, silence_s=SILENCE_S)


@pytest.fixture
async def client(proxy: TcpProxy) -> AsyncIterator[EtcdClient]:
    async with connect(proxy.endpoint) as client:
        yield client


Call = Callable[[EtcdClient, Session], Awaitable[object]]

CALLS: dict[str, Call] = {
    "read": lambda client, _: client.allocations.read(CPU),
    "swap": lambda client, _: client.allocations.swap(CPU, 0, plan(1)),
    "list": lambda client, _: client.allocations.list(),
    "watch": lambda client, _: anext(client.allocations.watch(0)),
    "history": lambda client, _: history(client, CPU, 0, 1),
    "open_session": lambda client, _: client.directory.open_session(5),
    "keep": lambda _, session: session.keep(),
    "regions": lambda client, _: client.directory.regions(),
    "swap_region": lambda client, _: client.directory.swap_region(RegionRecord("eu"), 0),
    "announce": lambda client, session: client.directory.announce(session, Presence("eu", "i", "http://i", 1)),
    "present": lambda client, _: client.directory.present(),
    "report": lambda client, session: client.directory.report(session, "eu", "i", []),
    "demand": lambda client, _: client.directory.demand(),
    "lead": lambda client, session: client.directory.lead(session, "me"),
    "stand": lambda client, session: client.directory.stand(session, "me"),
    "resign": lambda client, _: client.directory.resign(Fence("leader/coordinator", 1)),
    "leadership": lambda client, _: client.directory.leadership(),
}


async def all_unavailable(client: EtcdClient, session: Session, within: float) -> None:
    async def check(call: Call) -> None:
        with unavailable(within):
            await call(client, session)

    await asyncio.gather(*map(check, CALLS.values()))


async def test_every_call_says_in_time_that_etcd_is_away(server: EmbeddedEtcd, client: EtcdClient) -> None:
    session = await client.directory.open_session(60)
    await server.kill()
    await all_unavailable(client, session, TIMEOUT_S)


async def test_every_call_says_in_time_that_nothing_passes(proxy: TcpProxy, client: EtcdClient) -> None:
    session = await client.directory.open_session(60)
    proxy.cut()
    await all_unavailable(client, session, TIMEOUT_S)


async def test_every_call_says_in_time_that_etcd_hangs(server: EmbeddedEtcd) -> None:
    async with connect(server.endpoint) as client:
        session = await client.directory.open_session(60)
        stall(server.pid)
        await all_unavailable(client, session, TIMEOUT_S)


async def test_a_client_that_never_reached_etcd_says_so_in_time() -> None:
    async with connect(f"127.0.0.1:{free_port()}") as client:
        with unavailable(TIMEOUT_S):
            await client.allocations.read(CPU)


async def test_closing_a_session_while_etcd_is_away_raises_nothing(server: EmbeddedEtcd, client: EtcdClient) -> None:
    session = await client.directory.open_session(60)
    await server.kill()
    await session.close()


# -- watches --


async def started_watch(client: EtcdClient) -> "asyncio.Task[object]":
    changes = client.allocations.watch(0)
    await client.allocations.swap(CPU, 0, plan(1))
    await anext(changes)
    return asyncio.ensure_future(anext(changes))


async def test_a_quiet_watch_stays_while_etcd_is_well(client: EtcdClient) -> None:
    watch = await started_watch(client)
    await asyncio.sleep(3 * SILENCE_S)
    assert not watch.done()
    watch.cancel()


async def test_a_quiet_watch_notices_that_etcd_hangs(server: EmbeddedEtcd, client: EtcdClient) -> None:
    watch = await started_watch(client)
    stall(server.pid)
    with unavailable(SILENCE_S):
        await watch


async def test_a_quiet_watch_notices_that_nothing_passes(proxy: TcpProxy, client: EtcdClient) -> None:
    watch = await started_watch(client)
    proxy.cut()
    with unavailable(SILENCE_S):
        await watch


async def test_a_watch_ends_with_its_server(server: EmbeddedEtcd, client: EtcdClient) -> None:
    watch = await started_watch(client)
    await server.kill()
    with unavailable(SILENCE_S):
        await watch


async def test_a_watch_resumes_by_hand_where_it_broke(proxy: TcpProxy, client: EtcdClient) -> None:
    watch = await started_watch(client)
    revision, _ = await client.allocations.read(CPU)
    proxy.cut(reset=True)
    with unavailable(SILENCE_S):
        await watch
    proxy.heal()
    await recovered(client)
    later = await client.allocations.swap(CPU, revision, plan(2))
    assert later == (await anext(client.allocations.watch(revision)))[0].revision


# -- recovery --


async def recovered(client: EtcdClient) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await client.allocations.list()
            except EtcdUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


async def test_the_same_client_goes_on_after_a_restart(server: EmbeddedEtcd, client: EtcdClient) -> None:
    revision = await client.allocations.swap(CPU, 0, plan(1))
    await server.stop()
    with unavailable(TIMEOUT_S):
        await client.allocations.read(CPU)
    await server.start()
    await recovered(client)
    assert (revision, plan(1)) == await client.allocations.read(CPU)
    assert [revision] == [stored.revision for stored in await anext(client.allocations.watch(0))]


async def test_the_same_client_goes_on_after_a_hang(server: EmbeddedEtcd, client: EtcdClient) -> None:
    revision = await client.allocations.swap(CPU, 0, plan(1))
    stall(server.pid)
    with unavailable(TIMEOUT_S):
        await client.allocations.read(CPU)
    os.kill(server.pid, signal.SIGCONT)
    await recovered(client)
    assert (revision, plan(1)) == await client.allocations.read(CPU)


async def test_a_swap_without_an_answer_is_not_repeated(proxy: TcpProxy, client: EtcdClient) -> None:
    revision = await client.allocations.swap(CPU, 0, plan(1))
    assert revision is not None
    proxy.delay(TIMEOUT_S * 0.8)  # it arrives, the answer does not in time
    with unavailable(TIMEOUT_S):
        await client.allocations.swap(CPU, revision, plan(2))
    proxy.delay(0)
    await recovered(client)
    assert (revision + 1, plan(2)) == await client.allocations.read(CPU)


# -- several endpoints --


async def test_the_call_after_a_failed_one_goes_to_the_next_endpoint(server: EmbeddedEtcd) -> None:
    async with connect(f"127.0.0.1:{free_port()}", server.endpoint) as client:
        with unavailable(TIMEOUT_S):
            await client.allocations.read(CPU)
        assert (0, None) == await client.allocations.read(CPU)


async def test_calls_that_fail_together_move_on_by_one(server: EmbeddedEtcd, proxy: TcpProxy) -> None:
    async with connect(proxy.endpoint, server.endpoint, proxy.endpoint) as client:
        await client.allocations.read(CPU)
        proxy.cut()
        failed = await asyncio.gather(*(client.allocations.read(CPU) for _ in range(5)), return_exceptions=True)
        assert [EtcdUnavailable] * 5 == [type(error) for error in failed]
        assert (0, None) == await client.allocations.read(CPU)


async def test_a_watch_that_broke_is_opened_at_the_next_endpoint(server: EmbeddedEtcd, proxy: TcpProxy) -> None:
    async with connect(proxy.endpoint, server.endpoint) as client:
        watch = await started_watch(client)
        proxy.cut()
        with unavailable(SILENCE_S):
            await watch
        assert 1 == len(await anext(client.allocations.watch(0)))


# -- closing --


async def test_calls_under_way_end_with_the_client(client: EtcdClient) -> None:
    watch = await started_watch(client)
    await client.close()
    with unavailable(0):
        await watch


async def test_a_closed_client_says_so(client: EtcdClient) -> None:
    session = await client.directory.open_session(60)
    await client.close()
    await all_unavailable(client, session, 0)


async def test_a_cancelled_call_is_cancelled(proxy: TcpProxy, client: EtcdClient) -> None:
    await client.allocations.read(CPU)
    proxy.cut()
    reading = asyncio.ensure_future(client.allocations.read(CPU))
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()


# -- a full disk --


async def write_for_ever(client: EtcdClient) -> None:
    revision: int | None = 0
    while revision is not None:
        revision = await client.allocations.swap(CPU, revision, plan(1))


async def test_a_full_etcd_refuses_writes_and_still_answers_reads(tmp_path: Path) -> None:
    server = EmbeddedEtcd(tmp_path / "full", unsafe_no_fsync=True, extra=["--quota-backend-bytes", "65536"])
    await server.start()
    async with EtcdClient.connect([server.endpoint]) as client:
        with pytest.raises(EtcdUnavailable, match=r"RESOURCE_EXHAUSTED.*database space exceeded"):
            await write_for_ever(client)
        revision, allocation = await client.allocations.read(CPU)
        assert plan(1) == allocation
        assert [revision] == [stored.revision for stored in (await client.allocations.list())[1]]
    await server.kill()
