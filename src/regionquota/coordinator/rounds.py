"""One planning round: look at everything, write the few moves and grants that the planner wants.

A round may be abandoned anywhere and repeated by anyone; every write is one fenced compare-and-swap.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regionquota.coordinator.documents import Documents
from regionquota.coordinator.urgent import Heard
from regionquota.core.allocation import Allocation, Move, grant, request_moves
from regionquota.core.demand import Demand, Need, needs
from regionquota.core.eviction import evict, release_ended
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.rebalancing import Plan, Policy, RegionState, plan
from regionquota.core.relief import relieve
from regionquota.errors import UnreadableDocument
from regionquota.ports import AllocationStore, Directory, Fence, RegionRecord, RegionStatus, Stored


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did. `lost` counts documents that somebody else changed first: the next round sees them."""

    documents: Sequence[Stored]
    demand: Sequence[tuple[Region, Demand]]
    granted: int
    moves: Sequence[tuple[QuotaKey, Move]]
    lost: int
    failed: Sequence[tuple[QuotaKey, str]] = ()


async def run_round(
    records: Mapping[Region, RegionRecord],
    allocations: AllocationStore,
    directory: Directory,
    fence: Fence,
    policy: Policy,
    *,
    round_s: float,
    now: float,
    new_id: Callable[[], str],
    known: Documents | None = None,
) -> Round:
    """Of `known` documents only the active ones are looked at; where they are not known all are read."""
    states = {name: state_of(record) for name, record in records.items()}
    reports = await directory.demand()
    demand = needs(reports)
    evicted_before = any(record.is_evicted for record in records.values())
    if known is None or not known.is_complete:
        _, documents = await allocations.list()
        active: Collection[Stored] = documents
    else:
        documents = list(known.all)
        active = documents if evicted_before else known.active(demand)
    evicted = await _still_evicted(records, directory)

    def wanted(key: QuotaKey, allocation: Allocation) -> tuple[Allocation, Plan]:
        settled = _without_evicted(allocation, evicted, now)
        return settled, plan(settled, demand.get(key, _NOBODY), states, policy, round_s)

    done = await _carry_out(active, reports, wanted, allocations, fence, now, new_id)
    return replace(done, documents=documents)


async def run_urgent(
    heard: Heard,
    records: Mapping[Region, RegionRecord],
    allocations: AllocationStore,
    directory: Directory,
    fence: Fence,
    policy: Policy,
    *,
    now: float,
    new_id: Callable[[], str],
) -> Round:
    """Only what is cried for, by what its regions have just said; of other regions by their last report."""
    states = {name: state_of(record) for name, record in records.items()}
    short: dict[QuotaKey, set[Region]] = {}
    for region, word in heard.short:
        short.setdefault(word.key, set()).add(region)
    newer = {(region, word.key) for region, word in heard.lately}
    reports = [(at, word) for at, word in await directory.demand() if word.key in short and (at, word.key) not in newer]
    reports += [(at, word) for at, word in heard.lately if word.key in short]
    demand = needs(reports)
    documents, unread = await _read(short, allocations)

    def wanted(key: QuotaKey, allocation: Allocation) -> tuple[Allocation, Plan]:
        smallest = max(1, int(allocation.limit * policy.smallest_move_share))
        return allocation, relieve(allocation, demand.get(key, _NOBODY), short[key], states, smallest)

    done = await _carry_out(documents, reports, wanted, allocations, fence, now, new_id)
    return replace(done, failed=[*unread, *done.failed])


async def _read(
    keys: Iterable[QuotaKey], allocations: AllocationStore
) -> tuple[Sequence[Stored], Sequence[tuple[QuotaKey, str]]]:
    """Those that can be read, and the others with why not."""
    documents: list[Stored] = []
    unread: list[tuple[QuotaKey, str]] = []
    for key in keys:
        try:
            documents.append(Stored(key, *await allocations.read(key)))
        except UnreadableDocument as error:
            unread.append((key, repr(error)))
    return documents, unread


async def _carry_out(
    documents: Collection[Stored],
    reports: Sequence[tuple[Region, Demand]],
    wanted: Callable[[QuotaKey, Allocation], tuple[Allocation, Plan]],
    allocations: AllocationStore,
    fence: Fence,
    now: float,
    new_id: Callable[[], str],
) -> Round:
    """`wanted` says of each document what it should say before anything moves, and what is to move."""
    granted, lost = 0, 0
    moves: list[tuple[QuotaKey, Move]] = []
    failed: list[tuple[QuotaKey, str]] = []
    for stored in documents:
        if stored.allocation is None:
            continue
        before = stored.allocation
        try:
            settled, planned = wanted(stored.key, before)
            changed = _carry_into(settled, planned, now, new_id)
        except Exception as error:  # noqa: BLE001 - one quota that cannot be planned must not stop the others
            failed.append((stored.key, repr(error)))
            continue
        if changed is before:
            continue
        if await allocations.swap(stored.key, stored.revision, changed, fence) is None:
            lost += 1
            continue
        granted += sum(planned.grants.values())
        moves += [(stored.key, move) for move in changed.moves if move not in before.moves]
    return Round(tuple(documents), reports, granted, moves, lost, failed)


_NOBODY: Mapping[Region, Need] = {}


def state_of(record: RegionRecord) -> RegionState:
    return RegionState(
        weight=record.weight,
        frozen=record.frozen is not None or record.is_evicted,
        draining=record.status is RegionStatus.DRAINING,
    )


async def _still_evicted(records: Mapping[Region, RegionRecord], directory: Directory) -> Sequence[Region]:
    """To be asked once the documents were read: what a region was given after it was readmitted is not in them yet."""
    evicted = [name for name, record in records.items() if record.is_evicted]
    if not evicted:
        return ()
    now = await directory.regions()
    return [name for name in evicted if name in now and now[name].record.is_evicted]


def _without_evicted(allocation: Allocation, evicted: Sequence[Region], now: float) -> Allocation:
    """What an eviction has left to do: an operator's command may have been interrupted, or a claim came late."""
    for name in evicted:
        allocation = evict(allocation, name, now)
    return release_ended(allocation, now)


def _carry_into(allocation: Allocation, wanted: Plan, now: float, new_id: Callable[[], str]) -> Allocation:
    """The document with the plan in it; the very same object if that changes nothing.

    A move that is still wanted as it stands keeps its id and its time, so that waiting for a donor costs no write.
    """
    standing = {(move.source, move.target, move.amount): move for move in allocation.moves}
    moves = tuple(
        standing.get((move.source, move.target, move.amount))
        or Move(new_id(), move.source, move.target, move.amount, requested_at=now)
        for move in wanted.moves
    )
    changed = grant(allocation, wanted.grants) if wanted.grants else allocation
    return changed if set(moves) == set(allocation.moves) else request_moves(changed, moves)
