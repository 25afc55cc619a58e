"""Invariant B over a whole scenario: each region's slice ledger against every revision of the allocations. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

from regionquota.chaos.books import Books, SliceRow
from regionquota.chaos.check import Failover
from regionquota.core.allocation import Allocation
from regionquota.core.invariants import SliceChange, check_slices
from regionquota.core.quota import QuotaKey, Region

Revisions: TypeAlias = Sequence[tuple[int, Allocation]]


def slice_differences(
    history: Mapping[QuotaKey, Revisions],
    books: Mapping[Region, Books],
    failovers: Mapping[Region, Failover] | None = None,
) -> Iterator[str]:
    """A region that failed over has two histories: the dead server's to its end, and from the first comparison on
    what the copy has written. In between nothing is admitted in the copy, whatever it holds; that is checked by
    what callers were told.
    """
    for key, revisions in history.items():
        changes: dict[Region, list[SliceChange]] = {}
        resumed: dict[Region, list[SliceChange]] = {}
        for region, one in books.items():
            failover = (failovers or {}).get(region)
            rows = _of(key, region, one.slices)
            if failover is None:
                changes[region] = rows
                continue
            before = _of(key, region, failover.dead.slices)
            common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(rows, before, strict=False))))
            resumed[region] = rows[common:]
            changes[region] = [*before, *_end(before, failover.revision)]
        yield from check_slices(revisions, changes).differences
        # The first row of the copy says what it held before it was compared, which is what had to be corrected.
        yield from check_slices(revisions, resumed).differences


def _of(key: QuotaKey, region: Region, rows: Sequence[SliceRow]) -> list[SliceChange]:
    return [SliceChange(key, region, row.revision, row.before, row.after) for row in rows if row.key == key]


def _end(dead: Sequence[SliceChange], revision: int) -> Iterator[SliceChange]:
    """The dead server held its last slice until it died."""
    if dead and dead[-1].after:
        last = dead[-1]
        yield SliceChange(last.key, last.region, max(last.revision, revision), last.after, 0)
