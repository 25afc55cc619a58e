"""What every `UrgencyBoard` promises."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from tests.clocks import HandClock

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey
from regionquota.embedded import EmbeddedEtcd
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Directory, Session
from regionquota.urgency_ports import Cry, UrgencyBoard


@dataclass
class Etcd:
    board: UrgencyBoard
    directory: Directory


@pytest.fixture
def memory_board() -> Etcd:
    memory = MemoryCoordination(HandClock())
    return Etcd(memory, memory)


@pytest.fixture
async def etcd_board(etcd: EmbeddedEtcd) -> AsyncIterator[Etcd]:
    async with EtcdClient.connect([etcd.endpoint], prefix=f"/{uuid.uuid4()}/", timeout_s=10) as client:
        yield Etcd(client.urgency, client.directory)


@pytest.fixture(params=["memory", "etcd"])
def etcd_(request: pytest.FixtureRequest) -> Etcd:
    chosen: Etcd = request.getfixturevalue(f"{request.param}_board")
    return chosen


def cry(denied: int, region: str = "eu/1") -> Cry:
    return Cry(region, "host 1", (Demand(QuotaKey("a/b", "vcpu"), 100, 90, 10, 3, 0, denied, 1.5),))


async def heard_when(etcd: Etcd, *cries: Cry, session: Session | None = None) -> list[Cry]:
    """What who listens already hears of them."""
    session = session or await etcd.directory.open_session(30)
    heard: list[Cry] = []
    async with aclosing(etcd.board.cries()) as made:
        listening = asyncio.create_task(anext(made))
        await asyncio.sleep(0.3)  # until it is heard by etcd, too
        for one in cries:
            await etcd.board.cry(session, one)
        async with asyncio.timeout(10):
            heard += await listening
            while len(heard) < len(cries):
                heard += await anext(made)
    return heard


async def test_a_cry_is_heard_as_it_was_made(etcd_: Etcd) -> None:
    assert [cry(5)] == await heard_when(etcd_, cry(5))


async def test_each_is_heard_in_order(etcd_: Etcd) -> None:
    cries = [cry(1), cry(2), cry(3, "us")]
    assert cries == await heard_when(etcd_, *cries)


async def test_what_was_cried_before_is_not_heard(etcd_: Etcd) -> None:
    session = await etcd_.directory.open_session(30)
    await etcd_.board.cry(session, cry(1))
    assert [cry(2)] == await heard_when(etcd_, cry(2), session=session)


async def test_nobody_cries_without_a_session(etcd_: Etcd) -> None:
    session = await etcd_.directory.open_session(30)
    await session.close()
    with pytest.raises(EtcdUnavailable):
        await etcd_.board.cry(session, cry(1))
