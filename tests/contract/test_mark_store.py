"""What every `MarkStore` promises."""

import pytest
from tests.contract.conftest import Coordination

from regionquota.alert_ports import MarkStore, StoredMark
from regionquota.core.alerts import Mark
from regionquota.core.quota import QuotaKey
from regionquota.ports import Directory, Fence, Session

CPU = QuotaKey("acme", "vcpu")
TOLD = Mark(80, epoch=24_317, at=1_800_000_000.25)
MORE = Mark(100, epoch=24_317, at=1_800_000_060.5)


@pytest.fixture
def marks(coordination: Coordination) -> MarkStore:
    return coordination.marks


@pytest.fixture
async def session(directory: Directory) -> Session:
    return await directory.open_session(60)


@pytest.fixture
async def fence(directory: Directory, session: Session) -> Fence:
    fence = await directory.lead(session, "me")
    assert fence is not None
    return fence


async def written(marks: MarkStore, key: QuotaKey, revision: int, mark: Mark | None, fence: Fence) -> int:
    new = await marks.swap_mark(key, revision, mark, fence)
    assert new is not None
    return new


async def test_nothing_is_marked_at_first(marks: MarkStore) -> None:
    assert {} == await marks.marks()


async def test_a_mark_is_read_as_it_was_written(marks: MarkStore, fence: Fence) -> None:
    revision = await written(marks, CPU, 0, TOLD, fence)
    assert {CPU: StoredMark(revision, TOLD)} == await marks.marks()


async def test_a_mark_is_changed_and_deleted(marks: MarkStore, fence: Fence) -> None:
    first = await written(marks, CPU, 0, TOLD, fence)
    second = await written(marks, CPU, first, MORE, fence)
    assert {CPU: StoredMark(second, MORE)} == await marks.marks()
    await written(marks, CPU, second, None, fence)
    assert {} == await marks.marks()


async def test_only_one_of_two_marks_first(marks: MarkStore, fence: Fence) -> None:
    first = await written(marks, CPU, 0, TOLD, fence)
    assert await marks.swap_mark(CPU, 0, MORE, fence) is None
    assert {CPU: StoredMark(first, TOLD)} == await marks.marks()


@pytest.mark.parametrize("mark", [TOLD, None])
async def test_a_stale_revision_changes_no_mark(marks: MarkStore, fence: Fence, mark: Mark | None) -> None:
    first = await written(marks, CPU, 0, TOLD, fence)
    second = await written(marks, CPU, first, MORE, fence)
    assert await marks.swap_mark(CPU, first, mark, fence) is None
    assert {CPU: StoredMark(second, MORE)} == await marks.marks()


@pytest.mark.parametrize("mark", [MORE, None])
async def test_who_lost_the_lead_changes_no_mark(
    marks: MarkStore, session: Session, fence: Fence, mark: Mark | None
) -> None:
    first = await written(marks, CPU, 0, TOLD, fence)
    await session.close()
    assert await marks.swap_mark(CPU, first, mark, fence) is None
    assert {CPU: StoredMark(first, TOLD)} == await marks.marks()


@pytest.mark.parametrize("odd", ["a/b", "with space", "100%", "%2F", "東京", "x" * 256])
async def test_odd_quotas_are_marked(marks: MarkStore, fence: Fence, odd: str) -> None:
    keys = [QuotaKey(odd, "r", "s"), QuotaKey("t", odd, "s"), QuotaKey("t", "r", odd)]
    for key in keys:
        await written(marks, key, 0, TOLD, fence)
    assert set(keys) == set(await marks.marks())
