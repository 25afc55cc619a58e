"""What came of a policy: who was admitted and denied when, and what moved for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from regionquota.core.policy import Priority
from regionquota.core.quota import Region
from regionquota.simulator.demand import Request


@dataclass(frozen=True, slots=True)
class Transfer:
    """Units that changed their owner in one write. What `gave` and `got` lack of each other came from or went to the
    pool. `at` is in seconds of the scenario.
    """

    at: float
    gave: Mapping[Region, int]
    got: Mapping[Region, int]

    @property
    def moves(self) -> int:
        """A write that serves two regions moves twice."""
        return max(len(self.gave), len(self.got))


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted, in seconds of the scenario. `region` None: it concerned all."""

    what: str
    region: Region | None
    begin: float
    end: float


@dataclass(slots=True)
class Units:
    admitted: int = 0
    denied: int = 0


@dataclass
class Outcome:
    """`admitted` and `denied` are units, by bin and then by region; `of` are those of each priority and region that was
    asked. `waited` are seconds, of who was admitted late.
    """

    regions: tuple[Region, ...]
    limit: int
    admitted_in: list[list[int]] = field(default_factory=list)
    denied_in: list[list[int]] = field(default_factory=list)
    moves: int = 0
    etcd_writes: int | None = None
    of: dict[tuple[Priority, int], Units] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    slices: list[tuple[float, Sequence[int]]] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def admit(self, bin_: int, request: Request) -> None:
        self._row(self.admitted_in, bin_)[request.region] += request.used
        self._of(request).admitted += request.used

    def deny(self, bin_: int, request: Request) -> None:
        self._row(self.denied_in, bin_)[request.region] += request.used
        self._of(request).denied += request.used

    def _of(self, request: Request) -> Units:
        return self.of.setdefault((request.priority, request.region), Units())

    @property
    def admitted(self) -> int:
        return sum(map(sum, self.admitted_in))

    @property
    def denied(self) -> int:
        return sum(map(sum, self.denied_in))

    @property
    def overshoot(self) -> int:
        """The most by which the units of a bin exceeded the limit."""
        return max((max(0, sum(row) - self.limit) for row in self.admitted_in), default=0)

    @property
    def within_limit(self) -> int:
        """What was admitted, without what never should have been."""
        return sum(min(self.limit, sum(row)) for row in self.admitted_in)

    def units_in(self, bin_: int) -> int:
        return sum(self.admitted_in[bin_]) if bin_ < len(self.admitted_in) else 0

    def _row(self, rows: list[list[int]], bin_: int) -> list[int]:
        while len(rows) <= bin_:
            rows.append([0] * len(self.regions))
        return rows[bin_]
