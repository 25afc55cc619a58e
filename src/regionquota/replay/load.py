"""What was sent and what came back, in arrays: a long replay is a million units."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil

from regionquota.core.quota import Region
from regionquota.replay.oracle import one_counter


class Verdict(IntEnum):
    FAILED = 0
    ADMITTED = 1
    DENIED = 2


@dataclass(slots=True)
class CertainlyHeld:
    """Units granted for sure and for sure not given back: the answer has come, the giving back has not been sent.

    So at any instant the servers hold at least these, and more of them than the limit is an overshoot, never a
    false alarm.
    """

    units: int = 0
    most: int = 0

    def add(self) -> None:
        self.units += 1
        self.most = max(self.most, self.units)

    def remove(self, units: int = 1) -> None:
        self.units -= units


class Load:
    """All requests of all regions, numbered in the order in which they were sent. Times are monotonic seconds."""

    def __init__(self, regions: Sequence[Region], *, held_s: float) -> None:
        self.regions = tuple(regions)
        self.held = CertainlyHeld()
        self.admitted = 0
        self.denied = 0
        self.late = [0] * len(regions)
        self.failed_calls: Counter[str] = Counter()
        """Calls without a usable answer, by call and kind; those that were repeated with success are among them."""
        self.unreturned = 0
        self._held_s = held_s
        self._sent = array("d")
        self._until = array("d")
        self._answered = array("d")
        self._region = array("H")
        self._verdict = bytearray()

    def send(self, region: int, now: float) -> int:
        """Number a request. One counter would hold its unit for `held_s`, unless it is `freed` sooner."""
        self._sent.append(now)
        self._until.append(now + self._held_s)
        self._region.append(region)
        self._verdict.append(Verdict.FAILED)
        return len(self._sent) - 1

    def answer(self, request: int, verdict: Verdict, now: float) -> None:
        self._verdict[request] = verdict
        self._answered.append(now - self._sent[request])
        if verdict is Verdict.ADMITTED:
            self.admitted += 1
            self.held.add()
        elif verdict is Verdict.DENIED:
            self.denied += 1

    def freed(self, request: int, now: float) -> None:
        self._until[request] = now

    def figures(self, limit: int) -> "LoadFigures":
        counts = [Counter[str]() for _ in self.regions]
        for request, ideal in enumerate(one_counter(self._sent, self._until, limit)):
            count = counts[self._region[request]]
            verdict = Verdict(self._verdict[request])
            count[verdict.name] += 1
            count["ideal"] += ideal
            count["false"] += ideal if verdict is Verdict.DENIED else 0
        regions = {
            region: RegionFigures(
                admitted=count["ADMITTED"],
                denied=count["DENIED"],
                failed=count["FAILED"],
                late=late,
                oracle_admitted=count["ideal"],
                false_denials=count["false"],
            )
            for region, count, late in zip(self.regions, counts, self.late, strict=True)
        }
        return LoadFigures(
            regions=regions,
            failed_calls=dict(sorted(self.failed_calls.items())),
            unreturned=self.unreturned,
            reserve_ms=percentiles(self._answered),
            largest_admitted=self.held.most,
        )


@dataclass(frozen=True, slots=True)
class RegionFigures:
    """Units. `late` ones were never sent; `failed` ones got neither grant nor denial, repeats included."""

    admitted: int
    denied: int
    failed: int
    late: int
    oracle_admitted: int
    false_denials: int


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """`reserve_ms` is from the first sending to the last answer; None: nothing was answered."""

    regions: dict[Region, RegionFigures]
    failed_calls: dict[str, int]
    unreturned: int
    reserve_ms: Percentiles | None
    largest_admitted: int


def percentiles(seconds: Sequence[float]) -> Percentiles | None:
    """Exact (nearest rank), in milliseconds."""
    if not seconds:
        return None
    in_order = sorted(seconds)
    p50, p95, p99, most = (
        round(1000 * in_order[ceil(share * len(in_order) / 100) - 1], 3) for share in (50, 95, 99, 100)
    )
    return Percentiles(p50, p95, p99, most)
