"""What must hold, as functions that say where it does not. Used by audit, replay and the tests alike."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey, Region


@dataclass(frozen=True, slots=True)
class SliceChange:
    """One row of a region's slice ledger: from `before` to `after`, having heard of the allocation at `revision`."""

    key: QuotaKey
    region: Region
    revision: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SliceProof:
    """What the two histories say together. `largest_sum` is over all revisions, of all regions at their largest."""

    revisions: int
    largest_sum: int
    differences: tuple[str, ...]


def check_slices(
    history: Sequence[tuple[int, Allocation]], changes: Mapping[Region, Sequence[SliceChange]]
) -> SliceProof:
    """Invariant B at every revision of `history` (ascending), not only at samples, and that no row is missing.

    A region holds `after` from the moment it applied `revision` until it applied the next change at revision
    n; all the documents of revisions up to and including n may have been current meanwhile, so all of them
    must have granted that much. `changes` are in the order in which the region's database committed them.
    """
    revisions = [revision for revision, _ in history]
    sums = [0] * len(history)
    differences: list[str] = []
    for region, rows in changes.items():
        differences += _gaps(rows)
        largest = [0] * len(history)
        for row, held_until in _spans(rows):
            first = bisect_left(revisions, row.revision)
            past = len(revisions) if held_until is None else bisect_right(revisions, held_until)
            for at in range(first, past):
                owned = history[at][1].slice_of(region)
                if row.after > owned:
                    differences.append(
                        f"{row.key}: {region} held {row.after} at revision {revisions[at]}, where it owned {owned}"
                    )
                largest[at] = max(largest[at], row.after)
        sums = [total + held for total, held in zip(sums, largest, strict=True)]
    return SliceProof(len(history), max(sums, default=0), tuple(differences))


def _spans(rows: Sequence[SliceChange]) -> Iterator[tuple[SliceChange, int | None]]:
    """Each row with the last revision at which it may still have been what the region held; None: still is."""
    for row, following in zip_longest(rows, rows[1:]):
        yield row, None if following is None else following.revision


def _gaps(rows: Sequence[SliceChange]) -> Iterator[str]:
    """Where a row does not follow from the one before it: what was held in between, nobody can say."""
    for row, following in pairwise(rows):
        if following.revision < row.revision:
            yield f"{row.key}: {row.region} went back from revision {row.revision} to {following.revision}"
        if following.before != row.after:
            yield (
                f"{row.key}: {row.region} held {row.after} after revision {row.revision}, "
                f"but {following.before} before revision {following.revision}"
            )
