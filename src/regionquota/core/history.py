"""etcd's history: one unbroken sequence of revisions, under a name.

An etcd that was restored from an older snapshot begins another one that looks like a part of the first. Whoever has
seen more of the first than etcd remembers halts the history: nothing moves, slices stay as they are. A recovery puts
every document right and begins a new history under a new name; what was read under the old one is refused from then
on, in etcd and in each region's database.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVICTED: Final = "this region is evicted: it changes no allocation until it was readmitted (regionquota region readmit)"
"""What is said to a process of a region that is evicted, and would write."""


class Phase(StrEnum):
    RUNNING = "running"
    HALTED = "halted"
    """Somebody has seen more of it than etcd remembers. Nothing moves."""
    RECOVERING = "recovering"
    """The regions state what they hold, and documents are made of that."""


@dataclass(frozen=True, slots=True)
class History:
    """What stands in etcd. `since` (seconds since 1970), `by` and `why` are said of a halt or a recovery only."""

    name: str
    phase: Phase = Phase.RUNNING
    since: float = 0.0
    by: str = ""
    why: str = ""

    @property
    def trouble(self) -> str:
        """For people; empty if there is none."""
        if self.phase is Phase.RUNNING:
            return ""
        begun = "is being recovered" if self.phase is Phase.RECOVERING else "was halted"
        return f"etcd's history {self.name} {begun} by {self.by}: {self.why}"


def why_ended(found: History | None) -> str:
    """For people: why nothing is written by those who are bound to another history than the one `found` in etcd."""
    if found is None:
        return "etcd has lost its history: nothing moves until regionquota region recover"
    if found.trouble:
        return f"{found.trouble}; nothing moves until it was recovered (regionquota region recover)"
    return f"etcd was recovered, its history is {found.name} now: what was read before is not written any more"


@dataclass(frozen=True, slots=True)
class Standing:
    """Under which history a region's slices are what they are, and how many evictions of it they have obeyed.

    `evictions_before` there had been when its database was new, so it knows nothing of what was spent before.
    """

    history: str
    evictions: int = 0
    evictions_before: int = 0

    def agrees_with(self, other: "Standing") -> bool:
        return (self.history, self.evictions) == (other.history, other.evictions)


@dataclass(frozen=True, slots=True)
class Sight:
    """How far etcd was seen: by which cluster's word (None: by nobody's), and up to which revision."""

    cluster: int | None = None
    revision: int = 0


class Seen:
    """What one process has seen of etcd, and whether etcd has gone back behind it since."""

    def __init__(self, sight: Sight | None = None) -> None:
        self.sight = sight or Sight()
        self.broken: str | None = None
        """Why it is certain that etcd went backwards. It stays so."""

    def recall(self, sight: Sight) -> None:
        """Begin with what was seen in an earlier life."""
        self.sight, self.broken = sight, None

    def note(self, since: Sight, found: Sight) -> None:
        """Of a linearizable call that began when `since` was all that had been seen."""
        if since.cluster not in (None, found.cluster):
            self.broken = f"another cluster answers: {found.cluster:x}, it was {since.cluster:x}"
        elif found.revision < since.revision:
            self.broken = f"it is at revision {found.revision}, but has been at {since.revision}"
        elif found.revision > self.sight.revision:
            self.sight = found

    def contradict(self, why: str) -> None:
        """A document contradicts what this region's database knows."""
        self.broken = self.broken or why


class Bond:
    """The standing under which one process reads and writes. Bound once: who comes under another starts anew.

    So nothing that was read under one is ever written under another, however long it waited in between.
    """

    def __init__(self, standing: Standing | None = None, seen: Seen | None = None, *, is_evicted: bool = False) -> None:
        self._standing = standing
        self.seen: Final = seen or Seen()
        self.is_evicted = is_evicted
        """Until it is readmitted the region owns nothing, whatever documents say that an eviction has not come to yet:
        its slices are taken away, and it writes no document. Bound before that is known, nobody may be."""

    @property
    def standing(self) -> Standing | None:
        return self._standing

    def bind(self, standing: Standing) -> None:
        assert self._standing in (None, standing)
        self._standing = standing
