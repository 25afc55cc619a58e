"""What every `Directory` promises."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct

from regionquota.core.demand import Demand
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.ports import (
    Directory,
    Frozen,
    FrozenBy,
    Presence,
    RegionRecord,
    RegionStatus,
    StoredRegion,
    Suspension,
)

LONG_S = 60
SHORT_S = 2  # the shortest that etcd grants
RUN_OUT_S = 3.5  # etcd looks for expired leases twice a second, and revokes them through consensus

EU = RegionRecord("eu")
HERE = Presence("eu", "host-1", "http://host-1:8080", synchronised=17)
CPU = Demand(
    QuotaKey("acme", "vcpu"),
    slice=10,
    used=7,
    reserved=1,
    granted=3,
    freed=1,
    denied=2,
    seconds=4.5,
    epoch=24_317,
    expected=0.5,
    deviation=40.0,
)

# -- regions --


async def test_no_regions_at_first(directory: Directory) -> None:
    assert {} == await directory.regions()


async def test_a_region_is_read_as_it_was_written(directory: Directory) -> None:
    frozen = Frozen(FrozenBy.LIVENESS, 1_800_000_000.5, "no sign of life for 15 s")
    record = RegionRecord("eu", weight=10_000_000, status=RegionStatus.DRAINING, frozen=frozen)
    revision = await directory.swap_region(record, 0)
    assert revision is not None
    assert {"eu": StoredRegion(revision, record)} == await directory.regions()


async def test_only_one_of_two_creates_a_region(directory: Directory) -> None:
    first = await directory.swap_region(EU, 0)
    assert first is not None
    assert await directory.swap_region(replace(EU, weight=1), 0) is None
    assert {"eu": StoredRegion(first, EU)} == await directory.regions()


async def test_a_stale_revision_does_not_change_a_region(directory: Directory) -> None:
    first = await directory.swap_region(EU, 0)
    assert first is not None
    second = await directory.swap_region(replace(EU, weight=2), first)
    assert second is not None
    assert await directory.swap_region(replace(EU, weight=3), first) is None
    assert {"eu": StoredRegion(second, replace(EU, weight=2))} == await directory.regions()


async def test_who_lost_the_lead_changes_no_region(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    fence = await directory.lead(session, "me")
    first = await directory.swap_region(EU, 0, fence)
    assert first is not None
    await session.close()
    assert await directory.swap_region(replace(EU, weight=2), first, fence) is None
    assert {"eu": StoredRegion(first, EU)} == await directory.regions()


async def test_what_holds_for_absent_regions_only_is_not_written_of_one_that_is_present(directory: Directory) -> None:
    written = await directory.swap_region(EU, 0)
    assert written is not None
    session = await directory.open_session(LONG_S)
    await directory.announce(session, HERE)
    assert await directory.swap_region(replace(EU, weight=2), written, unless_present=True) is None
    await session.close()
    assert await directory.swap_region(replace(EU, weight=2), written, unless_present=True) is not None


async def test_a_neighbour_of_a_like_name_is_no_sign_of_life(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await directory.announce(session, replace(HERE, region="eu-2"))
    assert await directory.swap_region(EU, 0, unless_present=True) is not None


# -- sessions --


async def test_a_session_that_is_kept_outlives_its_time(
    directory: Directory, elapse: Callable[[float], Awaitable[None]]
) -> None:
    session = await directory.open_session(3)
    await directory.announce(session, HERE)
    for _ in range(3):
        await elapse(1.2)
        assert await session.keep()
    assert [HERE] == list(await directory.present())


async def test_all_that_hangs_on_a_session_goes_when_its_time_runs_out(
    directory: Directory, elapse: Callable[[float], Awaitable[None]]
) -> None:
    session = await directory.open_session(SHORT_S)
    await directory.announce(session, HERE)
    await directory.report(session, "eu", "host-1", [CPU])
    await directory.lead(session, "me")
    await elapse(RUN_OUT_S)
    assert [] == list(await directory.present())
    assert [] == list(await directory.demand())
    assert {} == (await directory.leadership()).leaders
    assert not await session.keep()


async def test_a_closed_session_is_gone_for_good(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await directory.announce(session, HERE)
    await session.close()
    assert [] == list(await directory.present())
    assert not await session.keep()


async def test_closing_twice_does_no_harm(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await session.close()
    await session.close()


async def test_nothing_can_be_hung_on_a_session_that_is_gone(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await session.close()
    with pytest.raises(EtcdUnavailable):
        await directory.announce(session, HERE)
    with pytest.raises(EtcdUnavailable):
        await directory.report(session, "eu", "host-1", [CPU])
    with pytest.raises(EtcdUnavailable):
        await directory.lead(session, "me")
    assert [] == list(await directory.present())
    assert [] == list(await directory.demand())
    assert {} == (await directory.leadership()).leaders


# -- presence and demand --


async def test_servers_are_present_side_by_side(directory: Directory) -> None:
    there = Presence("eu", "host-2", "http://host-2:8080", synchronised=MAX_AMOUNT)
    for presence in (HERE, there):
        await directory.announce(await directory.open_session(LONG_S), presence)
    assert [HERE, there] == sorted(await directory.present(), key=lambda presence: presence.instance)


async def test_an_announcement_replaces_the_last(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await directory.announce(session, HERE)
    await directory.announce(session, replace(HERE, synchronised=18))
    assert [replace(HERE, synchronised=18)] == list(await directory.present())


async def test_an_announcement_belongs_to_the_session_that_made_it_last(directory: Directory) -> None:
    earlier, later = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    await directory.announce(earlier, HERE)
    await directory.announce(later, HERE)
    await earlier.close()
    assert [HERE] == list(await directory.present())
    await later.close()
    assert [] == list(await directory.present())


async def test_a_report_replaces_the_last_of_the_same_server(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    other = replace_struct(CPU, key=QuotaKey("acme", "disk"), used=MAX_AMOUNT)
    await directory.report(session, "eu", "host-1", [CPU, other])
    await directory.report(session, "eu", "host-2", [CPU])
    await directory.report(session, "eu", "host-1", [other])
    assert [("eu", other), ("eu", CPU)] == list(await directory.demand())


async def test_an_empty_report_takes_back_the_last(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    await directory.report(session, "eu", "host-1", [CPU])
    await directory.report(session, "eu", "host-1", [])
    assert [] == list(await directory.demand())


async def test_a_report_may_be_larger_than_one_etcd_value(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    words = [replace_struct(CPU, key=QuotaKey("t" * 200, "r" * 200, str(number))) for number in range(6_000)]
    await directory.report(session, "eu", "host-1", words)
    assert [("eu", word) for word in words] == list(await directory.demand())
    await directory.report(session, "eu", "host-1", words[:1])
    assert [("eu", words[0])] == list(await directory.demand())


async def test_demand_goes_with_its_session(directory: Directory) -> None:
    staying, leaving = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    await directory.report(staying, "eu", "host-1", [CPU])
    await directory.report(leaving, "us", "host-1", [CPU])
    await leaving.close()
    assert [("eu", CPU)] == list(await directory.demand())


@pytest.mark.parametrize("odd", ["a/b", "with space", "100%", "%2F", "東京", "x" * 256])
async def test_odd_names_survive(directory: Directory, odd: str) -> None:
    session = await directory.open_session(LONG_S)
    presence = Presence(odd, odd, f"http://host/?{odd}", 1)
    demand = replace_struct(CPU, key=QuotaKey(odd, odd, odd))
    await directory.swap_region(RegionRecord(odd), 0)
    await directory.announce(session, presence)
    await directory.report(session, odd, odd, [demand])
    await directory.lead(session, odd)
    assert [odd] == list(await directory.regions())
    assert [presence] == list(await directory.present())
    assert [(odd, demand)] == list(await directory.demand())
    assert odd == (await directory.leadership()).leaders[0].name


# -- suspensions --


async def test_nobody_is_suspended_at_first(directory: Directory) -> None:
    assert {} == await directory.suspensions()


async def test_a_suspension_is_read_as_it_was_said(directory: Directory) -> None:
    await directory.suspend("acme", 1_800_000_000.5, "unpaid since May")
    assert {"acme": Suspension("acme", 1_800_000_000.5, "unpaid since May")} == await directory.suspensions()


async def test_a_later_word_on_a_suspension_replaces_the_earlier(directory: Directory) -> None:
    await directory.suspend("acme", 1.0, "unpaid")
    await directory.suspend("acme", 2.0, "fraud")
    assert {"acme": Suspension("acme", 2.0, "fraud")} == await directory.suspensions()


async def test_a_tenant_is_resumed_once_and_alone(directory: Directory) -> None:
    await directory.suspend("acme", 1.0, "unpaid")
    await directory.suspend("acme/2", 1.0, "unpaid")
    assert (True, False) == (await directory.resume("acme"), await directory.resume("acme"))
    assert ["acme/2"] == list(await directory.suspensions())


async def test_who_was_not_suspended_is_not_resumed(directory: Directory) -> None:
    assert not await directory.resume("acme")


@pytest.mark.parametrize("odd", ["a/b", "with space", "100%", "%2F", "東京", "x" * 256])
async def test_odd_tenants_are_suspended_and_resumed(directory: Directory, odd: str) -> None:
    await directory.suspend(odd, 1.0, "unpaid")
    assert [odd] == list(await directory.suspensions())
    assert await directory.resume(odd)
