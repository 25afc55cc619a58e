"""An etcd that is full, or slow: a region goes on serving, and nothing that was on its way to it is lost."""

import base64
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from etcd3aio.kv import prefix_range_end
from tests.http.harness import Api, Server, running, until

from regionquota.config import AgentConfig, EtcdConfig
from regionquota.core.quota import QuotaKey
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, TcpProxy
from regionquota.errors import EtcdUnavailable

SLOW_S = 0.7
"""One way. A claim reads and then writes: four times that is long after the deadlines of callers here."""
JUNK = b"/junk/"


# -- full --


@pytest.fixture
async def small_etcd(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    server = EmbeddedEtcd(tmp_path / "etcd", unsafe_no_fsync=True, extra=["--quota-backend-bytes", str(2 * 2**20)])
    await server.start()
    yield server
    await server.kill()


async def fill(server: Server) -> None:
    """Until it refuses to write anything (NOSPACE)."""

    async def write() -> None:
        for number in range(100):
            await server.etcd.gateway.put(JUNK + str(number).encode(), bytes(200_000), 0)

    with pytest.raises(EtcdUnavailable, match="database space exceeded"):
        await write()


async def make_room(etcd: EmbeddedEtcd, server: Server) -> None:
    """As an operator does."""
    revision, _ = await server.etcd.allocations.list()
    key, range_end = (base64.b64encode(one).decode() for one in (JUNK, prefix_range_end(JUNK)))
    async with aiohttp.ClientSession(f"http://{etcd.endpoint}") as http:

        async def ask(path: str, body: Any) -> Any:
            async with http.post(f"/v3/{path}", json=body) as answer:
                assert 200 == answer.status, await answer.text()
                return await answer.json()

        await ask("kv/deleterange", {"key": key, "range_end": range_end})
        await ask("kv/compaction", {"revision": revision + 1, "physical": True})
        await ask("maintenance/defragment", {})
        for alarm in (await ask("maintenance/alarm", {"action": "GET"}))["alarms"]:
            await ask("maintenance/alarm", {"action": "DEACTIVATE", **alarm})


async def test_a_full_etcd_stops_no_reserve_from_the_slice_and_moves_nothing(
    postgres: EmbeddedPostgres, small_etcd: EmbeddedEtcd, tenant: str
) -> None:
    agent = AgentConfig(claim_share=0.5, settle_interval_s=0.05, report_interval_s=0.1)
    async with running(postgres, small_etcd, agent=agent) as server:
        api = server.api
        await api.set_limit(tenant, 20)
        await api.settle("commit", await api.hold(tenant))
        await fill(server)
        before = await server.documents()

        held = [await api.reserve(tenant) for _ in range(10)]
        assert [201] * 9 + [429] == [reply.status for reply in held]
        settled = [
            await api.settle(event, held[at].body["reservation_id"]) for at, event in enumerate(("commit", "release"))
        ]
        assert [200, 200] == [reply.status for reply in settled]
        assert 503 == (await api.set_limit(tenant, 30, version=2)).status
        assert 200 == (await api.get("/readyz")).status
        assert before == await server.documents()

        await make_room(small_etcd, server)

        async def has_claimed() -> bool:
            await api.reserve(tenant, 5)
            return bool((await api.usage(tenant))["slice"] > 10)

        await until(has_claimed)


# -- slow --


@pytest.fixture
async def proxy(etcd: EmbeddedEtcd) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy("127.0.0.1", etcd.client_port)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def behind(postgres: EmbeddedPostgres, etcd: EmbeddedEtcd, proxy: TcpProxy) -> AsyncIterator[Server]:
    """A server that reaches etcd through `proxy`."""
    prefix = f"/behind-{time.monotonic_ns()}/"
    sections: dict[str, Any] = {
        "etcd": EtcdConfig(endpoints=(proxy.endpoint,), prefix=prefix, timeout_s=10.0),
        "agent": AgentConfig(claim_share=0.5, settle_interval_s=0.05, report_interval_s=0.1, join_timeout_s=0.3),
    }
    async with running(postgres, etcd, **sections) as server:
        yield server
        proxy.heal()
        proxy.delay(0)


async def slice_is(api: Api, tenant: str, least: int) -> bool:
    reply = await api.get(f"/v1/tenants/{tenant}/quotas")
    return any(quota["slice"] >= least for quota in reply.body["quotas"])


async def test_a_first_use_whose_claim_comes_too_late_is_refused_in_time_and_its_capacity_arrives(
    behind: Server, proxy: TcpProxy, tenant: str
) -> None:
    api = behind.api
    await api.set_limit(tenant, 10)
    proxy.delay(SLOW_S)
    assert 503 == (await api.reserve(tenant)).status
    assert not await slice_is(api, tenant, 1)

    await until(partial(slice_is, api, tenant, 5))
    proxy.cut()
    assert [201] * 5 == [(await api.reserve(tenant)).status for _ in range(5)]
    _, document = await behind.etcd.allocations.read(QuotaKey(tenant, "vcpu"))
    assert document is not None
    assert (5, 5) == (document.slice_of("eu"), document.pool)


async def test_who_waits_for_a_claim_that_comes_too_late_is_denied_in_time_and_the_capacity_arrives(
    behind: Server, proxy: TcpProxy, tenant: str
) -> None:
    api = behind.api
    await api.set_limit(tenant, 100)
    await api.settle("release", await api.hold(tenant))
    proxy.delay(SLOW_S)
    await api.hold(tenant, 50)
    assert 429 == (await api.reserve(tenant, 5, wait_ms=200)).status
    assert 50 == (await api.usage(tenant))["slice"]

    await until(partial(slice_is, api, tenant, 55))
    proxy.cut()
    assert 201 == (await api.reserve(tenant, 5)).status
