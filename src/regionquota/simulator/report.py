"""What is said of the policies side by side. Nothing of it depends on how long the simulation took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from regionquota.core.policy import Priority
from regionquota.core.quota import Region
from regionquota.simulator.demand import Workload
from regionquota.simulator.fairness import jain
from regionquota.simulator.outcome import Outcome
from regionquota.simulator.scenario import Scenario

_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Figures:
    """`admitted_of_oracle`, `capacity_used` and `jain` are shares, 0 to 1. What was admitted beyond the limit counts
    for nothing in them. `false_denials` are units that the oracle admits in the same bin.

    `capacity_used` is over the bins in which at least the limit was asked for; None: there was no such bin.
    """

    admitted: int
    admitted_of_oracle: float
    denied: int
    false_denials: int
    overshoot: int
    capacity_used: float | None
    moves: int
    etcd_writes: int | None
    jain: float
    waits: Mapping[str, float] | None
    denied_by_region: Mapping[Region, int]
    admitted_by_region: Mapping[Region, int]
    by_priority: Mapping[str, Mapping[str, Any]] | None = None
    """Units of each priority, and of each region at it; None where all requests are of the same."""

    @property
    def moves_per_1000(self) -> float:
        return _per_1000(self.moves, self.admitted)

    @property
    def etcd_writes_per_1000(self) -> float | None:
        return None if self.etcd_writes is None else _per_1000(self.etcd_writes, self.admitted)

    def plain(self) -> dict[str, Any]:
        fields = {
            "admitted": self.admitted,
            "admitted_of_oracle": self.admitted_of_oracle,
            "denied": self.denied,
            "false_denials": self.false_denials,
            "overshoot": self.overshoot,
            "capacity_used": self.capacity_used,
            "moves": self.moves,
            "moves_per_1000": self.moves_per_1000,
            "etcd_writes": self.etcd_writes,
            "etcd_writes_per_1000": self.etcd_writes_per_1000,
            "jain": self.jain,
            "waits": self.waits,
            "denied_by_region": dict(self.denied_by_region),
            "admitted_by_region": dict(self.admitted_by_region),
        }
        return fields if self.by_priority is None else fields | {"by_priority": self.by_priority}


@dataclass(frozen=True, slots=True)
class Report:
    scenario: Scenario
    work: Workload
    outcomes: Mapping[str, Outcome]
    oracle: Outcome
    figures: Mapping[str, Figures]

    @property
    def is_safe(self) -> bool:
        """Whether the product kept to the limit."""
        return all(self.figures[one].overshoot == 0 for one in ("ours", "periodic") if one in self.figures)

    def plain(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.seed,
            "requests": len(self.work.requests),
            "units": sum(request.used for request in self.work.requests),
            "regions": list(self.work.regions),
            "limit": self.work.limit,
            "bins": self.work.bins,
            "bin_s": self.work.bin_s,
            "seconds": self.work.seconds,
            "notes": list(self.work.notes),
            "warnings": list(self.work.warnings),
            "policies": {name: figures.plain() for name, figures in self.figures.items()},
        }


def report(scenario: Scenario, work: Workload, outcomes: Mapping[str, Outcome], policies: Sequence[str]) -> Report:
    """Of `policies`, in their order; `outcomes` has the oracle's in any case."""
    oracle = outcomes["oracle"]
    asked = demand_by_bin(work)
    figures = {name: _figures(scenario, work, asked, outcomes[name], oracle) for name in policies}
    return Report(scenario, work, {name: outcomes[name] for name in policies}, oracle, figures)


def demand_by_bin(work: Workload) -> list[list[int]]:
    """Units asked for, by bin and then by region."""
    rows = [[0] * len(work.regions) for _ in range(work.bins)]
    for request in work.requests:
        rows[min(work.bins - 1, int(request.at / work.bin_s))][request.region] += request.used
    return rows


def false_denials_by_bin(outcome: Outcome, oracle: Outcome, bins: int) -> list[int]:
    return [max(0, oracle.units_in(bin_) - outcome.units_in(bin_)) for bin_ in range(bins)]


def _figures(
    scenario: Scenario, work: Workload, asked: Sequence[Sequence[int]], outcome: Outcome, oracle: Outcome
) -> Figures:
    own = {name: rules.weight for name, rules in scenario.quota.regions.items() if rules.weight is not None}
    weights = [own.get(name, part.weight) for name, part in scenario.regions.items()]
    return Figures(
        admitted=outcome.admitted,
        admitted_of_oracle=_share(outcome.within_limit, oracle.within_limit),
        denied=outcome.denied,
        false_denials=sum(false_denials_by_bin(outcome, oracle, work.bins)),
        overshoot=outcome.overshoot,
        capacity_used=_capacity_used(work, asked, outcome),
        moves=outcome.moves,
        etcd_writes=outcome.etcd_writes,
        jain=round(jain(asked, outcome.admitted_in, work.limit, weights), _DIGITS),
        waits=_waits(outcome.waited) if scenario.wait_s else None,
        denied_by_region=_by_region(work, outcome.denied_in),
        admitted_by_region=_by_region(work, outcome.admitted_in),
        by_priority=by_priority(outcome),
    )


def _by_region(work: Workload, rows: Sequence[Sequence[int]]) -> Mapping[Region, int]:
    return {name: sum(row[region] for row in rows) for region, name in enumerate(work.regions)}


def by_priority(outcome: Outcome) -> Mapping[str, Mapping[str, Any]] | None:
    """As `Figures.by_priority`."""
    asked = [priority for priority in Priority if any(priority is of for of, _ in outcome.of)]
    if asked in ([], [Priority.NORMAL]):
        return None
    found = {}
    for priority in asked:
        units = {outcome.regions[at]: each for (of, at), each in sorted(outcome.of.items()) if of is priority}
        found[priority.value] = {
            "admitted": sum(one.admitted for one in units.values()),
            "denied": sum(one.denied for one in units.values()),
            "admitted_by_region": {name: one.admitted for name, one in units.items()},
            "denied_by_region": {name: one.denied for name, one in units.items()},
        }
    return found


def _capacity_used(work: Workload, asked: Sequence[Sequence[int]], outcome: Outcome) -> float | None:
    full = [bin_ for bin_, row in enumerate(asked) if sum(row) >= work.limit > 0]
    used = sum(min(work.limit, outcome.units_in(bin_)) for bin_ in full)
    return _share(used, len(full) * work.limit) if full else None


def _waits(waited: Sequence[float]) -> dict[str, float]:
    """Of those that were admitted, but not at once; in milliseconds."""
    ordered = sorted(waited)
    if not ordered:
        return {"count": 0}
    return {
        "count": len(ordered),
        "p50_ms": _milliseconds(ordered, 0.5),
        "p90_ms": _milliseconds(ordered, 0.9),
        "p99_ms": _milliseconds(ordered, 0.99),
        "max_ms": _milliseconds(ordered, 1.0),
    }


def _milliseconds(ordered: Sequence[float], share: float) -> float:
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def _share(part: int, whole: int) -> float:
    return round(part / whole, _DIGITS) if whole else 1.0


def _per_1000(count: int, admitted: int) -> float:
    return round(1000 * count / admitted, 2) if admitted else 0.0
