"""Everything at once: faults of all kinds, chosen at random, two at a time."""

import asyncio
import random
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from regionquota.chaos import etcd_tools
from regionquota.chaos.cluster import LEADER_TTL_S, LIVENESS_TTL_S, Shape, Site, together
from regionquota.chaos.run import KEYS, LIMIT, Scenario, Stage
from regionquota.errors import Unavailable

AT_ONCE: Final = 2
BRIEF_S: Final = (0.1, 1.0)
LONG_S: Final = (1.0, LIVENESS_TTL_S + 2.0)
PAUSE_S: Final = 0.5
SLOWEST_S: Final = 0.3
CUTS: Final = 20

Fault: TypeAlias = Callable[["_Storm", Site], Awaitable[None]]


class _Storm:
    """No two faults are at one process at a time: what is killed is started by whoever killed it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.random = random.Random(stage.seed)  # noqa: S311 - which fault comes next is no secret
        self.locks: defaultdict[object, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.version = 1

    async def blow(self) -> None:
        sites = list(self.stage.cluster.sites.values())
        while self.stage.goes_on():
            await self.random.choice(FAULTS)(self, self.random.choice(sites))
            await asyncio.sleep(PAUSE_S)

    async def wait(self, bounds: tuple[float, float]) -> None:
        await asyncio.sleep(self.random.uniform(*bounds))


async def _kill_server(storm: _Storm, site: Site) -> None:
    server = storm.random.choice(site.servers)
    async with storm.locks[server]:
        await storm.stage.cluster.kill(server)
        await storm.wait(BRIEF_S)
        await server.start()


async def _stop_server(storm: _Storm, site: Site) -> None:
    server = storm.random.choice(site.servers)
    async with storm.locks[server]:
        storm.stage.cluster.pause(server)
        await storm.wait(LONG_S)
        server.send(signal.SIGCONT)


async def _lose_coordinator(storm: _Storm, _site: Site) -> None:
    coordinator = storm.random.choice(storm.stage.cluster.coordinators)
    async with storm.locks[coordinator]:
        if storm.random.random() < 0.5:
            storm.stage.cluster.pause(coordinator)
            await asyncio.sleep(LEADER_TTL_S + 1.0)
            coordinator.send(signal.SIGCONT)
        else:
            await storm.stage.cluster.kill(coordinator)
            await storm.wait(BRIEF_S)
            await coordinator.start()


async def _crash_postgres(storm: _Storm, site: Site) -> None:
    async with storm.locks[site.postgres]:
        storm.stage.cluster.mark("Postgres crash")
        await site.postgres.kill(hard=storm.random.random() < 0.5)
        await storm.wait(BRIEF_S)
        await site.postgres.start()


async def _crash_etcd(storm: _Storm, _site: Site) -> None:
    (member,) = storm.stage.cluster.etcd
    async with storm.locks[member]:
        storm.stage.cluster.mark("etcd kill -9")
        await member.kill()
        await storm.wait(BRIEF_S)
        await member.start()


async def _compact_etcd(storm: _Storm, _site: Site) -> None:
    (member,) = storm.stage.cluster.etcd
    async with storm.locks[member]:
        try:
            await storm.stage.revisions.remember(storm.stage.operator)
            await etcd_tools.compact(member, storm.stage.revisions.upto)
        except Unavailable:
            return
        storm.stage.cluster.mark("compaction")


async def _part(storm: _Storm, site: Site) -> None:
    async with storm.locks[id(site.to_etcd)]:
        storm.stage.cluster.mark("partition")
        for proxy in site.to_etcd:
            proxy.cut(reset=storm.random.random() < 0.3)
        await storm.wait(LONG_S)
        site.rejoin_etcd()


async def _slow(storm: _Storm, site: Site) -> None:
    proxies = [site.to_postgres] if storm.random.random() < 0.5 else site.to_etcd
    storm.stage.cluster.mark("slow")
    for proxy in proxies:
        proxy.delay(storm.random.uniform(0.0, SLOWEST_S))
    await storm.wait(LONG_S)
    for proxy in proxies:
        proxy.delay(0.0)


async def _cut_commits(storm: _Storm, site: Site) -> None:
    assert site.cutter is not None
    before = site.cutter.cut
    site.cutter.armed = CUTS
    await storm.wait(BRIEF_S)
    site.cutter.armed = 0
    storm.stage.cluster.faults["commit cut"] += site.cutter.cut - before


async def _change_limit(storm: _Storm, site: Site) -> None:
    async with storm.locks["limit"]:
        storm.version += 1
        try:
            for key in KEYS:
                await storm.stage.set_limit(site, key, storm.random.randint(LIMIT // 2, LIMIT), storm.version)
        except Unavailable:
            return
        storm.stage.cluster.mark("limit changed")


FAULTS: Final[tuple[Fault, ...]] = (
    _kill_server, _stop_server, _lose_coordinator, _crash_postgres, _crash_etcd, _compact_etcd, _part, _slow,
    _cut_commits, _change_limit,
)  # fmt: skip


async def storm(stage: Stage) -> None:
    """Afterwards everything runs, and nothing is in the way."""
    weather = _Storm(stage)
    await together(*(weather.blow() for _ in range(AT_ONCE)))
    await stage.cluster.ready()


SCENARIOS: Final = (
    Scenario(
        "storm",
        "Faults of all kinds, two at a time and at random, two servers in each region, while limits change.",
        storm,
        Shape(coordinators=2, servers=2, cutting=True),
        seconds=30.0,
    ),
)
