"""A region server as `regionquota region` runs it, on a real Postgres and a real etcd, driven over loopback."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeAlias
from unittest.mock import patch
from urllib.parse import quote

import aiohttp
import asyncpg
import msgspec
from yarl import URL

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.postgres.migrate import migrate
from regionquota.bootstrap.region import region_server
from regionquota.config import (
    AgentConfig,
    Config,
    EtcdConfig,
    PostgresConfig,
    RegionConfig,
    ServiceConfig,
    SweeperConfig,
)
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres
from regionquota.ports import Clock
from regionquota.telemetry import Telemetry, configure_metrics

TEMPLATE = "region_template"
TABLES = (
    "quota_counters",
    "closed_counters",
    "reservations",
    "adjustments",
    "meter_readings",
    "suspended_tenants",
    "usage_ledger",
    "slice_ledger",
    "schema_migrations",
)
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    text: str
    body: Any = field(repr=False)

    @property
    def kind(self) -> str:
        return self.headers.get("Content-Type", "")


class Api:
    """A caller of one region server. Paths are sent as they are given: what needs encoding is encoded by the test."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    @property
    def address(self) -> tuple[str, int]:
        url = URL(self.url)
        assert url.host is not None
        assert url.port is not None
        return url.host, url.port

    async def call(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """`body` bytes are sent as they are, an async iterator chunk by chunk, all else as JSON."""
        if body is not None and not isinstance(body, bytes | AsyncIterator):
            body = msgspec.json.encode(body)
        if isinstance(body, bytes):
            body = BytesIO(body)  # aiohttp warns of large bytes
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            raw = await response.read()
            text = raw.decode()
            return Reply(
                response.status,
                response.headers,
                text,
                msgspec.json.decode(raw) if "json" in response.content_type else None,
            )

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, headers=headers)

    async def post(self, path: str, body: Any = None) -> Reply:
        return await self.call("POST", path, body)

    async def set_limit(self, tenant: str, limit: int | str | None, resource: str = "vcpu", **more: Any) -> Reply:
        path = f"/v1/tenants/{quote(tenant, safe='')}/quotas/{quote(resource, safe='')}"
        return await self.call("PUT", path, {"limit": limit, "version": 1} | more)

    async def reserve(self, tenant: str, amount: int = 1, *, request_id: str | None = None, **more: Any) -> Reply:
        body = {"request_id": request_id or uuid.uuid4().hex, "tenant_id": tenant, "resource": "vcpu", "amount": amount}
        return await self.post("/v1/reservations", body | more)

    async def hold(self, tenant: str, amount: int = 1, **more: Any) -> str:
        """The id of a reservation that must be granted."""
        reply = await self.reserve(tenant, amount, **more)
        assert 201 == reply.status, reply
        return str(reply.body["reservation_id"])

    async def settle(self, event: str, reservation: str, **body: Any) -> Reply:
        return await self.post(f"/v1/reservations/{reservation}/{event}", body)

    async def adjust(self, tenant: str, delta: int, *, request_id: str | None = None, **more: Any) -> Reply:
        body = {
            "request_id": request_id or uuid.uuid4().hex,
            "tenant_id": tenant,
            "resource": "vcpu",
            "delta": delta,
            "reason": "a test",
        }
        return await self.post("/v1/adjustments", body | more)

    async def usage(self, tenant: str, resource: str = "vcpu", scope: str = "global") -> dict[str, Any]:
        """One quota as the usage call shows it."""
        reply = await self.get(f"/v1/tenants/{quote(tenant, safe='')}/quotas")
        assert 200 == reply.status, reply
        [quota] = [one for one in reply.body["quotas"] if (one["resource"], one["scope"]) == (resource, scope)]
        return dict(quota)

    async def say(self, raw: bytes, *, within_s: float = 5.0) -> bytes:
        """Bytes over a connection of their own; what came back until the server closed, or nothing came any more."""
        reader, writer = await asyncio.open_connection(*self.address)
        heard = bytearray()
        try:
            writer.write(raw)
            await writer.drain()
            async with asyncio.timeout(within_s):
                while chunk := await reader.read(65_536):
                    heard += chunk
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
        return bytes(heard)


