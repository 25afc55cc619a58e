"""What operators say of a region: each a read, a change of its record, and a compare-and-swap."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from regionquota.core.quota import MAX_WEIGHT, Region
from regionquota.errors import EtcdUnavailable, InvalidRequest
from regionquota.ports import Directory, Frozen, FrozenBy, RegionRecord, RegionStatus, StoredRegion

MAX_ATTEMPTS: Final = 20
"""Compare-and-swap attempts on one record before the operator is told to try again."""


async def set_weight(directory: Directory, region: Region, weight: int) -> RegionRecord:
    """Takes effect in the next round. Raises `InvalidRequest` for a weight outside 0 .. 10^7 or an unknown region."""
    if not 0 <= weight <= MAX_WEIGHT:
        raise InvalidRequest("weight", f"weight must be an integer from 0 to {MAX_WEIGHT}, got {weight}")
    return await _change(directory, region, lambda record: replace(record, weight=weight))


async def drain(directory: Directory, region: Region, *, back: bool = False) -> RegionRecord:
    """Let everything that is not used move elsewhere; `back` takes it back."""
    status = RegionStatus.ACTIVE if back else RegionStatus.DRAINING
    return await _change(directory, region, lambda record: replace(_present(record), status=status))


async def freeze(directory: Directory, region: Region, why: str, now: float) -> RegionRecord:
    """No move names the region and nothing is granted to it until an operator thaws it."""
    frozen = Frozen(FrozenBy.OPERATOR, now, why)
    return await _change(
        directory,
        region,
        lambda record: (
            record if record.frozen and record.frozen.by is FrozenBy.OPERATOR else replace(record, frozen=frozen)
        ),
    )


async def thaw(directory: Directory, region: Region) -> RegionRecord:
    """A region that is still unreachable is frozen again by the next round."""
    return await _change(directory, region, lambda record: replace(record, frozen=None))


def _present(record: RegionRecord) -> RegionRecord:
    if record.is_evicted:
        raise InvalidRequest("region", f"{record.name} is evicted: readmit it first (region readmit {record.name})")
    return record


def of_name(regions: Mapping[Region, StoredRegion], region: Region) -> StoredRegion:
    """Raises `InvalidRequest` for one that is not known."""
    if region not in regions:
        known = ", ".join(sorted(regions)) or "none yet"
        raise InvalidRequest("region", f'unknown region "{region}": known are {known}')
    return regions[region]


async def _change(directory: Directory, region: Region, change: Callable[[RegionRecord], RegionRecord]) -> RegionRecord:
    for _ in range(MAX_ATTEMPTS):
        stored = of_name(await directory.regions(), region)
        changed = change(stored.record)
        if changed == stored.record or await directory.swap_region(changed, stored.revision) is not None:
            return changed
    raise EtcdUnavailable(f"the record of {region} was changed by others {MAX_ATTEMPTS} times in a row: try again")
