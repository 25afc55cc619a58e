"""etcd: members lost and back, its history compacted, no room left in it."""

import asyncio
from typing import Final

from regionquota.chaos import etcd_tools
from regionquota.chaos.cluster import ETCD_TIMEOUT_S, LIVENESS_TTL_S, Shape
from regionquota.chaos.run import Scenario, Stage
from regionquota.embedded import EmbeddedEtcd

DOWN_S: Final = 1.5
WITHOUT_S: Final = LIVENESS_TTL_S + 2.0
BETWEEN_S: Final = 2.0
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
)
