"""Postgres: crashed, replaced by a copy that lacks the last commits, and by one that must not lack any."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from regionquota.chaos.books import Books, read_books
from regionquota.chaos.check import Failover
from regionquota.chaos.cluster import Shape, Site
from regionquota.chaos.history import Answer, Ask
from regionquota.chaos.run import LIMIT, Scenario, Stage
from regionquota.core.quota import QuotaKey
from regionquota.embedded import EmbeddedPostgres, TcpProxy, copy_of, free_port, promote, reach

DOWN_S: Final = 0.5
BETWEEN_S: Final = 2.0
UNSEEN_S: Final = 3.0
"""How long commits go on that the copy does not see."""
STALL_S: Final = 10.0
"""Longer than a caller, a statement and a batch wait."""
UNCOMPARED_S: Final = 4.0
AFTERWARDS_S: Final = 5.0


async def crash_postgres(stage: Stage) -> None:
    """By immediate shutdown and by SIGKILL of the postmaster, in turns."""
    sites = list(stage.cluster.sites.values())
    number = 0
    while stage.goes_on():
        server = sites[number % len(sites)].postgres
        stage.cluster.mark("Postgres crash")
        await server.kill(hard=number % 4 >= 2)
        await asyncio.sleep(DOWN_S)
        await server.start()
        await stage.cluster.ready()
        await asyncio.sleep(BETWEEN_S)
        number += 1


@dataclass(frozen=True, slots=True)
class Pair:
    site: Site
    standby: EmbeddedPostgres
    link: TcpProxy
    """From the standby to the primary."""


async def pair(stage: Stage, *, synchronous: bool) -> Pair:
    """Give the first region a standby."""
    site, layout = stage.first, stage.cluster.layout
    link = await stage.cluster.proxy(site.postgres.port)
    standby = await copy_of(
        layout.directory("standby"), link.listen_port, port=free_port(), log_path=layout.log("standby")
    )
    stage.cluster.others.append(standby)
    await standby.start()
    await reach(site.postgres, synchronous=synchronous)
    return Pair(site, standby, link)


async def fail_over(stage: Stage, pair: Pair, *, excuses: bool) -> None:
    """Kill the primary and let its servers find the promoted standby at the same address."""
    site, dead = pair.site, pair.site.postgres
    stage.cluster.mark("failover")
    await dead.kill(hard=True)
    at = time.time()
    revision, _ = await stage.operator.allocations.list()
    site.to_postgres.cut(reset=True)
    await promote(pair.standby)
    stage.cluster.others.append(dead)
    site.postgres = pair.standby
    site.to_postgres.target_port = pair.standby.port
    site.to_postgres.heal()
    stage.failovers[site.name] = Failover(at, revision, await _last_words(dead), excuses)


async def _last_words(dead: EmbeddedPostgres) -> Books:
    """What a dead server had committed: it is started once more, where nobody but us can find it."""
    dead.port = free_port()
    await dead.start()
    try:
        return await read_books(dead.dsn)
    finally:
        await dead.stop()


async def promote_behind(stage: Stage) -> None:
    """The copy lacks reserves, settlements, and a decrease whose units another region owns by now; and etcd, which
    knows better, cannot be asked for a while.
    """
    both = await pair(stage, synchronous=False)
    mine, other = both.site.name, next(name for name in stage.cluster.sites if name != both.site.name)
    await stage.favour(mine)
    await stage.until(f"{mine} has most of the limit", lambda: _owns(stage, mine, at_least=LIMIT * 2 // 3))
    both.link.cut()
    await stage.favour(other)
    await stage.until(f"{other} was handed much of it", lambda: _owns(stage, other, at_least=LIMIT // 2))
    await asyncio.sleep(UNSEEN_S)
    both.site.part_from_etcd()
    await fail_over(stage, both, excuses=True)
    stage.callers.busy = mine
    await _nothing_granted(stage, both.site, UNCOMPARED_S)
    both.site.rejoin_etcd()
    await stage.cluster.ready()
    behind = await read_books(both.standby.dsn)
    lost = _decrease(stage.failovers[mine].dead, behind)
    stage.notes.append(f"{lost} units that {mine} had handed over stood in its copy again, until it was compared")
    if lost <= 0:
        stage.findings.append("no decrease was lost with the primary: the scenario shows nothing")
    await stage.favour(None)
    await asyncio.sleep(AFTERWARDS_S)


async def _nothing_granted(stage: Stage, site: Site, seconds: float) -> None:
    began = time.time()
    await asyncio.sleep(seconds)
    granted = [
        op
        for op in stage.callers.history.ops
        if (op.region, op.ask, op.answer) == (site.name, Ask.RESERVE, Answer.DONE) and op.asked_at > began
    ]
    stage.findings += [f"{op} was granted before the copy was compared with etcd" for op in granted]


async def _owns(stage: Stage, region: str, *, at_least: int) -> bool:
    sizes = [await _size(stage, key, region) for key in stage.revisions.keys]
    return any(size >= at_least for size in sizes)


async def _size(stage: Stage, key: QuotaKey, region: str) -> int:
    _, allocation = await stage.operator.allocations.read(key)
    return 0 if allocation is None else allocation.slice_of(region)


def _decrease(dead: Books, copy: Books) -> int:
    """Units that the copy's last row before its promotion held beyond the dead server's."""
    known = set(dead.slices)
    held = {row.key: row.after for row in copy.slices if row in known}
    return sum(max(0, held.get(balance.key, 0) - balance.slice) for balance in dead.balances)


async def promote_synchronous(stage: Stage) -> None:
    """Killed under load, when every answer had waited for the copy."""
    both = await pair(stage, synchronous=True)
    await asyncio.sleep(BETWEEN_S)
    await fail_over(stage, both, excuses=False)
    await stage.cluster.ready()
    await asyncio.sleep(AFTERWARDS_S)


async def promote_stalled(stage: Stage) -> None:
    """The copy is cut off for so long that commits are given up, and asked for again; then the primary dies."""
    both = await pair(stage, synchronous=True)
    await asyncio.sleep(BETWEEN_S)
    stage.cluster.mark("replication cut")
    both.link.cut()
    await asyncio.sleep(STALL_S)
    await fail_over(stage, both, excuses=False)
    await stage.cluster.ready()
    await asyncio.sleep(AFTERWARDS_S)


async def promote_beside(stage: Stage) -> None:
    """The primary lives on, and keeps the connections that it has: one server of the region works with it, the other
    with the copy.
    """
    both = await pair(stage, synchronous=True)
    site, former = both.site, both.site.postgres
    await asyncio.sleep(BETWEEN_S)
    stage.cluster.mark("split brain")
    await promote(both.standby)
    site.to_postgres.target_port = both.standby.port
    revision, _ = await stage.operator.allocations.list()
    stage.failovers[site.name] = Failover(time.time(), revision, await read_books(former.dsn), excuses=False)
    stage.cluster.others.append(former)
    site.postgres = both.standby
    await stage.cluster.kill(site.servers[0])
    await site.servers[0].start()
    await asyncio.sleep(STALL_S)
    await former.kill()
    await stage.cluster.ready()
    await asyncio.sleep(AFTERWARDS_S)


SCENARIOS: Final = (
    Scenario(
        "postgres-crashed",
        "A Postgres that crashes and recovers has everything it acknowledged.",
        crash_postgres,
        Shape(servers=2),
    ),
    Scenario(
        "standby-behind",
        "A promoted copy without the last commits admits nothing that another region owns by now.",
        promote_behind,
        Shape(servers=2),
    ),
    Scenario(
        "standby-synchronous",
        "A promoted synchronous copy lacks nothing that was acknowledged.",
        promote_synchronous,
    ),
    Scenario(
        "standby-stalled",
        "Nothing is acknowledged that a synchronous copy has not seen, however often it is asked for.",
        promote_stalled,
    ),
    Scenario(
        "standby-split",
        "Two primaries at once admit nothing twice, for the one that was replaced waits for its synchronous copy.",
        promote_beside,
        Shape(servers=2),
    ),
)
