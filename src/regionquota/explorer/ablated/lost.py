"""Safeguards around an etcd that went backwards, and regions that are evicted."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from regionquota import evictions
from regionquota.adapters.memory import region_store
from regionquota.adapters.memory.histories import BoundAllocations
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core import slice as slices
from regionquota.core.allocation import Allocation
from regionquota.core.eviction import evict
from regionquota.core.history import Seen, Standing
from regionquota.core.quota import Region
from regionquota.explorer import rescuers
from regionquota.recovery import heard
from regionquota.region import trust
from regionquota.region.follower import Follower
from regionquota.region.trust import Trust

_adopt = MemoryRegionStore.adopt
_hand_over = Trust._hand_over


async def _trust_after_eviction(
    self: MemoryRegionStore, before: Standing | None, standing: Standing, *, distrust: bool = False
) -> bool:
    trusted = self.trusted
    adopted = await _adopt(self, before, standing, distrust=distrust)
    self.trusted = trusted
    return adopted


async def _keep_revisions(
    self: MemoryRegionStore, before: Standing | None, standing: Standing, *, distrust: bool = False
) -> bool:
    known = dict(self._holdings)
    adopted = await _adopt(self, before, standing, distrust=distrust)
    for key, held in self._holdings.items():
        self._holdings[key] = replace(held, revision=known[key].revision)
    return adopted


def _spent_nothing(allocation: Allocation, region: Region, now: float) -> Allocation:
    """What an evicted region owned goes back to the pool at once."""
    gone = evict(allocation, region, now)
    if gone is allocation or region not in gone.retired:
        return gone
    freed = gone.retired[region].units
    others = {name: one for name, one in gone.retired.items() if name != region}
    return replace(gone, retired=others, pool=gone.pool + freed)


async def _wait_for_nobody(*args: Any) -> Any:
    stated, _ = await heard(*args)
    return stated, ()


async def _nobody_says_anything(*args: Any) -> Any:
    """The documents of the snapshot are taken for what they say."""
    _, missing = await heard(*args)
    return {}, missing


async def _hand_over_even_so(self: Trust, *of: Any) -> bool:
    """As if it were not evicted: what moves ask of it is to be given first, and it may write nothing."""
    return await _hand_over(Trust(self._me, self._allocations, self._store, self._clock), *of)


async def _find_nothing_older(*_: Any) -> None:
    """Who compares a database would notice."""


ABLATED: Final[Sequence[tuple[Any, ...]]] = (
    (
        "backwards-noticed",
        "an etcd that went backwards is noticed: by its revisions, by its lists, or by its documents",
        (Seen, "note", lambda *_: None),
        (Follower, "_stop", lambda *_: None),
        (region_store, "refuse_contradiction", lambda *_: None),
        (trust, "refuse_older", _find_nothing_older),
    ),
    (
        "contradiction-noticed",
        "a newer document by which a region owns less than it holds shows that etcd went backwards",
        (region_store, "refuse_contradiction", lambda *_: None),
    ),
    (
        "standing-compared",
        "what was read in a former history changes no slice",
        (MemoryRegionStore, "require_standing", lambda *_: None),
    ),
    (
        "history-compared",
        "what was read in a former history is not written in another",
        (BoundAllocations, "_check", lambda *_: None),
    ),
    ("all-have-stated", "a recovery waits for every region", (rescuers, "heard", _wait_for_nobody)),
    ("documents-rebuilt", "documents are made of what the regions hold", (rescuers, "heard", _nobody_says_anything)),
    (
        "evicted-not-trusted",
        "an evicted region that is back is compared first",
        (MemoryRegionStore, "adopt", _trust_after_eviction),
    ),
    (
        "evicted-compared",
        "an evicted region is compared also while moves name it",
        (Trust, "_hand_over", _hand_over_even_so),
    ),
    (
        "revisions-forgotten",
        "a new history's revisions are newer than all before",
        (MemoryRegionStore, "adopt", _keep_revisions),
        (trust, "refuse_older", _find_nothing_older),
    ),
    (
        "evicted-owns-nothing",
        "until it is readmitted a region owns nothing, whatever documents say",
        (slices, "evict", lambda allocation, *_: allocation),
    ),
    (
        "retired-counts",
        "what an evicted region owned counts as spent until there is evidence",
        (evictions, "evict", _spent_nothing),
    ),
)
