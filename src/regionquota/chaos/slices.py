"""Invariant B over a whole scenario: each region's slice ledger against every revision of the allocations. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from regionquota.chaos.books import Books, SliceRow
from regionquota.chaos.check import Failover
from regionquota.core.allocation import Allocation
from regionquota.core.invariants import SliceChange, check_slices
from regionquota.core.quota import QuotaKey, Region

Revisions: TypeAlias = Sequence[tuple[int, Allocation]]


@dataclass(frozen=True, slots=True)
class Former:
    """A history of etcd that was followed by another one; nothing moved between the two. What was written before
    `ended_at` (seconds since 1970) answers the former, what was written later the one that follows.
    """

    ended_at: float
    history: Mapping[QuotaKey, Revisions]


def slice_differences(
    history: Mapping[QuotaKey, Revisions],
    books: Mapping[Region, Books],
    failovers: Mapping[Region, Failover] | None = None,
    *,
    former: Former | None = None,
) -> Iterator[str]:
    """A region that failed over has two ledgers: the dead server's to its end, and from the first comparison on
    what the copy has written. In between nothing is admitted in the copy, whatever it holds; that is checked by
    what callers were told.
    """
    for key, revisions in history.items():
        changes: dict[Region, list[SliceChange]] = {}
        resumed: dict[Region, list[SliceChange]] = {}
        before: dict[Region, list[SliceChange]] = {}
        for region, one in books.items():
            failover = (failovers or {}).get(region)
            rows = [row for row in one.slices if row.key == key]
            if failover is not None:
                dead = [row for row in failover.dead.slices if row.key == key]
                common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(rows, dead, strict=False))))
                resumed[region] = _of(region, rows[common:])
                changes[region] = [*_of(region, dead), *_end(_of(region, dead), failover.revision)]
            elif former is not None:
                early = _of(region, [row for row in rows if row.at < former.ended_at])
                before[region] = early
                changes[region] = [*_begin(early, revisions), *_of(region, rows[len(early) :])]
            else:
                changes[region] = _of(region, rows)
        yield from check_slices(revisions, changes).differences
        # The first row of the copy says what it held before it was compared, which is what had to be corrected.
        yield from check_slices(revisions, resumed).differences
        if former is not None:
            yield from check_slices(former.history.get(key, ()), before).differences


def _of(region: Region, rows: Sequence[SliceRow]) -> list[SliceChange]:
    return [SliceChange(row.key, region, row.revision, row.before, row.after) for row in rows]


def _begin(before: Sequence[SliceChange], revisions: Revisions) -> Iterator[SliceChange]:
    """What was held when the history began."""
    if before and before[-1].after and revisions:
        last = before[-1]
        yield SliceChange(last.key, last.region, revisions[0][0], 0, last.after)


def _end(dead: Sequence[SliceChange], revision: int) -> Iterator[SliceChange]:
    """The dead server held its last slice until it died."""
    if dead and dead[-1].after:
        last = dead[-1]
        yield SliceChange(last.key, last.region, max(last.revision, revision), last.after, 0)
