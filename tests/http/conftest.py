"""One Postgres and one etcd for all; a region server for each module, and more where a test asks for them."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.http.harness import Api, Server, Start, make_template, running

from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        await make_template(server)
        yield server
        await server.kill()  # nobody needs its data any more


@pytest.fixture(scope="module")
async def server(postgres: EmbeddedPostgres, etcd: EmbeddedEtcd) -> AsyncIterator[Server]:
    async with running(postgres, etcd) as started:
        yield started


@pytest.fixture
def api(server: Server) -> Api:
    return server.api


@pytest.fixture
async def start(postgres: EmbeddedPostgres, etcd: EmbeddedEtcd) -> AsyncIterator[Start]:
    """Starts one more server, with other sections of the configuration."""
    async with AsyncExitStack() as stack:

        async def started(**sections: Any) -> Server:
            return await stack.enter_async_context(running(postgres, etcd, **sections))

        yield started


@pytest.fixture
def tenant() -> str:
    """Nobody else's."""
    return f"tenant-{uuid.uuid4().hex}"


@pytest.fixture
async def quota(api: Api, tenant: str) -> str:
    """A tenant whose vcpu limit is 10, all of which this region holds."""
    assert 200 == (await api.set_limit(tenant, 10)).status
    assert 200 == (await api.settle("release", await api.hold(tenant))).status
    return tenant
