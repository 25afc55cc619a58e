"""Alerts of real coordinators, on a real etcd: one leads, is killed, and another takes over."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.adapters.test_webhook import Receiver, receiving
from tests.core.builders import QUOTA, allocation
from tests.end_to_end.support import PROGRAM

from regionquota.adapters.etcd import EtcdClient
from regionquota.core.demand import Demand
from regionquota.core.groups import group_of
from regionquota.embedded import EmbeddedEtcd

CONFIG = """
[coordinator]
port = 0
interval_s = 0.1
leader_ttl_s = 2

[etcd]
endpoints = ["{endpoint}"]
prefix = "{prefix}"
"""


async def until(look: Callable[[], Awaitable[bool]], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not await look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.fixture
async def client(etcd: EmbeddedEtcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=5) as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving(Receiver()) as receiver:
        yield receiver


@asynccontextmanager
async def coordinator(file: Path, receiver: Receiver) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {**os.environ, "REGIONQUOTA_ALERTS__WEBHOOK_URL": receiver.url, "REGIONQUOTA_ALERTS__THRESHOLDS": "80, 100"}
    child = await asyncio.create_subprocess_exec(*PROGRAM, "coordinator", "--config", str(file), env=env)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(child.wait(), 20)


async def leads_another(client: EtcdClient, process: asyncio.subprocess.Process) -> bool:
    leader = (await client.directory.leadership()).leaders.get(group_of(QUOTA))
    return leader is not None and not leader.name.endswith(f"-{process.pid}")


async def test_a_crossing_is_posted_once_although_the_leader_is_killed(
    etcd: EmbeddedEtcd, client: EtcdClient, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(CONFIG.format(endpoint=etcd.endpoint, prefix=client.directory._keys.prefix))
    await client.allocations.swap(QUOTA, 0, allocation(100, eu=100))
    session = await client.directory.open_session(60)

    async def use(units: int) -> None:
        await client.directory.report(session, "eu", "one", [Demand(QUOTA, 100, units, 0)])

    async def is_heard(count: int) -> bool:
        return len(receiver.heard) >= count

    await use(85)
    async with coordinator(file, receiver) as first:
        await until(lambda: is_heard(1))
        async with coordinator(file, receiver):
            first.kill()
            await until(lambda: leads_another(client, first))
            await asyncio.sleep(1)  # some rounds
            assert not await is_heard(2)
            await use(100)
            await until(lambda: is_heard(2))

    told = [event for _, event in receiver.heard]
    assert [(80, 85), (100, 100)] == [(event["threshold_percent"], event["used"]) for event in told]
    assert {"usage_crossed"} == {event["event"] for event in told}
    assert [QUOTA.tenant, QUOTA.resource, 100, None] == [
        told[0][name] for name in ("tenant_id", "resource", "limit", "period_end")
    ]
