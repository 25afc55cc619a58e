"""A deployment to break: every process a child of ours, and a proxy on every way between them."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp

from regionquota.bootstrap.schema import migrate
from regionquota.chaos.wire import CommitCutter
from regionquota.config import (
    AgentConfig,
    Config,
    CoordinatorConfig,
    DeployedRegion,
    DeploymentConfig,
    EtcdConfig,
    RegionConfig,
    SweeperConfig,
)
from regionquota.core.quota import Region
from regionquota.dev.layout import LOOPBACK, Layout
from regionquota.dev.stack import DAEMON_SECTIONS, Daemon
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, TcpProxy

LIVENESS_TTL_S: Final = 3
LEADER_TTL_S: Final = 2
ETCD_TIMEOUT_S: Final = 1.0
BASE: Final = replace(
    Config(),
    agent=AgentConfig(
        liveness_ttl_s=LIVENESS_TTL_S, report_interval_s=0.5, settle_interval_s=0.2, relist_interval_s=10.0
    ),
    coordinator=CoordinatorConfig(interval_s=0.5, leader_ttl_s=LEADER_TTL_S),
    etcd=EtcdConfig(timeout_s=ETCD_TIMEOUT_S),
    sweeper=SweeperConfig(interval_s=0.5),
)
"""Everything happens within seconds, as in `dev`: a fault that outlasts a lease need not last long."""
ETCD_CLUSTER: Final = ("--heartbeat-interval", "100", "--election-timeout", "1000")


@dataclass(frozen=True, slots=True)
class Shape:
    """`etcd_members` 1 or 3; `etcd_options` go to each. `servers` of each region. `cutting`: see `Site.cutter`."""

    regions: Sequence[Region] = ("eu", "us")
    etcd_members: int = 1
    coordinators: int = 1
    servers: int = 1
    etcd_options: Sequence[str] = ()
    cutting: bool = False


@dataclass(slots=True)
class Site:
    """One region. `to_postgres` and `to_etcd` are the only ways that its servers have to either."""

    name: Region
    postgres: EmbeddedPostgres
    to_postgres: TcpProxy
    to_etcd: list[TcpProxy]
    cutter: CommitCutter | None = None
    """Loses answers to commits on the way to Postgres."""
    servers: list[Daemon] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    @property
    def dsn(self) -> str:
        """As its servers see it, through the proxy."""
        return f"postgresql://postgres@{self.to_postgres.endpoint}/postgres"

    def part_from_etcd(self) -> None:
        for proxy in self.to_etcd:
            proxy.cut()

    def rejoin_etcd(self) -> None:
        for proxy in self.to_etcd:
            proxy.heal()


class Cluster:
    """`faults` counts what was done to it, by name."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.shape = shape
        self.layout = Layout(directory)
        self.sites: dict[Region, Site] = {}
        self.etcd: list[EmbeddedEtcd] = []
        self.coordinators: list[Daemon] = []
        self.others: list[EmbeddedPostgres] = []
        """Standbys, and primaries that were given up."""
        self.faults: Counter[str] = Counter()
        self._undo = AsyncExitStack()

    @property
    def etcd_endpoints(self) -> list[str]:
        return [member.endpoint for member in self.etcd]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._undo:
            self._undo.push_async_callback(self._stop)
            self.etcd = self._members()
            for region in self.shape.regions:
                await self._add_site(region)
            await together(
                *(member.start() for member in self.etcd), *(site.postgres.start() for site in self.sites.values())
            )
            await together(*(migrate(site.postgres.dsn) for site in self.sites.values()))
            self._add_daemons()
            await together(*(daemon.start() for daemon in self._daemons()))
            await self.ready()
            yield

    def _members(self) -> list[EmbeddedEtcd]:
        names = [f"etcd-{number}" for number in range(1, self.shape.etcd_members + 1)]
        peers = {name: self.layout.port(f"{name}-peer") for name in names}
        everybody = ",".join(f"{name}=http://{LOOPBACK}:{port}" for name, port in peers.items())
        several = ETCD_CLUSTER if len(names) > 1 else ()
        return [
            EmbeddedEtcd(
                self.layout.directory(name),
                client_port=self.layout.port(name),
                peer_port=peers[name],
                log_path=self.layout.log(name),
                extra=["--name", name, "--initial-cluster", everybody, *several, *self.shape.etcd_options],
            )
            for name in names
        ]

    async def _add_site(self, region: Region) -> None:
        name = f"postgres-{region}"
        port = self.layout.port(name)
        postgres = EmbeddedPostgres(self.layout.directory(name), port=port, log_path=self.layout.log(name))
        to_etcd = [await self.proxy(member.client_port) for member in self.etcd]
        cutter = CommitCutter() if self.shape.cutting else None
        to_postgres = await self.proxy(port, cutter)
        self.sites[region] = Site(region, postgres, to_postgres, to_etcd, cutter)

    async def proxy(self, port: int, cutter: CommitCutter | None = None) -> TcpProxy:
        """Runs until the cluster ends."""
        proxy = TcpProxy(LOOPBACK, port, inspect=None if cutter is None else cutter.inspector)
        await proxy.start()
        self._undo.push_async_callback(proxy.stop)
        return proxy

    def _add_daemons(self) -> None:
        for site in self.sites.values():
            for number in range(1, self.shape.servers + 1):
                name = f"region-{site.name}-{number}"
                port = self.layout.port(name)
                config = replace(
                    BASE,
                    region=RegionConfig(name=site.name, host=LOOPBACK, port=port),
                    postgres=replace(BASE.postgres, dsn=site.dsn),
                    etcd=replace(BASE.etcd, endpoints=tuple(proxy.endpoint for proxy in site.to_etcd)),
                )
                site.servers.append(self._daemon(name, "region", config, port))
        for number in range(1, self.shape.coordinators + 1):
            name = f"coordinator-{number}"
            port = self.layout.port(name)
            config = replace(
                BASE,
                coordinator=replace(BASE.coordinator, host=LOOPBACK, port=port),
                etcd=replace(BASE.etcd, endpoints=tuple(self.etcd_endpoints)),
            )
            self.coordinators.append(self._daemon(name, "coordinator", config, port))

    def _daemon(self, name: str, command: str, config: Config, port: int) -> Daemon:
        file = self.layout.write(f"{name}.toml", config, DAEMON_SECTIONS)
        return Daemon(name, command, file, self.layout.log(name), f"http://{LOOPBACK}:{port}")

    def _daemons(self) -> list[Daemon]:
        return [*(server for site in self.sites.values() for server in site.servers), *self.coordinators]

    async def ready(self) -> None:
        """Raises `StoreUnavailable` with what a daemon said last if it does not get ready."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            await asyncio.gather(*(daemon.ready(session) for daemon in self._daemons() if daemon.running))

    def deployment(self) -> Config:
        """For an operator, past all proxies but the one to Postgres, which knows where the primary is."""
        regions = {name: DeployedRegion(url=site.urls[0], dsn=site.dsn) for name, site in self.sites.items()}
        etcd = replace(BASE.etcd, endpoints=tuple(self.etcd_endpoints), timeout_s=5.0)
        return replace(BASE, etcd=etcd, deployment=DeploymentConfig(regions=regions))

    def mark(self, fault: str) -> None:
        self.faults[fault] += 1

    async def kill(self, daemon: Daemon) -> None:
        self.mark("kill -9")
        await daemon.kill()

    def pause(self, daemon: Daemon) -> None:
        self.mark("SIGSTOP")
        daemon.send(signal.SIGSTOP)

    async def _stop(self) -> None:
        for daemon in self._daemons():
            daemon.send(signal.SIGCONT)
        await asyncio.gather(*(daemon.stop() for daemon in self._daemons()))
        servers = [*(site.postgres for site in self.sites.values()), *self.others, *self.etcd]
        await asyncio.gather(*(server.stop() for server in servers))


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """As `gather`, but none goes on when one has failed. Raises what that one raises."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
