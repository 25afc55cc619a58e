"""What every `AllocationStore` promises."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    new_allocation,
    request_moves,
    set_limit,
)
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.ports import AllocationStore, CompactedError, Directory, Fence, Stored

T = TypeVar("T")

CPU = QuotaKey("acme", "vcpu")
DISK = QuotaKey("acme", "disk", "eu")


def plan(amount: int) -> Allocation:
    return new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(amount, 1))


@pytest.fixture
async def start(allocations: AllocationStore) -> int:
    """The revision before the test: the server is shared, and was perhaps compacted by another test."""
    revision, _ = await allocations.list()
    return revision


async def written(store: AllocationStore, key: QuotaKey, revision: int, amount: int) -> int:
    new = await store.swap(key, revision, plan(amount))
    assert new is not None
    return new


async def versions(store: AllocationStore, key: QuotaKey, count: int) -> list[Stored]:
    """Write limits 1 .. count, one after the other."""
    made: list[Stored] = []
    for amount in range(1, count + 1):
        revision = await written(store, key, made[-1].revision if made else 0, amount)
        made.append(Stored(key, revision, plan(amount)))
    return made


async def take(changes: AsyncIterator[Sequence[Stored]], count: int) -> list[Stored]:
    taken: list[Stored] = []
    async with asyncio.timeout(10):
        while len(taken) < count:
            taken += await anext(changes)
    return taken


async def test_an_unknown_document_is_at_revision_0(allocations: AllocationStore) -> None:
    assert (0, None) == await allocations.read(CPU)


async def test_a_document_is_read_as_it_was_written(allocations: AllocationStore) -> None:
    allocation = set_limit(plan(MAX_AMOUNT), LimitSource.OVERRIDE, VersionedLimit(MAX_AMOUNT - 1, 7))
    allocation = grant(allocation, {"eu": MAX_AMOUNT - 3, "us": 1})
    moves = [Move("m1", "eu", "us", 5, requested_at=1_800_000_000.25), Move("m2", "us", None, 1)]
    allocation = request_moves(allocation, moves)
    revision = await allocations.swap(CPU, 0, allocation)
    assert (revision, allocation) == await allocations.read(CPU)


async def test_only_one_of_two_creates(allocations: AllocationStore) -> None:
    first = await allocations.swap(CPU, 0, plan(1))
    assert await allocations.swap(CPU, 0, plan(2)) is None
    assert (first, plan(1)) == await allocations.read(CPU)


async def test_a_document_that_does_not_exist_is_at_no_other_revision(allocations: AllocationStore) -> None:
    other = await written(allocations, DISK, 0, 1)
    assert await allocations.swap(CPU, other, plan(1)) is None
    assert (0, None) == await allocations.read(CPU)


async def test_a_stale_revision_changes_nothing(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    second = await written(allocations, CPU, first, 2)
    assert await allocations.swap(CPU, first, plan(3)) is None
    assert (second, plan(2)) == await allocations.read(CPU)


async def test_the_same_document_again_is_a_new_revision(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    assert first < await written(allocations, CPU, first, 1)


async def test_revisions_ascend_over_all_documents(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    other = await written(allocations, DISK, 0, 1)
    assert first < other < await written(allocations, CPU, first, 2)


async def test_of_many_at_once_one_wins(allocations: AllocationStore) -> None:
    revision = await written(allocations, CPU, 0, 1)
    outcomes = await asyncio.gather(*(allocations.swap(CPU, revision, plan(n)) for n in range(2, 22)))
    assert 1 == sum(outcome is not None for outcome in outcomes)


# -- fences --


async def test_a_leader_writes(allocations: AllocationStore, directory: Directory) -> None:
    fence = await directory.lead(await directory.open_session(60), "me")
    assert fence is not None
    first = await allocations.swap(CPU, 0, plan(1), fence)
    assert first is not None
    assert await allocations.swap(CPU, first, plan(2), fence) is not None


async def test_who_lost_the_lead_writes_nothing(allocations: AllocationStore, directory: Directory) -> None:
    session = await directory.open_session(60)
    fence = await directory.lead(session, "me")
    await session.close()
    assert await allocations.swap(CPU, 0, plan(1), fence) is None
    await directory.lead(await directory.open_session(60), "my successor")
    assert await allocations.swap(CPU, 0, plan(1), fence) is None
    assert (0, None) == await allocations.read(CPU)


async def test_a_fence_does_not_replace_the_revision(allocations: AllocationStore, directory: Directory) -> None:
    fence = await directory.lead(await directory.open_session(60), "me")
    await written(allocations, CPU, 0, 1)
    assert await allocations.swap(CPU, 0, plan(2), fence) is None


async def test_a_fence_of_an_earlier_term_does_not_hold(allocations: AllocationStore, directory: Directory) -> None:
    fence = await directory.lead(await directory.open_session(60), "me")
    assert fence is not None
    earlier = Fence(fence.key, fence.create_revision - 1)
    assert await allocations.swap(CPU, 0, plan(1), earlier) is None


# -- lists --


async def test_a_list_of_nothing(allocations: AllocationStore) -> None:
    revision, stored = await allocations.list()
    assert revision > 0
    assert not stored


async def test_a_list_of_one_says_where_to_watch_from(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    revision, stored = await allocations.list()
    assert [Stored(CPU, first, plan(1))] == list(stored)
    second = await written(allocations, CPU, first, 2)
    assert [Stored(CPU, second, plan(2))] == await take(allocations.watch(revision), 1)


async def test_a_list_of_many_is_complete(allocations: AllocationStore) -> None:
    keys = [QuotaKey(f"tenant-{number % 100}", f"resource-{number // 100}") for number in range(2_500)]
    for start in range(0, len(keys), 100):
        await asyncio.gather(*(written(allocations, key, 0, 1) for key in keys[start : start + 100]))
    revision, stored = await allocations.list()
    assert sorted(keys) == sorted(document.key for document in stored)
    assert revision >= max(document.revision for document in stored)


async def test_a_list_holds_no_directory_entries(allocations: AllocationStore, directory: Directory) -> None:
    await directory.lead(await directory.open_session(60), "me")
    _, stored = await allocations.list()
    assert not stored


# -- watches --


async def test_a_watch_sees_every_revision_in_order_from_a_past_one(allocations: AllocationStore) -> None:
    made = await versions(allocations, CPU, 20)
    assert made[5:] == await take(allocations.watch(made[4].revision), 15)


async def test_a_watch_item_is_of_one_revision(allocations: AllocationStore, start: int) -> None:
    made = await versions(allocations, CPU, 20)
    changes = allocations.watch(start)
    assert [[version] for version in made] == [list(await anext(changes)) for _ in made]


async def test_a_watch_goes_on_from_the_past_to_the_future(allocations: AllocationStore, start: int) -> None:
    made = await versions(allocations, CPU, 2)
    changes = allocations.watch(start)
    assert made == await take(changes, 2)
    waiting = asyncio.create_task(take(changes, 1))
    await asyncio.sleep(0.05)
    revision = await written(allocations, DISK, 0, 5)
    assert [Stored(DISK, revision, plan(5))] == await waiting


async def test_a_watch_does_not_see_the_revision_it_starts_after(allocations: AllocationStore) -> None:
    made = await versions(allocations, CPU, 1)
    waiting = asyncio.create_task(take(allocations.watch(made[-1].revision), 1))
    await asyncio.sleep(0.05)
    revision = await written(allocations, CPU, made[-1].revision, 2)
    assert [Stored(CPU, revision, plan(2))] == await waiting


async def test_two_watches_see_the_same(allocations: AllocationStore, start: int) -> None:
    made = await versions(allocations, CPU, 3)
    one, other = allocations.watch(start), allocations.watch(made[0].revision)
    waiting = [asyncio.create_task(take(one, 5)), asyncio.create_task(take(other, 4))]
    await asyncio.sleep(0.05)
    later = [Stored(DISK, await written(allocations, DISK, 0, 1), plan(1))]
    later += [Stored(DISK, await written(allocations, DISK, later[0].revision, 2), plan(2))]
    assert [made + later, made[1:] + later] == await asyncio.gather(*waiting)


async def test_a_watch_that_was_given_up_disturbs_no_other(allocations: AllocationStore, start: int) -> None:
    given_up = asyncio.create_task(take(allocations.watch(start), 1))
    staying = asyncio.create_task(take(allocations.watch(start), 1))
    await asyncio.sleep(0.05)
    given_up.cancel()
    made = await versions(allocations, CPU, 1)
    assert made == await staying
    assert given_up.cancelled()


async def test_a_watch_from_before_a_compaction_says_so(
    allocations: AllocationStore, compact: Callable[[int], Awaitable[None]]
) -> None:
    made = await versions(allocations, CPU, 5)
    await compact(made[3].revision)
    with pytest.raises(CompactedError):
        await take(allocations.watch(made[0].revision), 1)


async def test_a_watch_from_a_compaction_on_misses_nothing(
    allocations: AllocationStore, compact: Callable[[int], Awaitable[None]]
) -> None:
    made = await versions(allocations, CPU, 5)
    await compact(made[3].revision)
    assert made[3:] == await take(allocations.watch(made[2].revision), 2)


async def test_compaction_does_not_disturb_a_watch_that_has_seen_all(
    allocations: AllocationStore, start: int, compact: Callable[[int], Awaitable[None]]
) -> None:
    made = await versions(allocations, CPU, 1)
    changes = allocations.watch(start)
    await take(changes, 1)
    waiting = asyncio.create_task(take(changes, 1))
    await asyncio.sleep(0.05)
    later = await written(allocations, DISK, 0, 1)
    assert [Stored(DISK, later, plan(1))] == await waiting
    await compact(later)
    last = await written(allocations, CPU, made[0].revision, 2)
    assert [Stored(CPU, last, plan(2))] == await take(changes, 1)


async def test_compaction_loses_no_document(
    allocations: AllocationStore, compact: Callable[[int], Awaitable[None]]
) -> None:
    made = await versions(allocations, CPU, 2)
    later = await written(allocations, DISK, 0, 1)
    await compact(later)
    assert (made[-1].revision, plan(2)) == await allocations.read(CPU)


# -- identifiers --

ODD = [
    "a/b",
    "/",
    "..",
    "with space",
    "100%",
    "%2F",
    "+&=?#",
    "テナント",
    "فريق",
    "ÅÄÖ",
    "👩‍🚀",
    '"quoted"',
    "x" * 256,
    "é" * 128,
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_odd_identifiers_survive(allocations: AllocationStore, start: int, odd: str) -> None:
    keys = [QuotaKey(odd, "r", "s"), QuotaKey("t", odd, "s"), QuotaKey("t", "r", odd), QuotaKey(odd, odd, odd)]
    made = [Stored(key, await written(allocations, key, 0, 1), plan(1)) for key in keys]
    _, stored = await allocations.list()
    assert made == sorted(stored, key=lambda document: document.revision)
    assert made == await take(allocations.watch(start), 4)
    assert [(document.revision, plan(1)) for document in made] == [await allocations.read(key) for key in keys]


async def test_identifiers_that_look_alike_are_not_mixed_up(allocations: AllocationStore) -> None:
    keys = [
        QuotaKey("a/b", "c", "d"),
        QuotaKey("a", "b/c", "d"),
        QuotaKey("a", "b", "c/d"),
        QuotaKey("a%2Fb", "c", "d"),
    ]
    for amount, key in enumerate(keys):
        await written(allocations, key, 0, amount)
    found = [await allocations.read(key) for key in keys]
    assert [plan(amount) for amount in range(4)] == [allocation for _, allocation in found]


# -- in memory --


def by_hand(call: Coroutine[Any, Any, T]) -> T:
    """Drive a call to its end; it fails if the call waits for anything."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


def test_in_memory_no_call_needs_an_event_loop(memory: MemoryCoordination) -> None:
    session = by_hand(memory.open_session(60))
    fence = by_hand(memory.lead(session, "me"))
    revision = by_hand(memory.swap(CPU, 0, plan(1), fence))
    assert (revision, plan(1)) == by_hand(memory.read(CPU))
    assert by_hand(session.keep())
    by_hand(session.close())
    assert {} == by_hand(memory.leadership()).leaders


async def test_in_memory_compaction_tells_a_watch_that_lags(memory: MemoryCoordination) -> None:
    made = await versions(memory, CPU, 4)
    changes = memory.watch(0)
    assert made[:1] == await take(changes, 1)
    memory.compact(made[-1].revision)
    with pytest.raises(CompactedError):
        await take(changes, 1)


@pytest.mark.parametrize("revision", [0, 3])
def test_in_memory_compaction_refuses_what_etcd_refuses(memory: MemoryCoordination, revision: int) -> None:
    with pytest.raises(ValueError, match="revision must be from 1 to 1"):
        memory.compact(revision)
