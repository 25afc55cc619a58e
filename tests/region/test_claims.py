"""Claims and first use, on memory adapters."""

import asyncio
import gc

import pytest
from tests.region import claiming
from tests.region.claiming import QUOTA, World

from regionquota.core.allocation import LimitSource, Move, VersionedLimit, grant, new_allocation, request_moves
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import EtcdUnavailable, WentBackwards
from regionquota.ports import Stored
from regionquota.region.claims import PARALLEL, UNHEARD_S, UNKNOWN_FOR_S

world = claiming.world


async def test_the_first_use_of_a_quota_claims_a_share_of_the_pool(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    assert 50 == await world.slice()


async def test_a_claim_that_the_watch_overtook_is_made_again(world: World) -> None:
    """The newest document is carried out here before the loser of the race looks: what it read is too old for that."""
    await world.set_limit(100)
    _, found = await world.etcd.read(QUOTA)
    assert found is not None
    world.etcd.before_swap.append(grant(found, {"us": 60}))

    async def watch() -> None:
        revision, allocation = await world.etcd.read(QUOTA)
        await world.store.apply(QUOTA, allocation, revision, world.clock.now())

    world.etcd.on_lost = watch
    holding = await world.claims.join(QUOTA)
    assert (holding is not None and holding.slice, await world.slice()) == (20, 20)


async def test_a_claim_that_loses_to_twenty_others_is_made_all_the_same(world: World) -> None:
    await world.set_limit(100)
    _, found = await world.etcd.read(QUOTA)
    assert found is not None
    world.etcd.before_swap = [grant(found, {"us": units}) for units in range(20, 0, -1)]
    holding = await world.claims.join(QUOTA)
    assert (40, 40) == (holding and holding.slice, await world.slice())


async def test_an_odd_pool_of_one_can_be_claimed(world: World) -> None:
    await world.set_limit(1)
    await world.claims.join(QUOTA)
    assert 1 == await world.slice()


async def test_with_an_empty_pool_a_region_joins_with_nothing(world: World) -> None:
    await world.set_limit(100, us=100)
    holding = await world.claims.join(QUOTA)
    assert holding is not None
    assert 0 == holding.slice


async def test_fifty_first_uses_at_once_are_one_claim(world: World) -> None:
    await world.set_limit(100)
    await asyncio.gather(*(world.claims.join(QUOTA) for _ in range(50)))
    assert (50, [50]) == (await world.slice(), world.got)


async def test_a_quota_that_does_not_exist_is_not_asked_for_again_at_once(world: World) -> None:
    for _ in range(10):
        assert await world.claims.join(QUOTA) is None
    assert 1 == world.etcd.reads

    world.clock.seconds += UNKNOWN_FOR_S + 0.1
    await world.set_limit(10)
    assert await world.claims.join(QUOTA) is not None


async def test_a_silent_etcd_is_given_up_in_time(world: World) -> None:
    world.etcd.silent = True
    with pytest.raises(EtcdUnavailable, match="no answer from etcd"):
        await asyncio.wait_for(world.claims.join(QUOTA), 5)


async def test_what_failed_after_everybody_gave_it_up_is_not_told_with_a_traceback(world: World) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    await world.set_limit(100)
    world.etcd.failing.add(QUOTA)
    joining = asyncio.create_task(world.claims.join(QUOTA))
    await asyncio.sleep(0)
    joining.cancel()
    await asyncio.wait([joining])
    del joining
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert [] == told


async def test_a_frozen_or_draining_region_joins_but_claims_nothing(world: World) -> None:
    await world.set_limit(100)
    world.allowed = False
    await world.claims.join(QUOTA)
    assert 0 == await world.slice()


async def test_a_claim_that_loses_to_another_change_is_made_anew(world: World) -> None:
    await world.set_limit(100)
    _, allocation = await world.etcd.read(QUOTA)
    assert allocation is not None
    world.etcd.before_swap = [grant(allocation, {"us": 60})]
    await world.claims.join(QUOTA)
    assert 20 == await world.slice()


async def test_running_short_claims_in_the_background_what_is_wanted(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    world.claims.run_short(QUOTA, 7)
    await world.claims.serve()
    assert 57 == await world.slice()


async def test_running_short_of_an_empty_pool_asks_etcd_nothing(world: World) -> None:
    await world.set_limit(100, us=100)
    await world.claims.join(QUOTA)
    before = world.etcd.reads
    world.claims.run_short(QUOTA, 7)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.claims.serve(), 0.05)
    assert before == world.etcd.reads
    assert [(QUOTA, 0)] == world.cried


async def test_an_outage_during_background_claims_is_one_plain_error_and_spares_other_quotas(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    other = QuotaKey("acme", "disk")
    await world.etcd.swap(other, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1)))
    await world.claims.join(other)
    world.etcd.failing = {QUOTA}
    world.claims.run_short(QUOTA, 7)
    world.claims.run_short(other, 7)
    with pytest.raises(EtcdUnavailable):
        await world.claims.serve()
    holding = await world.store.holding(other)
    assert holding is not None
    assert 57 == holding.slice


