"""What a round writes of its plans."""

import itertools
from collections.abc import Collection, Sequence

import pytest
from tests.clocks import HandClock
from tests.core.builders import QUOTA, allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.carrying_out import Round, carry_out
from regionquota.coordinator.leading import Led
from regionquota.core.allocation import Allocation, Move
from regionquota.core.quota import QuotaKey
from regionquota.core.rebalancing import Plan, PlannedMove
from regionquota.ports import Stored


async def carried_out(etcd: MemoryCoordination, planned: Plan, bad: Collection[QuotaKey] = ()) -> Round:
    """Of every document the same is planned, but for the `bad`, of which nothing can be."""
    fence = await etcd.lead(await etcd.open_session(60), "one")
    assert fence is not None

    def wanted(keys: Sequence[QuotaKey], documents: Sequence[Allocation]) -> Sequence[tuple[Allocation, Plan]]:
        if any(key in bad for key in keys):
            raise ArithmeticError("cannot be planned")
        return [(document, planned) for document in documents]

    _, documents = await etcd.list()
    ids = itertools.count()
    gone = Stored(QuotaKey("gone", "vcpu"), 1, None)
    return await carry_out(
        [gone, *documents, gone], (), wanted, etcd, Led(1, {0: fence}), 0.0, lambda: f"move-{next(ids)}", 8
    )


@pytest.mark.parametrize("count", [99, 100, 101, 250])
async def test_each_quota_is_planned_once_and_those_that_cannot_be_fail_alone(count: int) -> None:
    etcd = MemoryCoordination(HandClock(0.0))
    keys = [QuotaKey(f"tenant-{number}", "vcpu") for number in range(count)]
    for key in keys:
        await etcd.swap(key, 0, allocation(100, eu=50))
    bad = keys[::99]
    done = await carried_out(etcd, Plan({"us": 1}, [PlannedMove("eu", "us", 5)]), bad)
    assert sorted(bad) == sorted(key for key, _ in done.failed)
    assert (count - len(bad), count - len(bad)) == (done.granted, len({move.id for _, move in done.moves}))
    assert {key: 0 if key in bad else 1 for key in keys} == {
        key: document.slice_of("us") for key in keys if (document := (await etcd.read(key))[1]) is not None
    }


@pytest.mark.parametrize(
    ("wanted", "stands"),
    [
        ([("eu", None, 20), ("eu", "us", 10), ("ap", "us", 5)], False),
        ([("ap", "us", 5), ("eu", "us", 10), ("eu", None, 20)], True),
    ],
)
async def test_a_donor_is_to_give_in_the_order_that_is_wanted_now(
    wanted: list[tuple[str, str | None, int]], stands: bool
) -> None:
    """As it gives in that order: what is wanted of several donors needs none."""
    moves = [Move("a", "eu", "us", 10), Move("b", "eu", None, 20), Move("c", "ap", "us", 5)]
    etcd = MemoryCoordination(HandClock(0.0))
    await etcd.swap(QUOTA, 0, allocation(100, moves=moves, eu=60, ap=40))
    before, _ = await etcd.read(QUOTA)
    done = await carried_out(etcd, Plan({}, [PlannedMove(*one) for one in wanted]))
    after, document = await etcd.read(QUOTA)
    assert document is not None
    assert (stands, []) == (before == after, done.moves)
    asked = [(move.target, move.amount) for move in document.moves_from("eu")]
    assert [(target, amount) for source, target, amount in wanted if source == "eu"] == asked
