"""Writes what was planned: one fenced compare-and-swap for each document that is to change."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from regionquota.coordinator.leading import Led
from regionquota.core.allocation import Allocation, Move, grant_and_request
from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.rebalancing import Plan, PlannedMove
from regionquota.loops import each
from regionquota.ports import AllocationStore, Stored

_PLANNED_AT_ONCE: Final = 500
"""Quotas, some 50 ms: then whatever keeps the leader's lease has its turn."""


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
    wanted: Callable[[QuotaKey, Allocation], tuple[Allocation, Plan]],
    allocations: AllocationStore,
    led: Led,
    now: float,
    new_id: Callable[[], str],
    writes_at_once: int,
) -> Round:
    """`wanted` says of each document what it should say before anything moves, and what is to move."""
    changes: list[_Change] = []
    failed: list[tuple[QuotaKey, str]] = []
    for number, stored in enumerate(documents, 1):
        if number % _PLANNED_AT_ONCE == 0:
            await asyncio.sleep(0)
        if stored.allocation is None:
            continue
        try:
            settled, planned = wanted(stored.key, stored.allocation)
            after = _carry_into(settled, planned, now, new_id)
        except Exception as error:  # noqa: BLE001 - one quota that cannot be planned must not stop the others
            failed.append((stored.key, repr(error)))
            continue
        if after is not stored.allocation:
            changes.append(_Change(stored, planned, after))
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
    """`standing` itself if those are what is wanted.

    A move that is still wanted as it stands keeps its id and its time, so that waiting for a donor costs no write.
    """
    known = {(move.source, move.target, move.amount): move for move in standing}
    moves = tuple(
        known.get((move.source, move.target, move.amount))
        or Move(new_id(), move.source, move.target, move.amount, now, move.believed)
        for move in wanted
    )
    return standing if set(moves) == set(standing) else moves
