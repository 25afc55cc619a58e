"""No coordinator, a region that is gone: what is admitted all over is the limit, to the unit."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.end_to_end.support import Deployment, eventually
from tests.processes import stall

from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey

REGIONS = ("eu", "us", "ap")
LIMIT = 60


@asynccontextmanager
async def stalled(deployment: Deployment, process: str) -> AsyncIterator[None]:
    pid = await deployment.pid(process)
    stall(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def document(deployment: Deployment, tenant: str) -> Allocation:
    _, found = await deployment.operator.allocations.read(QuotaKey(tenant, "vcpu"))
    assert found is not None
    return found


async def nobody_leads(deployment: Deployment) -> bool:
    return not (await deployment.operator.directory.leadership()).leaders


async def share(deployment: Deployment, tenant: str) -> None:
    """The limit, and a unit in use in each region."""
    await deployment.set_limit(tenant, LIMIT)
    for region in REGIONS:
        await eventually(lambda region=region: deployment.use(region, tenant, 1))  # type: ignore[misc]


async def admit(deployment: Deployment, tenant: str, expected: int, *regions: str) -> None:
    """Use up what `regions` may admit: `expected` units, and not one more."""
    admitted = 0

    async def all_are_used() -> bool:
        nonlocal admitted
        for region in regions:
            while await deployment.use(region, tenant, 1):
                admitted += 1
        return admitted >= expected

    await eventually(all_are_used, what=f"the use of {expected} units in {', '.join(regions)}")
    await all_are_used()
    assert expected == admitted


async def test_without_a_coordinator_the_regions_admit_the_limit_and_not_one_more(
    deployment: Deployment, tenant: str
) -> None:
    await share(deployment, tenant)
    async with stalled(deployment, "coordinator"):
        await eventually(lambda: nobody_leads(deployment), what="the end of the lease")
        await admit(deployment, tenant, LIMIT - 3, *REGIONS)
    await deployment.is_sound()


async def test_when_the_coordinator_is_back_headroom_moves_again_unaided(deployment: Deployment, tenant: str) -> None:
    await share(deployment, tenant)
    admitted = 0
    async with stalled(deployment, "coordinator"):
        await eventually(lambda: nobody_leads(deployment), what="the end of the lease")
        while await deployment.use("us", tenant, 1):
            admitted += 1
    assert admitted < LIMIT - 3
    await admit(deployment, tenant, LIMIT - 3 - admitted, "us")
    await deployment.is_sound()


async def test_what_a_region_that_is_gone_holds_is_counted_once(deployment: Deployment, tenant: str) -> None:
    await share(deployment, tenant)
    async with stalled(deployment, "region-ap"):

        async def is_left_alone() -> bool:
            moves = (await document(deployment, tenant)).moves
            return await deployment.frozen("ap") and not [move for move in moves if "ap" in (move.source, move.target)]

        await eventually(is_left_alone, what="ap freezing")
        kept = (await document(deployment, tenant)).slice_of("ap")
        await admit(deployment, tenant, LIMIT - kept - 2, "eu", "us")
        assert kept == (await document(deployment, tenant)).slice_of("ap")

    async def thawed() -> bool:
        return not await deployment.frozen("ap")

    await eventually(thawed, what="ap thawing")
    await admit(deployment, tenant, kept - 1, *REGIONS)
    await deployment.is_sound()
