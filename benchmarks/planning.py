"""CPU time of one planning round over active quotas in five regions.

Everything but the network, with the collector of cycles set as in a coordinator: reports are summed up, each quota is
planned, what is to change is written in memory.

    .venv/bin/python benchmarks/planning.py [QUOTAS ...]
"""

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Sequence

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.bootstrap.serving import spare_collector
from regionquota.coordinator.carrying_out import Round
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.leading import Led
from regionquota.coordinator.rounds import run_round
from regionquota.core.allocation import LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.ports import RegionRecord

REGIONS = ("eu", "us", "ap", "sa", "af")
SHORT = 0.1
"""So many of the words speak of denials."""
ROUND_S = 10.0
NOW = 1_800_000_000.0
SAID_S_AGO = 3.0


class Clock:
    def now(self) -> float:
        return NOW


async def measure(quotas: int) -> tuple[float, Round]:
    """CPU seconds of one round."""
    rng = random.Random(quotas)  # noqa: S311 - repeatable, not secret
    etcd = MemoryCoordination(Clock())
    keys = [QuotaKey(f"tenant-{number}", "vcpu") for number in range(quotas)]
    first = grant(
        new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(1000, 1)), dict.fromkeys(REGIONS, 180)
    )
    for key in keys:
        await etcd.swap(key, 0, first)
    for region in REGIONS:
        session = await etcd.open_session(60)
        await etcd.report(session, region, region, [_word(key, rng) for key in keys])
    known = Shelves(etcd, relist_interval_s=3600)
    known.follow({0: ALL_BUCKETS})
    while known.complete(0) is None:  # noqa: ASYNC110 - a few turns of the loop
        await asyncio.sleep(0)
    fence = await etcd.lead(await etcd.open_session(60), "one")
    assert fence is not None
    ids = itertools.count()
    began = time.process_time()
    done = await run_round(
        {name: RegionRecord(name) for name in REGIONS}, etcd, etcd, Led(1, {0: fence}), Policy(),
        round_s=ROUND_S, now=NOW, new_id=lambda: f"{next(ids)}", known=known,
    )  # fmt: skip
    took = time.process_time() - began
    await known.stop()
    return took, done


def _word(key: QuotaKey, rng: random.Random) -> Demand:
    denied = 5 if rng.random() < SHORT else 0
    return Demand(
        key, 180, rng.randrange(181), 0, granted=rng.randrange(30), denied=denied, seconds=5.0, at=NOW - SAID_S_AGO
    )


def main(sizes: Sequence[int]) -> None:
    spare_collector()
    print(f"{'quotas':>9} {'CPU s':>8} {'us each':>8} {'changed':>8}")
    for quotas in sizes:
        took, done = asyncio.run(measure(quotas))
        changed = len({key for key, _ in done.moves})
        print(f"{quotas:>9,} {took:>8.2f} {took / quotas * 1e6:>8.1f} {changed:>8,}", flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or (1_000, 10_000, 100_000))
