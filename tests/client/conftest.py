"""A real region server, and in front of it something that loses answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest
from tests.client.front import Front
from tests.http.conftest import api, postgres, quota, server, start, tenant
from tests.http.harness import Server

from regionquota.client import Client

__all__ = ["api", "postgres", "quota", "server", "start", "tenant"]

Connect: TypeAlias = Callable[..., Awaitable[Client]]


@pytest.fixture
async def front(server: Server) -> AsyncIterator[Front]:
    async with Front.before(server.api.url) as front:
        yield front


@pytest.fixture
async def connect(front: Front) -> AsyncIterator[Connect]:
    """Clients that are closed at the end: of the front, unless other URLs are given."""
    async with AsyncExitStack() as stack:

        async def connected(urls: list[str] | None = None, **how: Any) -> Client:
            return await stack.enter_async_context(Client(urls or front.url, **how))

        yield connected


@pytest.fixture
async def client(connect: Connect) -> Client:
    return await connect()
