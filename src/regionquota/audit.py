"""Checks a running deployment: what etcd says, what the regions hold, and what their ledgers add up to."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import Unavailable
from regionquota.ports import AllocationStore, RegionStore

MAX_LOOKS: Final = 10
"""A region that moves while it is looked at is looked at again, at most so often."""


class Verdict(StrEnum):
    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`difference` None where it holds. `checked` counts documents, slices or counters."""

    check: str
    region: Region | None
    checked: int
    verdict: Verdict
    difference: str | None = None


async def audit(allocations: AllocationStore, stores: Mapping[Region, RegionStore]) -> AsyncIterator[Finding]:
    """Finds differences, also while the deployment is at work; a finding per check and region."""
    yield await _invariant_a(allocations)
    for region, store in stores.items():
        yield await _guarded("invariant B: slice in Postgres <= slice in etcd", region, allocations, store)
        yield await _guarded("counters = ledgers", region, None, store)


async def _guarded(check: str, region: Region, allocations: AllocationStore | None, store: RegionStore) -> Finding:
    """What cannot be looked at is unknown, never fine."""
    try:
        if allocations is not None:
            checked, difference = await _invariant_b(allocations, region, store)
        else:
            checked, difference = await _balances(region, store)
    except Unavailable as error:
        return Finding(check, region, 0, Verdict.UNKNOWN, str(error))
    verdict = Verdict.HOLDS if difference is None else Verdict.VIOLATED
    return Finding(check, region, checked, verdict, difference)


async def _invariant_a(allocations: AllocationStore) -> Finding:
    """An allocation that does not add up cannot be built, so what cannot be read is what does not hold."""
    check = "invariant A: pool + retired + slices = limit"
    try:
        _, documents = await allocations.list()
        damaged = await allocations.damaged()
    except Unavailable as error:
        return Finding(check, None, 0, Verdict.UNKNOWN, str(error))
    if damaged:
        return Finding(check, None, len(documents), Verdict.VIOLATED, damaged[0])
    return Finding(check, None, len(documents), Verdict.HOLDS)


async def _invariant_b(allocations: AllocationStore, region: Region, store: RegionStore) -> tuple[int, str | None]:
    held = await store.holdings()
    _, documents = await allocations.list()
    owned = {stored.key: stored for stored in documents}
    for holding in held:
        stored = owned.get(holding.key)
        size = stored.allocation.slice_of(region) if stored is not None and stored.allocation is not None else 0
        if holding.slice > size:
            difference = await _look_closer(allocations, region, store, holding.key)
            if difference is not None:
                return len(held), difference
    return len(held), None


async def _look_closer(allocations: AllocationStore, region: Region, store: RegionStore, key: QuotaKey) -> str | None:
    """The two reads are not one instant: only a slice that has heard of nothing newer than the document counts."""
    before = None
    for _ in range(MAX_LOOKS):
        revision, allocation = await allocations.read(key)
        holding = await store.holding(key)
        size = 0 if allocation is None else allocation.slice_of(region)
        if holding is None or holding.slice <= size:
            return None
        # The same twice, with a read of etcd in between: it does not move, whatever its revision says.
        if holding.revision <= revision or before == (revision, holding):
            return (
                f"{key}: {region} holds {holding.slice} in Postgres, having heard of revision {holding.revision}, "
                f"but owns {size} in etcd"
                + (f" at revision {revision}" if revision else ", where there is no such quota")
            )
        before = revision, holding
    return f"{key}: {region} changed {MAX_LOOKS} times while it was looked at, always holding more than it owned"


async def _balances(region: Region, store: RegionStore) -> tuple[int, str | None]:
    checks = await store.check_balances()
    for one in checks:
        for name, says, replayed in one.differences():
            said = f"{one.key} epoch {one.epoch}: {region}'s counter says {name} {says}, its ledgers {replayed}"
            return len(checks), said
    return len(checks), None
