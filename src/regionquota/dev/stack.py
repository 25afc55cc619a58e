"""Starts a development deployment, keeps it running, and leaves nothing behind."""

import asyncio
import os
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import structlog
from aiohttp import web

from regionquota.bootstrap.schema import migrate
from regionquota.bootstrap.serving import site
from regionquota.config import Config
from regionquota.core.quota import Region
from regionquota.dev.layout import (
    COORDINATOR,
    DEPLOYMENT_FILE,
    LOOPBACK,
    Layout,
    Options,
    coordinator_config,
    deployment_config,
    region_config,
)
from regionquota.embedded import Child, EmbeddedEtcd, EmbeddedPostgres, ProxyControl, TcpProxy
from regionquota.errors import ConfigError, RegionQuotaError, StoreUnavailable

_log = structlog.get_logger(__name__)

READY_PATIENCE_S: Final = 30.0
RESTART_PAUSE_S: Final = 0.5
MAX_RESTARTS: Final = 5
RESTART_WINDOW_S: Final = 30.0
"""A process that ended more often than MAX_RESTARTS in this time is given up, and with it the deployment."""
STOP_PATIENCE_S: Final = 15.0
DAEMON_SECTIONS: Final = (
    "region", "postgres", "etcd", "agent", "service", "sweeper", "coordinator", "planner", "telemetry",
)  # fmt: skip


