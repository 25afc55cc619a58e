"""The network: slow, half-open, cut between a commit and its answer, partitioned in the middle of a transfer."""

import asyncio
from typing import Final

from regionquota.chaos.cluster import ETCD_TIMEOUT_S, LIVENESS_TTL_S, Shape
from regionquota.chaos.run import KEYS, LIMIT, ChaosError, Scenario, Stage
from regionquota.embedded import TcpProxy

SLOW_S: Final = 0.15
"""One way: a batch takes several round trips."""
TOO_SLOW_S: Final = ETCD_TIMEOUT_S
SPELL_S: Final = 3.0
HALF_OPEN_S: Final = 4.0
BETWEEN_S: Final = 1.5
PARTED_S: Final = LIVENESS_TTL_S + 2.0
CUTS: Final = 1
BETWEEN_CUTS_S: Final = 0.2


async def slow_and_half_open(stage: Stage) -> None:
    """First Postgres, then etcd, of one region after another."""
    sites = list(stage.cluster.sites.values())
    number = 0
    while stage.goes_on():
        site = sites[number % len(sites)]
        for proxies, slow_s in (([site.to_postgres], SLOW_S), (site.to_etcd, TOO_SLOW_S)):
            await _slow(stage, proxies, slow_s)
            await _half_open(stage, proxies)
        number += 1


async def _slow(stage: Stage, proxies: list[TcpProxy], seconds: float) -> None:
    stage.cluster.mark("slow")
    for proxy in proxies:
        proxy.delay(seconds)
    await asyncio.sleep(SPELL_S)
    for proxy in proxies:
        proxy.delay(0.0)


async def _half_open(stage: Stage, proxies: list[TcpProxy]) -> None:
    """Connections stand, new ones are accepted, and nobody says a word."""
    stage.cluster.mark("half-open")
    for proxy in proxies:
        proxy.cut()
    await asyncio.sleep(HALF_OPEN_S)
    for proxy in proxies:
        proxy.heal()
    await asyncio.sleep(BETWEEN_S)


async def cut_commits(stage: Stage) -> None:
    """The statement is carried out; its answer never arrives."""
    cutters = [site.cutter for site in stage.cluster.sites.values() if site.cutter is not None]
    while stage.goes_on():
        for cutter in cutters:
            cutter.armed = CUTS
        await asyncio.sleep(BETWEEN_CUTS_S)
    for cutter in cutters:
        cutter.armed = 0
        stage.cluster.faults["commit cut"] += cutter.cut
    if not stage.cluster.faults["commit cut"]:
        raise ChaosError("no commit was cut")


async def part_in_transfer(stage: Stage) -> None:
    """The donor of a move is cut off before it hears of it, or after; then the limit is cut while it cannot hear."""
    first, *_, donor = stage.cluster.sites.values()
    version = 1
    while stage.goes_on():
        stage.callers.busy = donor.name
        await asyncio.sleep(BETWEEN_S)
        stage.callers.busy = first.name
        await asyncio.sleep(ETCD_TIMEOUT_S / 4)
        stage.cluster.mark("partition")
        donor.part_from_etcd()
        version += 1
        await _set_limits(stage, LIMIT // 2, version)
        stage.callers.busy = None
        await asyncio.sleep(PARTED_S)
        donor.rejoin_etcd()
        version += 1
        await asyncio.sleep(BETWEEN_S)
        await stage.until("the lower limit is collected", lambda: _collected(stage))
        await _set_limits(stage, LIMIT, version)


async def _set_limits(stage: Stage, limit: int, version: int) -> None:
    stage.cluster.mark("limit changed")
    for key in KEYS:
        await stage.set_limit(stage.first, key, limit, version)


async def _collected(stage: Stage) -> bool:
    documents = [await stage.operator.allocations.read(key) for key in KEYS]
    return all(allocation is not None and allocation.pool >= 0 for _, allocation in documents)


SCENARIOS: Final = (
    Scenario(
        "network-slow",
        "Slow and half-open connections to Postgres and etcd cost time, and nothing else.",
        slow_and_half_open,
        seconds=20.0,
    ),
    Scenario(
        "commit-cut",
        "A commit whose answer was lost is looked up, not done again.",
        cut_commits,
        Shape(cutting=True),
    ),
    Scenario(
        "partition-in-transfer",
        "A region that is cut off in the middle of a transfer, or of a lowered limit, spends only what it owns.",
        part_in_transfer,
    ),
)
