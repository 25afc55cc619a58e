"""Claims where a quota has rules for single regions."""

import asyncio

import pytest
from tests.core.builders import allocation
from tests.region import claiming
from tests.region.claiming import QUOTA, World

from regionquota.core.policy import QuotaPolicy
from regionquota.core.region_rules import RegionRules
from regionquota.region.denials import Pool

world = claiming.world


async def ruled(world: World, limit: int, slices: dict[str, int] | None = None, **rules: RegionRules) -> None:
    known = allocation(limit, policy=QuotaPolicy(regions=rules), **(slices or {}))
    revision, _ = await world.etcd.read(QUOTA)
    assert await world.etcd.swap(QUOTA, revision, known)
    await world.follower.relist()


async def test_a_first_use_claims_no_more_than_to_the_cap(world: World) -> None:
    await ruled(world, 100, eu=RegionRules(cap=20))
    await world.claims.join(QUOTA, 60)
    assert 20 == await world.slice()


async def test_a_first_use_leaves_what_others_lack_of_their_floors(world: World) -> None:
    await ruled(world, 100, {"ap": 10}, us=RegionRules(floor=50), ap=RegionRules(floor=20))
    await world.claims.join(QUOTA, 60)
    assert 30 == await world.slice()


async def test_the_floor_of_a_region_that_takes_no_part_holds_nothing_back(world: World) -> None:
    world.absent.add("us")
    await ruled(world, 100, us=RegionRules(floor=50))
    await world.claims.join(QUOTA, 100)
    assert 100 == await world.slice()


async def test_its_own_floor_may_be_claimed_whatever_others_lack(world: World) -> None:
    await ruled(world, 3, **dict.fromkeys(("eu", "us", "ap"), RegionRules(floor=1)))
    await world.claims.join(QUOTA)
    assert 1 == await world.slice()


async def test_a_region_that_owns_all_that_it_may_asks_nobody(world: World) -> None:
    await ruled(world, 100, {"eu": 20}, eu=RegionRules(cap=20))
    reads = world.etcd.reads
    world.claims.run_short(QUOTA, 5, lacking=5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await world.claims.serve()
    assert ([], reads) == (world.cried, world.etcd.reads)


async def test_what_of_the_pool_is_within_reach_is_told(world: World) -> None:
    assert world.claims.pool(QUOTA) is None
    await ruled(world, 100, {"eu": 20}, eu=RegionRules(floor=30, cap=60), us=RegionRules(floor=35))
    assert Pool(80, 40, True, {"us"}) == world.claims.pool(QUOTA)
    world.absent.add("us")
    assert Pool(80, 40, True, frozenset()) == world.claims.pool(QUOTA)
    world.allowed = False
    assert Pool(80, 0, False, frozenset()) == world.claims.pool(QUOTA)


async def test_what_others_lack_of_their_floors_is_cried_for(world: World) -> None:
    await ruled(world, 100, {"eu": 20, "ap": 40}, us=RegionRules(floor=40))
    world.claims.run_short(QUOTA, 5, lacking=5)
    assert [QUOTA] == world.quotas


async def test_a_claim_that_reaches_the_cap_does_not_cry(world: World) -> None:
    await ruled(world, 100, {"eu": 10}, eu=RegionRules(cap=12))
    world.claims.run_short(QUOTA, 5)
    await world.claims.serve()
    assert (12, []) == (await world.slice(), world.cried)
