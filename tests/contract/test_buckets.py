"""What every `AllocationStore` and `Directory` promises of those who want only some of the buckets."""

from collections.abc import Sequence
from contextlib import aclosing

from tests.contract.test_allocation_store import plan, start, take, written
from tests.contract.test_directory import LONG_S

from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, GROUPS, buckets_of, group_of
from regionquota.core.quota import QuotaKey
from regionquota.ports import AllocationStore, Directory, Stored

__all__ = ["start"]

KEYS = tuple(QuotaKey(f"tenant/{number}", "vcpu") for number in range(64))


async def all_written(allocations: AllocationStore) -> Sequence[Stored]:
    return [Stored(key, await written(allocations, key, 0, 1), plan(1)) for key in KEYS]


def of(group: int, documents: Sequence[Stored]) -> list[Stored]:
    return [stored for stored in documents if group_of(stored.key) == group]


def in_order(documents: Sequence[Stored]) -> list[Stored]:
    return sorted(documents, key=lambda stored: stored.key)


async def test_each_document_is_in_the_list_of_its_group_alone(allocations: AllocationStore) -> None:
    documents = await all_written(allocations)
    for group in range(GROUPS):
        _, found = await allocations.list(buckets_of(group))
        assert in_order(of(group, documents)) == in_order(found)
    _, found = await allocations.list(ALL_BUCKETS)
    assert in_order(documents) == in_order(found)


async def test_a_watch_hears_of_its_buckets_alone(allocations: AllocationStore, start: int) -> None:
    documents = await all_written(allocations)
    for group in (0, 7, GROUPS - 1):
        async with aclosing(allocations.watch(start, buckets_of(group))) as changes:
            assert in_order(of(group, documents)) == in_order(await take(changes, len(of(group, documents))))


async def test_demand_is_told_of_the_buckets_that_are_asked_for(directory: Directory) -> None:
    words = [Demand(key, 1, 1, 0) for key in KEYS]
    await directory.report(await directory.open_session(LONG_S), "eu", "host-1", words)
    for group in range(GROUPS):
        found = await directory.demand(buckets_of(group))
        assert [("eu", word) for word in words if group_of(word.key) == group] == list(found)
    some = {*buckets_of(3), *buckets_of(9)}
    assert {3, 9} == {group_of(word.key) for _, word in await directory.demand(some)}
