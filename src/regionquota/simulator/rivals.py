"""What others would do with the same demand. Each was written here, after its published description."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.simulator.demand import Request, Workload
from regionquota.simulator.outcome import Outcome


class Rule(Protocol):
    """A request is admitted if what it reserves fits, and counts for what it uses: as one that commits at once.

    What fits goes by its priority, as it does in the product: by `fills` of the limit, or of a share of it.
    """

    def begin_bin(self) -> None: ...

    def advance(self, now: float) -> None: ...

    def admits(self, request: Request) -> bool: ...


@dataclass
class OneCounter:
    """The oracle: exact, everywhere at once."""

    limit: int
    fills: QuotaPolicy = DEFAULT_POLICY
    used: int = 0

    def begin_bin(self) -> None:
        self.used = 0

    def advance(self, now: float) -> None: ...

    def admits(self, request: Request) -> bool:
        if self.used + request.units > self.fills.may_fill(self.limit, request.priority):
            return False
        self.used += request.used
        return True


@dataclass
class Slices:
    """Equal slices that nobody moves."""

    limit: int
    regions: int
    fills: QuotaPolicy = DEFAULT_POLICY
    used: list[int] = field(default_factory=list)

    def begin_bin(self) -> None:
        self.used = [0] * self.regions

    def advance(self, now: float) -> None: ...

    def slice_of(self, region: int) -> int:
        return self.limit // self.regions + (region < self.limit % self.regions)

    def admits(self, request: Request) -> bool:
        most = self.fills.may_fill(self.slice_of(request.region), request.priority)
        if self.used[request.region] + request.units > most:
            return False
        self.used[request.region] += request.used
        return True


LEASE_S: Final = 60.0
REFRESH_S: Final = 10.0


@dataclass
class ProportionalShare:
    """Doorman (as its design document describes it): each region asks for a lease of capacity every few seconds, and
    gets its share in proportion to what all ask for. A lease that is running is not taken back: while demand
    shifts, leases may add up to more than there is.
    """

    limit: int
    regions: int
    bin_s: float
    cut: Mapping[int, list[tuple[float, float]]] = field(default_factory=dict)
    fills: QuotaPolicy = DEFAULT_POLICY
    wants: list[float] = field(default_factory=list)
    granted: list[tuple[float, float]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    next_at: float = 0.0
    moves: int = 0

    def __post_init__(self) -> None:
        self.wants = [1.0] * self.regions
        self.granted = [(self.limit / self.regions, LEASE_S)] * self.regions
        self.asked = [0] * self.regions
        self.used = [0] * self.regions

    def begin_bin(self) -> None:
        self.used = [0] * self.regions

    def advance(self, now: float) -> None:
        while self.next_at <= now:
            self._refresh(self.next_at)
            self.next_at += REFRESH_S

    def _refresh(self, now: float) -> None:
        for region in range(self.regions):
            rate = self.asked[region] * self.bin_s / REFRESH_S
            self.wants[region] = max(1.0, 0.5 * self.wants[region] + 0.5 * rate)
            self.asked[region] = 0
            if any(begin <= now < end for begin, end in self.cut.get(region, [])):
                continue
            total = sum(self.wants)
            share = (
                min(self.wants[region], self.limit * self.wants[region] / total)
                if total > self.limit
                else (self.wants[region] + (self.limit - total) * self.wants[region] / total)
            )
            if round(share) != round(self.granted[region][0]):
                self.moves += 1
            self.granted[region] = share, now + LEASE_S

    def admits(self, request: Request) -> bool:
        self.asked[request.region] += request.used
        share, expires = self.granted[request.region]
        if request.at > expires:
            share = 0.0  # Doorman's safe capacity is for its users to choose; nothing is the safe one
        if self.used[request.region] + request.units > self.fills.may_fill(int(share), request.priority):
            return False
        self.used[request.region] += request.used
        return True


@dataclass
class PullOnShortfall:
    """Bounded counters: each region holds rights; one that runs out asks the richest for half of what it has left.

    The request that ran out is denied; what was pulled is there a round trip later.
    """

    limit: int
    regions: int
    delay_s: float
    cut: Mapping[int, list[tuple[float, float]]] = field(default_factory=dict)
    fills: QuotaPolicy = DEFAULT_POLICY
    rights: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    arriving: list[tuple[float, int, int]] = field(default_factory=list)
    asking: dict[int, float] = field(default_factory=dict)
    moves: int = 0

    def __post_init__(self) -> None:
        self.rights = [
            self.limit // self.regions + (number < self.limit % self.regions) for number in range(self.regions)
        ]
        self.used = [0] * self.regions

    def begin_bin(self) -> None:
        self.used = [0] * self.regions

    def advance(self, now: float) -> None:
        for one in [one for one in self.arriving if one[0] <= now]:
            self.arriving.remove(one)
            self.rights[one[1]] += one[2]

    def _reaches(self, region: int, now: float) -> bool:
        return not any(begin <= now < end for begin, end in self.cut.get(region, []))

    def _pull(self, region: int, now: float) -> None:
        if self.asking.get(region, 0.0) > now or not self._reaches(region, now):
            return
        self.asking[region] = now + self.delay_s
        left = {other: self.rights[other] - self.used[other] for other in range(self.regions) if other != region}
        left = {other: units for other, units in left.items() if self._reaches(other, now)}
        donor = max(left, key=lambda other: left[other], default=None)
        if donor is None or left[donor] < 2:
            return
        units = left[donor] // 2
        self.rights[donor] -= units
        self.arriving.append((now + self.delay_s, region, units))
        self.moves += 1

    def admits(self, request: Request) -> bool:
        region = request.region
        if self.used[region] + request.units > self.fills.may_fill(self.rights[region], request.priority):
            self._pull(region, request.at)
            return False
        self.used[region] += request.used
        return True


def play(work: Workload, rule: Rule) -> Outcome:
    """All requests in order, by one of these rules."""
    outcome = Outcome(work.regions, work.limit)
    bin_ = -1
    for request in work.requests:
        rule.advance(request.at)
        if int(request.at / work.bin_s) != bin_:
            bin_ = int(request.at / work.bin_s)
            rule.begin_bin()
        if rule.admits(request):
            outcome.admit(bin_, request)
        else:
            outcome.deny(bin_, request)
    outcome.moves = getattr(rule, "moves", 0)
    return outcome
