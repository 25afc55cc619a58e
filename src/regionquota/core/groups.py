"""Buckets in groups, each led by one coordinator, and who is to lead which."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from regionquota.core.quota import BUCKETS, QuotaKey, bucket_of

GROUPS: Final = 16
"""Coordinators of one deployment lead this many groups of consecutive buckets. Never changes: with two numbers side by
side two coordinators would lead one bucket.
"""
ALL_BUCKETS: Final = range(BUCKETS)


@dataclass(frozen=True, slots=True)
class Leader:
    """Of one group, by the name that it gave. `since`: the revision of etcd at which it began to lead."""

    name: str
    since: int


@dataclass(frozen=True, slots=True)
class Leadership:
    """At one revision: the leader of each group that has one, and the coordinators that are there to lead."""

    leaders: Mapping[int, Leader]
    present: Collection[str]

    @property
    def undivided(self) -> str | None:
        """A coordinator that leads all groups as if they were one: of a release that knows of no groups."""
        first = self.leaders.get(0)
        return None if first is None or first.name in self.present else first.name


def group_of(key: QuotaKey, groups: int = GROUPS) -> int:
    return bucket_of(key.tenant) * groups // BUCKETS


def buckets_of(group: int, groups: int = GROUPS) -> range:
    return range(group * BUCKETS // groups, (group + 1) * BUCKETS // groups)


def shares(present: Collection[str], groups: int = GROUPS) -> Mapping[int, str]:
    """Who of those present, at least one, is to lead each group: the same for all who see the same.

    Rendezvous hashing, in which nobody takes more than its part: shares differ by one at most. Whoever comes or goes
    moves its own part, and about one group beside it.
    """
    names = sorted(set(present))
    part, left_over = divmod(groups, len(names))
    taken = dict.fromkeys(names, 0)
    leaders: dict[int, str] = {}
    for group, name in sorted(_pairs(names, groups), key=lambda pair: _attraction(*pair), reverse=True):
        if group in leaders or taken[name] > part or (taken[name] == part and left_over == 0):
            continue
        left_over -= taken[name] == part
        taken[name] += 1
        leaders[group] = name
    return leaders


def _pairs(names: Collection[str], groups: int) -> Iterator[tuple[int, str]]:
    return ((group, name) for name in names for group in range(groups))


def _attraction(group: int, name: str) -> tuple[bytes, str]:
    return hashlib.blake2s(f"{group}\n{name}".encode(errors="surrogatepass"), digest_size=8).digest(), name


def spans(groups: Collection[int]) -> str:
    """For people: `0-3, 7`."""
    found: list[list[int]] = []
    for group in sorted(groups):
        if found and found[-1][-1] == group - 1:
            found[-1].append(group)
        else:
            found.append([group])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)
