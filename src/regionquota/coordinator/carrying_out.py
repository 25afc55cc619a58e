"""Writes what was planned: one fenced compare-and-swap for each document that is to change."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from regionquota.coordinator.leading import Led
from regionquota.core.allocation import Allocation, Move, grant_and_request
from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.rebalancing import Plan, PlannedMove
from regionquota.loops import each
from regionquota.ports import AllocationStore, Stored

_PLANNED_AT_ONCE: Final = 100
"""Quotas, some 5 ms: then whatever keeps the leader's lease has its turn. Each step is done for all of them before the
next, which takes a third less time than one quota after the other: a processor holds the code of one step at hand.
"""
Wanted: TypeAlias = Callable[[Sequence[QuotaKey], Sequence[Allocation]], Sequence[tuple[Allocation, Plan]]]
"""Of each quota: what its document should say before anything moves, and what is to move."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did. `lost` counts documents that somebody else changed first: the next round sees them.

    `find` looks a document up among all that are led.
    """

    demand: Sequence[tuple[Region, Demand]]
    granted: int
    moves: Sequence[tuple[QuotaKey, Move]]
    lost: int
    failed: Sequence[tuple[QuotaKey, str]] = ()
    find: Callable[[QuotaKey], Allocation | None] = lambda _: None


class _Change(NamedTuple):
    stored: Stored
    planned: Plan
    after: Allocation

    @property
    def new_moves(self) -> Sequence[Move]:
        before = () if self.stored.allocation is None else self.stored.allocation.moves
        return [move for move in self.after.moves if move not in before]


async def carry_out(
    documents: Collection[Stored],
    reports: Sequence[tuple[Region, Demand]],
    wanted: Wanted,
    allocations: AllocationStore,
    led: Led,
    now: float,
    new_id: Callable[[], str],
    writes_at_once: int,
) -> Round:
    changes: list[_Change] = []
    failed: list[tuple[QuotaKey, str]] = []
    waiting = iter([stored for stored in documents if stored.allocation is not None])
    while several := list(islice(waiting, _PLANNED_AT_ONCE)):
        await asyncio.sleep(0)
        try:
            changes += _planned(several, wanted, now, new_id)
        except Exception:  # noqa: BLE001 - one quota that cannot be planned must not stop the others
            changes += _planned_singly(several, wanted, now, new_id, failed)
    written: list[_Change] = []

    async def write(change: _Change) -> None:
        key = change.stored.key
        if await allocations.swap(key, change.stored.revision, change.after, led.fence_of(key)) is not None:
            written.append(change)

    await each(changes, write, writes_at_once)
    return Round(
        reports,
        granted=sum(sum(change.planned.grants.values()) for change in written),
        moves=[(change.stored.key, move) for change in written for move in change.new_moves],
        lost=len(changes) - len(written),
        failed=failed,
    )


def _planned(several: Sequence[Stored], wanted: Wanted, now: float, new_id: Callable[[], str]) -> Sequence[_Change]:
    documents = [stored.allocation for stored in several if stored.allocation is not None]
    plans = wanted([stored.key for stored in several], documents)
    after = [_carry_into(settled, planned, now, new_id) for settled, planned in plans]
    return [
        _Change(stored, planned, changed)
        for stored, (_, planned), changed in zip(several, plans, after, strict=True)
        if changed is not stored.allocation
    ]


def _planned_singly(
    several: Sequence[Stored],
    wanted: Wanted,
    now: float,
    new_id: Callable[[], str],
    failed: list[tuple[QuotaKey, str]],
) -> Sequence[_Change]:
    changes: list[_Change] = []
    for stored in several:
        try:
            changes += _planned((stored,), wanted, now, new_id)
        except Exception as error:  # noqa: BLE001 - as above
            failed.append((stored.key, repr(error)))
    return changes


def _carry_into(allocation: Allocation, wanted: Plan, now: float, new_id: Callable[[], str]) -> Allocation:
    """The document with the plan in it; the very same object if that changes nothing."""
    moves = allocation.moves
    if moves or wanted.moves:
        moves = _requested(moves, wanted.moves, now, new_id)
    if moves is allocation.moves and not wanted.grants:
        return allocation
    return grant_and_request(allocation, wanted.grants, moves)


def _requested(
    standing: Sequence[Move], wanted: Sequence[PlannedMove], now: float, new_id: Callable[[], str]
) -> Sequence[Move]:
    """`standing` itself if those are what is wanted, of each donor in the same order.

    A move that is still wanted as it stands keeps its id and its time, so that waiting for a donor costs no write.
    """
    known = {(move.source, move.target, move.amount): move for move in standing}
    moves = tuple(
        known.get((move.source, move.target, move.amount))
        or Move(new_id(), move.source, move.target, move.amount, now, move.believed)
        for move in wanted
    )
    return standing if _by_donor(moves) == _by_donor(standing) else moves


def _by_donor(moves: Sequence[Move]) -> Sequence[Move]:
    return sorted(moves, key=attrgetter("source"))
