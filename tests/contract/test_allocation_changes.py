"""What every `AllocationStore` promises of changes to several documents at once, and of removals."""

from contextlib import aclosing

import pytest
from tests.contract.test_allocation_store import CPU, DISK, plan, start, take, written

from regionquota.ports import AllocationStore, Stored

__all__ = ["start"]


async def test_several_documents_are_written_at_one_revision(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    new = await allocations.swap_all([(CPU, first, plan(2)), (DISK, 0, plan(3))])
    assert new is not None
    assert [(new, plan(2)), (new, plan(3))] == [await allocations.read(key) for key in (CPU, DISK)]


@pytest.mark.parametrize("stale", [0, 1], ids=["the first", "the last"])
async def test_of_several_documents_none_is_written_when_one_has_changed(
    allocations: AllocationStore, stale: int
) -> None:
    revisions = [await written(allocations, key, 0, 1) for key in (CPU, DISK)]
    revisions[stale] -= 1
    changes = [(key, revision, plan(2)) for key, revision in zip((CPU, DISK), revisions, strict=True)]
    assert await allocations.swap_all(changes) is None
    assert [plan(1), plan(1)] == [(await allocations.read(key))[1] for key in (CPU, DISK)]


async def test_of_several_documents_none_is_written_when_one_exists_already(allocations: AllocationStore) -> None:
    await written(allocations, DISK, 0, 1)
    assert await allocations.swap_all([(CPU, 0, plan(2)), (DISK, 0, plan(2))]) is None
    assert (0, None) == await allocations.read(CPU)


async def test_who_watches_sees_several_documents_of_one_revision(allocations: AllocationStore, start: int) -> None:
    new = await allocations.swap_all([(CPU, 0, plan(2)), (DISK, 0, plan(3))])
    assert new is not None
    async with aclosing(allocations.watch(start)) as changes:
        found = await take(changes, 2)
    assert [Stored(CPU, new, plan(2)), Stored(DISK, new, plan(3))] == sorted(
        found, key=lambda one: one.key, reverse=True
    )


async def test_a_document_that_is_removed_is_gone(allocations: AllocationStore) -> None:
    revision = await written(allocations, CPU, 0, 1)
    assert await allocations.remove(CPU, revision)
    assert (0, None) == await allocations.read(CPU)
    _, listed = await allocations.list()
    assert [] == [one for one in listed if one.key == CPU]


async def test_a_document_that_has_changed_is_not_removed(allocations: AllocationStore) -> None:
    first = await written(allocations, CPU, 0, 1)
    second = await written(allocations, CPU, first, 2)
    assert not await allocations.remove(CPU, first)
    assert (second, plan(2)) == await allocations.read(CPU)


async def test_what_was_removed_cannot_be_removed_again_and_can_be_made_again(allocations: AllocationStore) -> None:
    revision = await written(allocations, CPU, 0, 1)
    await allocations.remove(CPU, revision)
    assert not await allocations.remove(CPU, revision)
    assert await allocations.swap(CPU, revision, plan(2)) is None
    assert revision < await written(allocations, CPU, 0, 2)


async def test_who_watches_sees_a_removal(allocations: AllocationStore) -> None:
    revision = await written(allocations, CPU, 0, 1)
    await allocations.remove(CPU, revision)
    async with aclosing(allocations.watch(revision)) as changes:
        (seen,) = await take(changes, 1)
    assert (CPU, None) == (seen.key, seen.allocation)
    assert revision < seen.revision
