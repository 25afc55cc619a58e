"""Our own processes: killed, stopped in mid-step, and continued when everybody has given them up."""

import asyncio
import signal
from typing import Final

from regionquota.chaos.cluster import LEADER_TTL_S, LIVENESS_TTL_S, Shape
from regionquota.chaos.run import ChaosError, Scenario, Stage
from regionquota.core.quota import Region
from regionquota.dev.stack import Daemon

DOWN_S: Final = 0.5
TRIP_S: Final = 0.02
"""To Postgres, one way: so that most kills find something under way."""
BETWEEN_S: Final = 1.0
PAST_LEASE_S: Final = 2.0
"""Beyond the lease of whoever is stopped: by then others have noticed."""


async def kill_regions(stage: Stage) -> None:
    """Each in turn, so that there is always one that is down, starting or catching up."""
    sites = list(stage.cluster.sites.values())
    for site in sites:
        site.to_postgres.delay(TRIP_S)
    number = 0
    while stage.goes_on():
        server = sites[number % len(sites)].servers[0]
        await stage.cluster.kill(server)
        await asyncio.sleep(DOWN_S)
        await server.start()
        await stage.cluster.ready()
        await asyncio.sleep(BETWEEN_S)
        number += 1


async def stop_regions(stage: Stage) -> None:
    """One of two servers, whose neighbour goes on; then both, so that the region is frozen and thaws again."""
    first, *_, last = stage.cluster.sites.values()
    while stage.goes_on():
        await _stopped(stage, [first.servers[0]], LIVENESS_TTL_S + PAST_LEASE_S)
        await _stopped(stage, last.servers, LIVENESS_TTL_S + PAST_LEASE_S, frozen=last.name)
        await stage.until(f"{last.name} thaws", lambda: stage.is_frozen(last.name, wanted=False))


async def _stopped(stage: Stage, servers: list[Daemon], seconds: float, *, frozen: Region | None = None) -> None:
    for server in servers:
        stage.cluster.pause(server)
    try:
        await asyncio.sleep(seconds)
        if frozen is not None:
            await stage.until(f"{frozen} is frozen", lambda: stage.is_frozen(frozen))
    finally:
        for server in servers:
            server.send(signal.SIGCONT)
    await asyncio.sleep(BETWEEN_S)


async def lose_leaders(stage: Stage) -> None:
    """The coordinator that watches over regions is killed, then the next one stopped past its lease and continued."""
    while stage.goes_on():
        leader, _ = await _leader(stage)
        await stage.cluster.kill(leader)
        await _another(stage, leader)
        await leader.start()
        leader, since = await _leader(stage)
        stage.cluster.pause(leader)
        try:
            await _another(stage, leader)
            await asyncio.sleep(BETWEEN_S)
        finally:
            leader.send(signal.SIGCONT)
        await asyncio.sleep(LEADER_TTL_S)
        if await _leader(stage) == (leader, since):
            stage.findings.append("a coordinator that was stopped past its lease leads on without an election")
        await stage.cluster.ready()


async def _leader(stage: Stage) -> tuple[Daemon, int]:
    """Of the first group of buckets, and since which revision of etcd."""
    found: list[tuple[Daemon, int]] = []

    async def look() -> bool:
        first = (await stage.operator.directory.leadership()).leaders.get(0)
        found[:] = [
            (one, first.since)
            for one in stage.cluster.coordinators
            if first is not None and first.name.endswith(f"-{one.pid}")
        ]
        return bool(found)

    await stage.until("a coordinator leads", look)
    return found[0]


async def _another(stage: Stage, gone: Daemon) -> None:
    async def look() -> bool:
        leader, _ = await _leader(stage)
        return leader is not gone

    if len(stage.cluster.coordinators) < 2:
        raise ChaosError("there is no other coordinator")
    await stage.until("another coordinator takes over", look)


SCENARIOS: Final = (
    Scenario(
        "region-killed",
        "Region servers that are killed under load, again and again, lose and double nothing.",
        kill_regions,
    ),
    Scenario(
        "region-stopped",
        "A region server that stands still past its lease, and its holds' time, does no harm when it goes on.",
        stop_regions,
        Shape(servers=2),
        seconds=12.0,
    ),
    Scenario(
        "coordinator-lost",
        "A coordinator that is killed or stands still is replaced, and is fenced when it goes on.",
        lose_leaders,
        Shape(coordinators=2),
    ),
)