@dataclass(frozen=True)
class Server:
    """What stands behind one `Api`."""

    api: Api
    dsn: str
    prefix: str
    etcd: EtcdClient
    look: "asyncpg.Connection[asyncpg.Record]"

    async def contents(self) -> dict[str, str]:
        """Row count and digest of each table: equal before and after means that nothing was written."""
        parts = [
            f"(SELECT count(*) || md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) FROM {name} t) AS {name}"
            for name in TABLES
        ]
        return dict(await self.look.fetchrow(f"SELECT {', '.join(parts)}") or {})

    async def rows(self, table: str, tenant: str) -> int:
        return int(await self.look.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", tenant))

    async def documents(self) -> list[tuple[Any, int]]:
        _, stored = await self.etcd.allocations.list()
        return sorted((one.key, one.revision) for one in stored)


Start: TypeAlias = Callable[..., Awaitable[Server]]


async def until(check: Callable[[], Awaitable[bool]], *, within_s: float = PATIENCE_S, every_s: float = 0.02) -> None:
    """Wait for something that must come true by itself."""
    async with asyncio.timeout(within_s):
        while not await check():
            await asyncio.sleep(every_s)


async def new_database(postgres: EmbeddedPostgres) -> str:
    """The DSN of a migrated database that nobody else uses."""
    name = f"region_{uuid.uuid4().hex}"
    conn = await asyncpg.connect(postgres.dsn)
    try:
        await conn.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    finally:
        await conn.close()
    return postgres.dsn.rpartition("/")[0] + f"/{name}"


async def make_template(postgres: EmbeddedPostgres) -> None:
    conn = await asyncpg.connect(postgres.dsn)
    try:
        await conn.execute(f"CREATE DATABASE {TEMPLATE}")
    finally:
        await conn.close()
    await migrate(postgres.dsn.rpartition("/")[0] + f"/{TEMPLATE}")


def _server(config: Config, telemetry: Telemetry, clock: Clock | None) -> AbstractAsyncContextManager[str]:
    if clock is None:
        return region_server(config, telemetry)
    return _by_clock(config, telemetry, clock)


@asynccontextmanager
async def _by_clock(config: Config, telemetry: Telemetry, clock: Clock) -> AsyncIterator[str]:
    with patch("regionquota.bootstrap.region.SystemClock", lambda: clock):
        async with region_server(config, telemetry) as url:
            yield url


@asynccontextmanager
async def running(
    on: EmbeddedPostgres,
    beside: EmbeddedEtcd,
    *,
    clock: Clock | None = None,
    like: Server | None = None,
    **sections: Any,
) -> AsyncIterator[Server]:
    """A region server that takes the whole pool at its first claim, sweeps often, and may claim already.

    It goes by `clock` instead of the machine's, and shares the database and etcd of `like`.
    """
    prefix = f"/{uuid.uuid4()}/" if like is None else like.prefix
    dsn = await new_database(on) if like is None else like.dsn
    chosen: dict[str, Any] = {
        "region": RegionConfig(name="eu", port=0),
        "postgres": PostgresConfig(dsn=dsn, pool_size=4),
        "etcd": EtcdConfig(endpoints=(beside.endpoint,), prefix=prefix, timeout_s=2.0),
        "agent": AgentConfig(claim_share=1.0, settle_interval_s=0.05, report_interval_s=0.1),
        "service": ServiceConfig(shutdown_grace_s=0.5),
        "sweeper": SweeperConfig(interval_s=0.05),
    }
    config = Config(**chosen | sections)
    prefix = config.etcd.prefix
    telemetry = configure_metrics("test")
    look = await asyncpg.connect(config.postgres.dsn)
    try:
        async with (
            EtcdClient.connect([beside.endpoint], prefix=prefix, timeout_s=5) as client,
            _server(config, telemetry, clock) as url,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            server = Server(Api(url, session), config.postgres.dsn, prefix, client, look)

            async def may_claim() -> bool:
                return bool(await client.directory.present())

            await until(may_claim)
            yield server
    finally:
        look.terminate()
        telemetry.shutdown()
