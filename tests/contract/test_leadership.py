"""What every `Directory` promises of those who lead."""

from collections.abc import Awaitable, Callable, Collection

import pytest
from tests.contract.test_allocation_store import CPU, plan
from tests.contract.test_directory import LONG_S, RUN_OUT_S, SHORT_S

from regionquota.core.groups import Leader
from regionquota.errors import EtcdUnavailable
from regionquota.ports import AllocationStore, Directory, Fence, RegionRecord, Session


async def leader(directory: Directory, group: int = 0) -> str | None:
    found = (await directory.leadership()).leaders.get(group)
    return None if found is None else found.name


async def present(directory: Directory) -> Collection[str]:
    return sorted((await directory.leadership()).present)


async def led(directory: Directory, session: Session, name: str, group: int) -> Fence:
    fence = await directory.lead(session, name, group)
    assert fence is not None
    return fence


async def test_nobody_leads_at_first(directory: Directory) -> None:
    assert {} == (await directory.leadership()).leaders


async def test_one_leads_and_another_does_not(directory: Directory) -> None:
    assert await directory.lead(await directory.open_session(LONG_S), "one") is not None
    assert await directory.lead(await directory.open_session(LONG_S), "other") is None
    assert "one" == await leader(directory)


async def test_a_session_that_is_gone_does_not_lead_in_place_of_another(directory: Directory) -> None:
    gone = await directory.open_session(LONG_S)
    await gone.close()
    await directory.lead(await directory.open_session(LONG_S), "other")
    assert await directory.lead(gone, "gone") is None
    assert "other" == await leader(directory)


async def test_asking_again_while_leading_returns_the_same_fence(directory: Directory) -> None:
    session = await directory.open_session(LONG_S)
    fence = await directory.lead(session, "one")
    assert fence is not None
    assert fence == await directory.lead(session, "one")


async def test_leadership_passes_on_when_the_session_closes(directory: Directory) -> None:
    one, other = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    first = await directory.lead(one, "one")
    await one.close()
    second = await directory.lead(other, "other")
    assert first is not None
    assert second is not None
    assert second.create_revision > first.create_revision
    assert "other" == await leader(directory)


async def test_leadership_passes_on_when_its_time_runs_out(
    directory: Directory, elapse: Callable[[float], Awaitable[None]]
) -> None:
    first = await directory.lead(await directory.open_session(SHORT_S), "one")
    await elapse(RUN_OUT_S)
    second = await directory.lead(await directory.open_session(LONG_S), "other")
    assert second is not None
    assert first != second


# -- groups --


async def test_each_group_has_a_leader_of_its_own(directory: Directory) -> None:
    one, other = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    fences = [await led(directory, session, "me", group) for group, session in ((0, one), (1, other), (15, one))]
    assert await directory.lead(other, "you", 15) is None
    assert {
        0: Leader("me", fences[0].create_revision),
        1: Leader("me", fences[1].create_revision),
        15: Leader("me", fences[2].create_revision),
    } == (await directory.leadership()).leaders
    assert fences[2] == await directory.lead(one, "me", 15)


async def test_a_fence_is_that_of_its_group(directory: Directory, allocations: AllocationStore) -> None:
    one, other = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    first, second = await led(directory, one, "one", 0), await led(directory, other, "other", 1)
    await one.close()
    assert await allocations.swap(CPU, 0, plan(1), first) is None
    assert await directory.swap_region(RegionRecord("eu"), 0, first) is None
    assert await allocations.swap(CPU, 0, plan(1), second) is not None


async def test_who_resigns_leads_no_more_and_writes_nothing(directory: Directory, allocations: AllocationStore) -> None:
    session = await directory.open_session(LONG_S)
    kept, given_up = await led(directory, session, "me", 2), await led(directory, session, "me", 3)
    await directory.resign(given_up)
    assert [2] == list((await directory.leadership()).leaders)
    assert await allocations.swap(CPU, 0, plan(1), given_up) is None
    assert await allocations.swap(CPU, 0, plan(1), kept) is not None
    again = await led(directory, await directory.open_session(LONG_S), "you", 3)
    assert again.create_revision > given_up.create_revision


async def test_resigning_late_takes_nothing_from_the_next_leader(directory: Directory) -> None:
    one, other = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    late = await led(directory, one, "one", 3)
    await directory.resign(late)
    await directory.resign(late)
    await led(directory, other, "other", 3)
    await directory.resign(late)
    assert "other" == await leader(directory, 3)


# -- who is there to lead --


async def test_those_who_stand_are_present_as_long_as_their_session_lasts(directory: Directory) -> None:
    one, other = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    await directory.stand(one, "one")
    await directory.stand(other, "other/東京")
    await directory.stand(other, "other/東京")
    assert ["one", "other/東京"] == await present(directory)
    await one.close()
    assert ["other/東京"] == await present(directory)
    with pytest.raises(EtcdUnavailable):
        await directory.stand(one, "one")


async def test_who_begins_anew_under_its_old_name_outlasts_its_old_session(directory: Directory) -> None:
    old, new = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    await directory.stand(old, "me")
    await directory.stand(new, "me")
    await old.close()
    assert ["me"] == await present(directory)


async def test_a_leader_that_does_not_stand_leads_everything(directory: Directory) -> None:
    old, new = await directory.open_session(LONG_S), await directory.open_session(LONG_S)
    await directory.lead(old, "of an older release")
    await directory.stand(new, "new")
    assert "of an older release" == (await directory.leadership()).undivided
    await old.close()
    assert (await directory.leadership()).undivided is None
    await directory.lead(new, "new")
    assert (await directory.leadership()).undivided is None
