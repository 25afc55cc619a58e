"""etcd: members lost and back, its history compacted, no room left in it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from regionquota.bootstrap.clock import SystemClock
from regionquota.chaos import etcd_tools
from regionquota.chaos.cluster import ETCD_TIMEOUT_S, LIVENESS_TTL_S, Shape
from regionquota.chaos.run import Scenario, Stage
from regionquota.core.history import Phase
from regionquota.core.quota import Region
from regionquota.embedded import EmbeddedEtcd
from regionquota.recovery import await_statements, begin_recovery, end_recovery, rebuild_documents

DOWN_S: Final = 1.5
WITHOUT_S: Final = LIVENESS_TTL_S + 2.0
BETWEEN_S: Final = 2.0
MOVING_S: Final = 5.0
RECOVERY_PATIENCE_S: Final = 30.0
ROOM: Final = ("--quota-backend-bytes", str(4 * 1024**2))


async def lose_members(stage: Stage) -> None:
    """The leader, then two of three: nothing moves until there is a majority again."""
    members = stage.cluster.etcd
    while stage.goes_on():
        gone = await _leader(stage)
        await _kill(stage, gone)
        await stage.until("another member leads", lambda: _leads(stage))
        await asyncio.sleep(DOWN_S)
        await gone.start()
        lost = [await _leader(stage), next(one for one in members if one is not gone)]
        lost = lost if lost[0] is not lost[1] else [lost[0], gone]
        for member in lost:
            await _kill(stage, member)
        await asyncio.sleep(WITHOUT_S)
        await asyncio.gather(*(member.start() for member in lost))
        await stage.until("a member leads", lambda: _leads(stage))
        await asyncio.sleep(BETWEEN_S)


async def _kill(stage: Stage, member: EmbeddedEtcd) -> None:
    stage.cluster.mark("etcd kill -9")
    await member.kill()


async def _leads(stage: Stage) -> bool:
    return await etcd_tools.leader(stage.cluster.etcd) is not None


async def _leader(stage: Stage) -> EmbeddedEtcd:
    await stage.until("a member of etcd leads", lambda: _leads(stage))
    found = await etcd_tools.leader(stage.cluster.etcd)
    return stage.cluster.etcd[0] if found is None else found


async def compact_behind(stage: Stage) -> None:
    """A region is cut off while others move on and their history is forgotten: its watch cannot be resumed."""
    *_, cut = stage.cluster.sites.values()
    while stage.goes_on():
        stage.cluster.mark("partition")
        cut.part_from_etcd()
        await asyncio.sleep(WITHOUT_S)
        await stage.revisions.remember(stage.operator)
        stage.cluster.mark("compaction")
        await etcd_tools.compact(stage.cluster.etcd[0], stage.revisions.upto)
        await asyncio.sleep(ETCD_TIMEOUT_S)
        cut.rejoin_etcd()
        await stage.until(f"{cut.name} thaws", lambda: stage.is_frozen(cut.name, wanted=False))
        await asyncio.sleep(BETWEEN_S)


async def no_room(stage: Stage) -> None:
    """Etcd refuses every write until an operator has made room."""
    member = stage.cluster.etcd[0]
    while stage.goes_on():
        stage.cluster.mark("NOSPACE")
        await etcd_tools.fill(member)
        await asyncio.sleep(WITHOUT_S)
        await stage.revisions.remember(stage.operator)
        await etcd_tools.empty(member, stage.revisions.upto)
        await stage.cluster.ready()
        await asyncio.sleep(BETWEEN_S)


async def restore_older(stage: Stage) -> None:
    """Units have moved since the snapshot, and a coordinator that has seen none of it plans by what it says."""
    cluster = stage.cluster
    (coordinator,) = cluster.coordinators
    snapshot = cluster.layout.directory("snapshot")
    await etcd_tools.snapshot(cluster, snapshot)
    await asyncio.sleep(MOVING_S)
    await stage.revisions.remember(stage.operator)
    await cluster.kill(coordinator)
    await etcd_tools.restore(cluster, snapshot)
    await stage.connect()
    await coordinator.start()
    await stage.until("the servers notice that etcd went backwards", lambda: _is_halted(stage))
    halted = await _sizes(stage)
    await asyncio.sleep(WITHOUT_S)
    if halted != await _sizes(stage):
        stage.findings.append("units moved in an etcd that was halted")
    ended = await _recover(stage)
    await stage.revisions.begin_again(stage.operator, ended)
    await cluster.ready()
    await asyncio.sleep(MOVING_S)


async def _recover(stage: Stage) -> float:
    """As `regionquota region recover` does; returns when nothing had moved yet."""
    cluster, operator = stage.cluster, stage.operator
    history = await begin_recovery(operator.histories, "chaos", time.time())
    stated = await await_statements(
        operator.histories, operator.directory, history, list(cluster.sites), patience_s=RECOVERY_PATIENCE_S
    )
    documents = operator.allocations_in(history)
    _, _, wanted = await rebuild_documents(documents, operator.directory, stated, SystemClock())
    ended = time.time()
    over = await end_recovery(operator.histories, operator.directory, history, wanted, stated)
    stage.findings += [f"{key} was held {units} units beyond its limit" for key, units in over.items()]
    return ended


async def _is_halted(stage: Stage) -> bool:
    _, history = await stage.operator.histories.read()
    return history is not None and history.phase is Phase.HALTED


async def _sizes(stage: Stage) -> list[Mapping[Region, int]]:
    _, documents = await stage.operator.allocations.list()
    return [one.allocation.slices for one in documents if one.allocation is not None]


SCENARIOS: Final = (
    Scenario(
        "etcd-members",
        "An etcd that loses its leader, then its majority, moves nothing meanwhile and everything afterwards.",
        lose_members,
        Shape(etcd_members=3),
    ),
    Scenario(
        "etcd-compacted",
        "A region that was cut off lists anew when its watch was overtaken by a compaction.",
        compact_behind,
        Shape(regions=("eu", "us", "ap")),
    ),
    Scenario(
        "etcd-full",
        "Regions go on within their slices while etcd refuses writes (NOSPACE), and recover with it.",
        no_room,
        Shape(etcd_options=ROOM),
        seconds=10.0,
    ),
    Scenario(
        "etcd-restored",
        "An etcd restored from an older snapshot moves nothing until it was recovered from what the regions hold.",
        restore_older,
    ),
)
