"""Signs of life, thawing and reports, on memory adapters."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.region import participating
from tests.region.participating import QUOTA, TTL_S, World, split

from regionquota.coordinator.liveness import Liveness, update
from regionquota.core.commands import Commit, Reserve
from regionquota.core.demand import Demand
from regionquota.core.forecast import Foreseen
from regionquota.core.quota import QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Frozen, FrozenBy, RegionRecord, RegionStatus, Stored
from regionquota.region.attendance import FORESEEN_AGAIN_S, READ_ALL_WITHIN_S
from regionquota.region.demand import MAX_QUOTAS
from regionquota.region.pages import PAGE

world = participating.world


async def test_a_new_region_makes_its_record_and_announces_itself(world: World) -> None:
    await world.attendance.attend()
    assert RegionRecord("eu") == (await world.etcd.regions())["eu"].record
    assert ["eu-1"] == [presence.instance for presence in await world.etcd.present()]


async def test_a_new_region_is_not_frozen_by_who_looks_while_it_joins(world: World) -> None:
    """Listing all allocations may take it many rounds."""
    fence = await world.etcd.lead(await world.etcd.open_session(TTL_S), "one")
    assert fence is not None
    listing = world.etcd.list

    async def looked_at_meanwhile() -> tuple[int, Sequence[Stored]]:
        await update(Liveness(0.0), world.etcd, fence, world.clock.now())
        return await listing()

    world.etcd.list = looked_at_meanwhile  # type: ignore[method-assign]
    await world.attendance.attend()
    assert RegionRecord("eu") == (await world.etcd.regions())["eu"].record


async def test_a_sign_of_life_is_prolonged_and_made_anew_when_it_ended(world: World) -> None:
    await world.attendance.attend()
    world.clock.seconds += TTL_S * 0.8
    await world.attendance.attend()
    world.clock.seconds += TTL_S * 0.8
    assert 1 == len(await world.etcd.present())
    world.clock.seconds += 2 * TTL_S
    assert [] == list(await world.etcd.present())
    await world.attendance.attend()
    assert 1 == len(await world.etcd.present())


async def test_after_a_freeze_the_region_reads_everything_again_and_says_so(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    stored = (await world.etcd.regions())["eu"]
    frozen = replace(stored.record, frozen=Frozen(FrozenBy.LIVENESS, world.clock.now(), "gone"))
    revision = await world.etcd.swap_region(frozen, stored.revision)
    assert revision is not None

    assert (await world.etcd.present())[0].synchronised < revision
    await world.attendance.attend()
    assert (await world.etcd.present())[0].synchronised >= revision


@pytest.mark.parametrize(
    ("record", "may"),
    [
        (RegionRecord("eu"), True),
        (RegionRecord("eu", status=RegionStatus.DRAINING), False),
        (RegionRecord("eu", frozen=Frozen(FrozenBy.OPERATOR, 1.0, "work")), False),
    ],
)
async def test_only_an_active_region_that_is_not_frozen_claims(world: World, record: RegionRecord, may: bool) -> None:
    await world.etcd.swap_region(record, 0)
    await world.attendance.attend()
    assert may is world.attendance.may_claim()


async def test_a_region_takes_part_that_is_known_active_and_not_frozen(world: World) -> None:
    assert world.attendance.takes_part("ap")  # nothing was read yet
    frozen = Frozen(FrozenBy.LIVENESS, 0.0, "silent")
    for record in (
        RegionRecord("us"),
        RegionRecord("ap", frozen=frozen),
        RegionRecord("sa", status=RegionStatus.DRAINING),
        RegionRecord("za", status=RegionStatus.EVICTED),
    ):
        await world.etcd.swap_region(record, 0)
    await world.attendance.attend()
    assert ["us"] == [name for name in ("us", "ap", "sa", "za", "mars") if world.attendance.takes_part(name)]


async def test_a_region_at_rest_reports_once_and_then_nothing(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    for _ in range(5):
        await world.attendance.report()
    assert 1 == world.etcd.reports


async def test_what_is_asked_for_is_reported(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    await world.store.transact([Reserve("0", QUOTA, 5, "r", b"d", 60), Commit("0")], world.clock.now())
    world.meter.granted(QUOTA, 5)
    world.meter.denied(QUOTA, 60)
    world.clock.seconds += 2.0
    await world.attendance.report()
    assert [
        ("eu", Demand(QUOTA, 40, 5, 0, granted=5, denied=60, seconds=2.0, largest=60, at=world.clock.now()))
    ] == list(await world.etcd.demand())


async def test_a_report_of_denials_is_followed_by_one_that_says_they_are_over(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    world.meter.denied(QUOTA, 60)
    for _ in range(5):
        world.clock.seconds += 1.0
        await world.attendance.report()
    assert [0] == [word.denied for _, word in await world.etcd.demand()]
    assert 2 == world.etcd.reports


async def test_what_is_foreseen_is_told_and_a_change_of_it_now_and_then(world: World) -> None:
    told = [Foreseen(2.5, 40.0)]
    world.attendance._foreseen = lambda _key, _now: told[-1]
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    await world.attendance.report()
    told.append(Foreseen(2.6, 40.0))
    for changed in (False, True):
        assert (1 + changed) == world.etcd.reports
        for _ in range(int(FORESEEN_AGAIN_S / TTL_S) + 2):
            await world.attendance.report()
            world.clock.seconds += TTL_S - 0.1
            await world.attendance.attend()
    assert [(2.6, 40.0)] == [(word.expected, word.deviation) for _, word in await world.etcd.demand()]
    assert 2 == world.etcd.reports


async def test_a_change_of_what_is_foreseen_is_told_also_once_a_clock_that_ran_ahead_is_right(world: World) -> None:
    told = [Foreseen(2.5, 40.0)]
    world.attendance._foreseen = lambda _key, _now: told[-1]
    await world.write(split(100, eu=40))
    world.clock.seconds += 86_400.0
    await world.attendance.attend()
    await world.attendance.report()
    world.clock.seconds -= 86_400.0
    told.append(Foreseen(2.6, 40.0))
    await world.attendance.report()
    assert 2 == world.etcd.reports


async def test_all_is_looked_at_again_in_pages_and_a_part_of_it_at_a_time(world: World) -> None:
    """Five reports in READ_ALL_WITHIN_S: each reads a fifth of the quotas, and after them all have been read."""
    keys = [QuotaKey("acme", f"r{number:04}") for number in range(5 * PAGE)]
    for key in keys:
        await world.etcd.swap(key, 0, split(100, eu=1))
    await world.attendance.attend()
    await world.attendance.report()
    assert 5 * PAGE == sum(slice_ for slice_, _, _ in world.attendance.sums.totals.values())
    for key in keys:
        await world.store.apply(key, split(100, eu=2), 10_000, world.clock.now())
    seen = []
    for _ in range(5):
        world.clock.seconds += READ_ALL_WITHIN_S / 5
        await world.attendance.attend()
        await world.attendance.report()
        seen.append(sum(slice_ for slice_, _, _ in world.attendance.sums.totals.values()))
    assert [PAGE * (5 + read) for read in range(1, 6)] == seen


async def test_a_report_without_an_answer_is_made_again(world: World) -> None:
    await world.write(split(100, eu=40))
    await world.attendance.attend()
    world.etcd.losing = True
    with pytest.raises(EtcdUnavailable):
        await world.attendance.report()
    world.etcd.losing = False
    await world.attendance.report()
    assert 2 == world.etcd.reports


async def test_an_orderly_end_takes_the_sign_of_life_back(world: World) -> None:
    await world.attendance.attend()
    await world.attendance.close()
    assert [] == list(await world.etcd.present())


async def test_a_region_that_drains_names_all_that_it_has_to_give(world: World) -> None:
    """Not for ever the first of more than fit into a report."""
    await world.etcd.swap_region(RegionRecord("eu", status=RegionStatus.DRAINING), 0)
    keys = [QuotaKey("acme", f"r{number:04}") for number in range(2 * MAX_QUOTAS + 10)]
    for key in keys:
        written = await world.etcd.swap(key, 0, split(100, eu=40))
        assert written is not None
        await world.store.apply(key, split(100, eu=40), written, world.clock.now())
    for _ in range(3):
        await world.attendance.attend()
        await world.attendance.report()
        world.clock.seconds += 5
        for _, word in await world.etcd.demand():
            await world.store.apply(word.key, split(100), world.etcd.revision, world.clock.now())
            world.meter.touch(word.key)
    assert 0 == sum(held.slice for held in await world.store.holdings())
