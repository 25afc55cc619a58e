"""Our own processes: killed, stopped in mid-step, and continued when everybody has given them up."""

import asyncio
import time
from typing import Final

from regionquota.chaos.run import Scenario, Stage

DOWN_S: Final = 0.5
BETWEEN_S: Final = 1.0


async def kill_regions(stage: Stage) -> None:
    """Each in turn, so that there is always one that is down, starting or catching up."""
    ends = time.monotonic() + stage.seconds
    sites = list(stage.cluster.sites.values())
    number = 0
    while time.monotonic() < ends:
        server = sites[number % len(sites)].servers[0]
        await stage.cluster.kill(server)
        await asyncio.sleep(DOWN_S)
        await server.start()
        await stage.cluster.ready()
        await asyncio.sleep(BETWEEN_S)
        number += 1


SCENARIOS: Final = (
    Scenario(
        "region-killed",
        "Region servers that are killed under load, again and again, lose and double nothing.",
        kill_regions,
    ),
)
