"""One planning round: look at everything, write the few moves and grants that the planner wants.

A round may be abandoned anywhere and repeated by anyone; every write is one fenced compare-and-swap.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from regionquota.coordinator.carrying_out import Round, carry_out
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.known_regions import KnownRegions
from regionquota.coordinator.leading import Led
from regionquota.coordinator.urgent import Heard
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand, Need, by_quota, needs, needs_of
from regionquota.core.eviction import evict, release_ended
from regionquota.core.groups import group_of
from regionquota.core.periods import Calendar, epoch_of, period_end
from regionquota.core.quota import Kind, QuotaKey, Region, bucket_of
from regionquota.core.rebalancing import Plan, Policy, RegionState, plan, smallest_move
from regionquota.core.relief import relieve
from regionquota.errors import UnreadableDocument
from regionquota.ports import AllocationStore, Directory, RegionRecord, RegionStatus, Stored


async def run_round(
    records: Mapping[Region, RegionRecord],
    allocations: AllocationStore,
    directory: Directory,
    led: Led,
    policy: Policy,
    *,
    round_s: float,
    now: float,
    new_id: Callable[[], str],
    regions: KnownRegions | None = None,
    known: Shelves | None = None,
    writes_at_once: int = 1,
) -> Round:
    """Of what is led. Of `known` documents only the active are looked at; of a group that is not known all are read."""
    states = {name: state_of(record) for name, record in records.items()}
    reports = await directory.demand(led.buckets)
    said = by_quota(reports)
    evicted_before = [name for name, record in records.items() if record.is_evicted]
    able = [name for name, state in states.items() if state.takes_part]
    active, documents = await _to_look_at(led, allocations, known, said, evicted_before, able)
    evicted = await _still_evicted(records, regions or KnownRegions(directory))

    def wanted(keys: Sequence[QuotaKey], documents: Sequence[Allocation]) -> Sequence[tuple[Allocation, Plan]]:
        settled = [_without_evicted(document, evicted, now) for document in documents]
        heard = [needs_of(said.get(key, ()), now) for key in keys]
        return [
            (document, plan(document, needed, states, policy, round_s, period_left(document, now)))
            for document, needed in zip(settled, heard, strict=True)
        ]

    def find(key: QuotaKey) -> Allocation | None:
        stored = documents[group_of(key, led.groups)].get(key)
        return None if stored is None else stored.allocation

    done = await carry_out(active, reports, wanted, allocations, led, now, new_id, writes_at_once)
    return replace(done, find=find)


async def _to_look_at(
    led: Led,
    allocations: AllocationStore,
    known: Shelves | None,
    reported: Iterable[QuotaKey],
    evicted: Collection[Region],
    able: Collection[Region],
) -> tuple[Sequence[Stored], Mapping[int, Mapping[QuotaKey, Stored]]]:
    """The active documents, and by group all there are."""
    reported_of: dict[int, list[QuotaKey]] = {}
    for key in reported:
        reported_of.setdefault(group_of(key, led.groups), []).append(key)
    active: list[Stored] = []
    documents: dict[int, Mapping[QuotaKey, Stored]] = {}
    for group, buckets in led.parts():
        shelf = None if known is None else known.complete(group)
        if shelf is None:
            _, listed = await allocations.list(buckets)
            active += listed
            documents[group] = {stored.key: stored for stored in listed}
        else:
            active += shelf.active(reported_of.get(group, ()), evicted, able)
            documents[group] = shelf.all
    return active, documents


async def run_urgent(
    heard: Heard,
    regions: KnownRegions,
    reports: Sequence[tuple[Region, Demand]],
    allocations: AllocationStore,
    directory: Directory,
    led: Led,
    policy: Policy,
    *,
    round_s: float,
    now: float,
    new_id: Callable[[], str],
    known: Shelves | None = None,
    writes_at_once: int = 1,
) -> Round:
    """Only what is cried for and led, by what its regions have just said; of other regions by their last report.

    Somebody waits for this, and each read is a round trip: where the pool and those who were idle at the last of
    `reports` can serve it, nothing is read but what has changed meanwhile.
    """
    states = {name: state_of(record) for name, record in regions.records.items()}
    short: dict[QuotaKey, set[Region]] = {}
    for region, word in heard.short:
        if word.key in led:
            short.setdefault(word.key, set()).add(region)
    documents, unread = await _read(short, led, allocations, known)
    said = _words_on(short, heard, reports)
    demand = needs(said, now)

    def relief_of(key: QuotaKey, allocation: Allocation) -> Plan:
        needed = demand.get(key, _NOBODY)
        smallest = smallest_move(allocation.limit, policy)
        return relieve(allocation, needed, short[key], states, smallest, period_left(allocation, now))

    def wanted(keys: Sequence[QuotaKey], allocations: Sequence[Allocation]) -> Sequence[tuple[Allocation, Plan]]:
        return [(one, relief_of(key, one)) for key, one in zip(keys, allocations, strict=True)]

    def is_certain(key: QuotaKey, allocation: Allocation) -> bool:
        relief = relief_of(key, allocation)
        few = smallest_move(allocation.limit, policy) / round_s
        helped = relief.grants.keys() | {move.target for move in relief.moves}
        said_of = demand.get(key, _NOBODY)
        return helped >= short[key] and all(_is_idle(said_of.get(move.source), few) for move in relief.moves)

    if not all(is_certain(one.key, one.allocation) for one in documents if one.allocation is not None):
        # Those of the last round may know nothing of a region that was frozen, or evicted, since.
        states = {name: state_of(stored.record) for name, stored in (await regions.regions()).items()}
        said = _words_on(short, heard, await directory.demand({bucket_of(key.tenant) for key in short}))
        demand = needs(said, now)
    done = await carry_out(documents, said, wanted, allocations, led, now, new_id, writes_at_once)
    if not done.lost:
        return replace(done, failed=[*unread, *done.failed])
    documents, unread = await _read(short, led, allocations)
    again = await carry_out(documents, said, wanted, allocations, led, now, new_id, writes_at_once)
    return replace(
        again, granted=done.granted + again.granted, moves=[*done.moves, *again.moves], failed=[*unread, *again.failed]
    )


def _is_idle(need: Need | None, few: float) -> bool:
    """Whether fewer than `few` units a second are asked of it, so that it does not matter how old the word is."""
    return need is not None and max(0.0, need.growth) + need.denied < few


async def _read(
    keys: Iterable[QuotaKey], led: Led, allocations: AllocationStore, known: Shelves | None = None
) -> tuple[Sequence[Stored], Sequence[tuple[QuotaKey, str]]]:
    """Those that are `known` or can be read, and the others with why not."""
    documents: list[Stored] = []
    unread: list[tuple[QuotaKey, str]] = []
    for key in keys:
        shelf = None if known is None else known.complete(group_of(key, led.groups))
        found = None if shelf is None else shelf.all.get(key)
        try:
            documents.append(Stored(key, *await allocations.read(key)) if found is None else found)
        except UnreadableDocument as error:
            unread.append((key, repr(error)))
    return documents, unread


def _words_on(
    keys: Collection[QuotaKey], heard: Heard, reports: Sequence[tuple[Region, Demand]]
) -> Sequence[tuple[Region, Demand]]:
    """The newest of each region."""
    newer = {(region, word.key) for region, word in heard.lately}
    said = [(at, word) for at, word in reports if word.key in keys and (at, word.key) not in newer]
    return said + [(at, word) for at, word in heard.lately if word.key in keys]


_NOBODY: Mapping[Region, Need] = {}


def period_left(allocation: Allocation, now: float) -> float | None:
    """Seconds; None where periods have no end."""
    return _period_left(allocation.kind, allocation.policy.calendar, now)


@lru_cache(maxsize=1024)
def _period_left(kind: Kind, calendar: Calendar, now: float) -> float | None:
    """Most quotas of a round have the same few calendars."""
    end = period_end(kind, epoch_of(kind, now, calendar), calendar)
    return None if end is None else max(0.0, end.timestamp() - now)


def state_of(record: RegionRecord) -> RegionState:
    return RegionState(
        weight=record.weight,
        frozen=record.frozen is not None or record.is_evicted,
        draining=record.status is RegionStatus.DRAINING,
    )


async def _still_evicted(records: Mapping[Region, RegionRecord], regions: KnownRegions) -> Sequence[Region]:
    """To be asked once the documents were read: what a region was given after it was readmitted is not in them yet."""
    evicted = [name for name, record in records.items() if record.is_evicted]
    if not evicted:
        return ()
    now = await regions.regions()
    return [name for name in evicted if name in now and now[name].record.is_evicted]


def _without_evicted(allocation: Allocation, evicted: Sequence[Region], now: float) -> Allocation:
    """What an eviction has left to do: an operator's command may have been interrupted, or a claim came late."""
    for name in evicted:
        allocation = evict(allocation, name, now)
    return release_ended(allocation, now)