class Daemon:
    """One of our own daemons as a child process."""

    def __init__(self, name: str, command: str, config: Path, log: Path, url: str) -> None:
        self.name = name
        self.url = url
        self._argv = [sys.executable, "-m", "regionquota", command, "--config", str(config)]
        self._log = log
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def start(self) -> None:
        # What the user set for our own configuration is in the file already; everything else passes through.
        env = {name: value for name, value in os.environ.items() if not name.startswith("REGIONQUOTA_")}
        self._child = Child(self.name, self._argv, output=self._log, env=env, death_signal=signal.SIGTERM)
        await self._child.start()

    async def stop(self) -> None:
        if self._child is not None and self._child.running:
            await self._child.stop(STOP_PATIENCE_S)

    async def kill(self) -> None:
        """SIGKILL, as in a crash."""
        if self._child is not None and self._child.running:
            self._child.kill()
            await self._child.wait()

    def send(self, sig: signal.Signals) -> None:
        """No effect when it is not running."""
        if self._child is not None:
            self._child.send(sig)

    async def wait(self) -> int:
        assert self._child is not None
        return await self._child.wait()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Raises `StoreUnavailable` with what it said last if it does not get ready in time."""
        assert self._child is not None
        try:
            async with asyncio.timeout(READY_PATIENCE_S):
                while not await self._is_ready(session):
                    if not self._child.running:
                        raise StoreUnavailable(f"{self.name} ended before it was ready:\n{self._child.last_lines()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StoreUnavailable(f"{self.name} is not ready:\n{self._child.last_lines()}") from None

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False


Part = EmbeddedPostgres | EmbeddedEtcd | Daemon


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class Stack:
    """`running` is the whole life of a deployment; use it as an async context manager."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._layout = Layout(options.data_dir)
        self._parts: dict[str, Part] = {}
        self._wanted: defaultdict[str, asyncio.Event] = defaultdict(_set_event)
        self._keepers: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.dsns: dict[Region, str] = {}
        self.urls: dict[Region, str] = {}
        self.servers: dict[Region, list[str]] = {}
        """All of a region's servers; `urls` names the first."""
        self.etcd: Sequence[str] = ()
        self.proxies: dict[str, TcpProxy] = {}
        """In front of etcd: by region, and the coordinator's if there is a delay."""
        self.control_url = ""
        self.coordinator_url = ""
        self.deployment_file = self._layout.data_dir / DEPLOYMENT_FILE

    @property
    def failed(self) -> Awaitable[str]:
        """Resolves with the reason when something could not be kept running."""
        return asyncio.shield(self._failed)

    @asynccontextmanager
    async def running(self, say: Callable[[str], None]) -> AsyncIterator[None]:
        """Start everything; `say` hears what is under way."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._stop_parts)
            say("starting Postgres and etcd")
            await self._start_servers()
            say("migrating")
            await asyncio.gather(*(self._migrate(region) for region in self._options.regions))
            await self._start_proxies(undo)
            say("starting region servers and the coordinator")
            await self._start_daemons()
            self._keepers = [asyncio.create_task(self._keep(name)) for name in self._parts]
            yield

    async def _start_servers(self) -> None:
        layout, options = self._layout, self._options
        for region in options.regions:
            named = options.postgres.get(region)
            if named is not None and named.dsn is not None:
                self.dsns[region] = named.dsn
                continue
            name = f"postgres-{region}"
            server = EmbeddedPostgres(
                layout.directory(name), port=layout.port(name), settings=options.settings, log_path=layout.log(name)
            )
            self._parts[name] = server
            self.dsns[region] = server.dsn
        self.etcd = options.etcd
        if not self.etcd:
            etcd = EmbeddedEtcd(
                layout.directory("etcd"),
                client_port=layout.port("etcd"),
                peer_port=layout.port("etcd-peer"),
                log_path=layout.log("etcd"),
                auto_compaction_retention="1h",
            )
            self._parts["etcd"] = etcd
            self.etcd = [etcd.endpoint]
        await asyncio.gather(*(part.start() for part in self._parts.values()))

    async def _migrate(self, region: Region) -> None:
        named = self._options.postgres.get(region)
        await migrate(self.dsns[region], password=None if named is None else named.secret())

    async def _start_proxies(self, undo: AsyncExitStack) -> None:
        """One in front of etcd for each region, so that a partition needs no switch inside the product."""
        host, _, port = self.etcd[0].rpartition(":")
        rtt_ms = self._options.etcd_rtt_ms
        for name in (*self._options.regions, *([COORDINATOR] if rtt_ms else [])):
            proxy = TcpProxy(host, int(port), listen_port=self._layout.port(f"proxy-{name}"))
            proxy.delay(rtt_ms / 2000)
            await proxy.start()
            undo.push_async_callback(proxy.stop)
            self.proxies[name] = proxy
        control = ProxyControl(self.proxies, stop_etcd=self._stop_etcd, start_etcd=self._start_etcd).app()
        control.router.add_get("/processes", self._list_processes)
        control.router.add_post("/coordinator/{what:stop|start}", self._steer_coordinator)
        self.control_url = await undo.enter_async_context(
            site(control, LOOPBACK, self._layout.port("control"), grace_s=0.5)
        )

    async def _start_daemons(self) -> None:
        options, layout = self._options, self._layout
        for region in options.regions:
            etcd = self.proxies[region].endpoint
            for number in range(1, options.servers + 1):
                name = f"region-{region}" if number == 1 else f"region-{region}-{number}"
                port = layout.port(name)
                config = region_config(options, region, dsn=self.dsns[region], etcd=etcd, port=port)
                self._add_daemon(name, "region", config, port)
                self.servers.setdefault(region, []).append(f"http://{LOOPBACK}:{port}")
            self.urls[region] = self.servers[region][0]
        port = layout.port(COORDINATOR)
        etcds = [self.proxies[COORDINATOR].endpoint] if COORDINATOR in self.proxies else self.etcd
        self._add_daemon(COORDINATOR, "coordinator", coordinator_config(options, etcd=etcds, port=port), port)
        self.coordinator_url = f"http://{LOOPBACK}:{port}"
        deployment = deployment_config(
            options, urls=self.urls, dsns=self.dsns, etcd=self.etcd, control=self.control_url
        )
        layout.write(DEPLOYMENT_FILE, deployment, ("etcd", "deployment"))
        daemons = [part for part in self._parts.values() if isinstance(part, Daemon)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            await asyncio.gather(*(daemon.ready(session) for daemon in daemons))

    def _add_daemon(self, name: str, command: str, config: Config, port: int) -> None:
        file = self._layout.write(f"{name}.toml", config, DAEMON_SECTIONS)
        self._parts[name] = Daemon(name, command, file, self._layout.log(name), f"http://{LOOPBACK}:{port}")

    async def _keep(self, name: str) -> None:
        """Start a part again when it ends by itself."""
        ended: deque[float] = deque(maxlen=MAX_RESTARTS)
        while True:
            code = await self._parts[name].wait()
            await self._wanted[name].wait()
            if self._parts[name].running:
                continue
            ended.append(time.monotonic())
            if len(ended) == MAX_RESTARTS and ended[-1] - ended[0] < RESTART_WINDOW_S:
                self._give_up(f"{name} ended {MAX_RESTARTS} times in a row: see {self._layout.log(name)}")
                return
            _log.warning("ended, starting it again", process=name, exit_code=code)
            await asyncio.sleep(RESTART_PAUSE_S)
            try:
                await self._parts[name].start()
            except RegionQuotaError as error:
                self._give_up(str(error))
                return

    def _give_up(self, why: str) -> None:
        if not self._failed.done():
            self._failed.set_result(why)

    async def _stop_etcd(self) -> None:
        etcd = self._embedded_etcd()
        self._wanted["etcd"].clear()
        await etcd.stop()

    async def _start_etcd(self) -> None:
        etcd = self._embedded_etcd()
        if not etcd.running:
            await etcd.start()
        self._wanted["etcd"].set()

    def _embedded_etcd(self) -> EmbeddedEtcd:
        etcd = self._parts.get("etcd")
        if not isinstance(etcd, EmbeddedEtcd):
            raise ConfigError("etcd was not started here, so it cannot be stopped here")
        return etcd

    async def _list_processes(self, _request: web.Request) -> web.Response:
        return web.json_response({name: part.pid for name, part in self._parts.items()})

    async def _steer_coordinator(self, request: web.Request) -> web.Response:
        """So that a replay can be compared with itself without a coordinator."""
        part, wanted = self._parts["coordinator"], self._wanted["coordinator"]
        if request.match_info["what"] == "stop":
            wanted.clear()
            await part.stop()
        else:
            if not part.running:
                await part.start()
            wanted.set()
        return web.json_response({"running": part.running})

    async def _stop_parts(self) -> None:
        """Daemons first, so that they finish what they accepted while their databases still answer."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        daemons = [part for part in self._parts.values() if isinstance(part, Daemon)]
        servers = [part for part in self._parts.values() if not isinstance(part, Daemon)]
        await asyncio.gather(*(daemon.stop() for daemon in daemons))
        await asyncio.gather(*(server.stop() for server in servers))

    def addresses(self) -> Mapping[str, str]:
        """What a person wants to know, by name."""
        found = {f"region {name}": url for name, url in self.urls.items()}
        found["coordinator"] = self.coordinator_url
        found |= {f"Postgres {name}": dsn for name, dsn in self.dsns.items()}
        found["etcd"] = ", ".join(self.etcd)
        found["faults"] = self.control_url
        return found