async def test_a_wish_that_the_pool_cannot_fill_takes_one_share_of_it_and_no_more(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    world.claims.run_short(QUOTA, 90)
    await world.claims.serve()
    assert 75 == await world.slice()
    assert [(QUOTA, 25)] == world.cried


async def test_a_wish_that_the_pool_fills_lacks_nothing(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    world.claims.run_short(QUOTA, 50, available=3)
    await world.claims.serve()
    assert (100, []) == (await world.slice(), world.cried)


async def test_what_somebody_lacks_is_claimed_at_once_if_the_pool_has_it(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    reads = world.etcd.reads
    world.claims.run_short(QUOTA, 45, lacking=45)
    await world.claims.serve()
    assert (95, 1, []) == (await world.slice(), world.etcd.reads - reads, world.quotas)


async def test_more_than_the_pool_has_is_cried_for_once_and_the_pool_claimed_if_nobody_hears(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    for _ in range(2):
        world.claims.run_short(QUOTA, 60, lacking=60)
        await world.claims.serve()
    assert (50, [QUOTA]) == (await world.slice(), world.quotas)
    world.clock.seconds += UNHEARD_S
    world.claims.run_short(QUOTA, 60, lacking=60)
    await world.claims.serve()
    assert (100, [QUOTA, QUOTA]) == (await world.slice(), world.quotas)


async def test_what_several_lack_together_is_more_than_the_pool_has(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    for _ in range(2):
        world.claims.run_short(QUOTA, 30, lacking=30)
    await world.claims.serve()
    assert (50, [QUOTA]) == (await world.slice(), world.quotas)


async def test_a_jump_after_something_has_changed_is_cried_for_again(world: World) -> None:
    await world.set_limit(100)
    await world.claims.join(QUOTA)
    for _ in range(2):
        world.claims.run_short(QUOTA, 60, lacking=60)
        await world.claims.serve()
        revision, allocation = await world.etcd.read(QUOTA)
        assert allocation is not None
        changed = grant(allocation, {"us": 1})
        await world.follower.take(Stored(QUOTA, await world.etcd.swap(QUOTA, revision, changed) or 0, changed))
    assert [QUOTA, QUOTA] == world.quotas


async def test_nothing_is_cried_for_while_somebody_is_asked_to_give(world: World) -> None:
    await world.set_limit(100, eu=50, us=50)
    revision, allocation = await world.etcd.read(QUOTA)
    assert allocation is not None
    helped = request_moves(allocation, [Move("m", "us", "eu", 10)])
    await world.follower.take(Stored(QUOTA, await world.etcd.swap(QUOTA, revision, helped) or 0, helped))
    world.claims.run_short(QUOTA, 7, lacking=7)
    assert [] == world.quotas


async def test_nothing_is_claimed_after_an_outage_before_all_was_listed_again() -> None:
    """What answers may be an older etcd: some other document shows it."""
    world = World()
    await world.set_limit(100)
    world.etcd.silent_watch = True
    with pytest.raises(EtcdUnavailable):
        await world.follower.follow()
    world.claims.run_short(QUOTA, 5)
    with pytest.raises(EtcdUnavailable, match="listed again"):
        await world.claims.serve()
    assert (-1, []) == (await world.slice(), world.got)
    waiting = asyncio.create_task(world.claims.join(QUOTA, 5))
    await world.follower.relist()
    assert await waiting is not None
    assert 50 == await world.slice()


async def test_a_claim_that_finds_a_document_older_than_what_was_carried_out_says_so() -> None:
    said: list[str] = []
    world = World(said=said)
    await world.set_limit(100)
    snapshot = world.etcd.copy(world.clock)
    assert await world.claims.join(QUOTA, 5) is not None
    world.etcd.restore(snapshot, bump=50)
    world.claims.run_short(QUOTA, 5)
    with pytest.raises(WentBackwards):
        await world.claims.serve()
    assert ["carried out" in word for word in said] == [True]


async def test_many_quotas_that_run_short_are_served_by_a_few_tasks() -> None:
    world = World()
    keys = [QuotaKey("acme", f"r{number}") for number in range(10 * PARALLEL)]
    for key in keys:
        await world.etcd.swap(key, 0, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(10, 1)))
    await world.follower.relist()
    for key in keys:
        world.claims.run_short(key, 5)
    others = asyncio.all_tasks()
    most = 0

    def count(_got: int) -> None:
        nonlocal most
        most = max(most, len(asyncio.all_tasks() - others))

    world.claims._on_claim = count
    await world.claims.serve()
    assert [5] * len(keys) == [held.slice for held in await world.store.holdings()]
    assert most <= PARALLEL
