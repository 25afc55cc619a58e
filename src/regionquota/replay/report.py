"""What a replay found, for people as tables and for programs as one JSON object."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regionquota.core.quota import Region
from regionquota.replay.load import LoadFigures, Percentiles, RegionFigures
from regionquota.replay.observer import Observation, Proof

_COLOURS = {Proof.HELD: "green", Proof.VIOLATED: "bold red", Proof.UNKNOWN: "yellow"}


@dataclass(frozen=True, slots=True)
class Report:
    """`partial`: it was interrupted after `elapsed_s`. Counts are units unless their name says otherwise."""

    quota: str
    partial: bool
    elapsed_s: float
    limit: int
    load: LoadFigures
    observed: Observation
    notes: tuple[str, ...] = ()

    @property
    def admitted(self) -> int:
        return self._total(lambda region: region.admitted)

    @property
    def denied(self) -> int:
        return self._total(lambda region: region.denied)

    @property
    def failed(self) -> int:
        return self._total(lambda region: region.failed)

    @property
    def late(self) -> int:
        return self._total(lambda region: region.late)

    @property
    def oracle_admitted(self) -> int:
        return self._total(lambda region: region.oracle_admitted)

    @property
    def false_denials(self) -> int:
        return self._total(lambda region: region.false_denials)

    @property
    def admitted_of_oracle(self) -> float | None:
        """Per cent; None: the oracle admitted nothing."""
        return round(100 * self.admitted / self.oracle_admitted, 2) if self.oracle_admitted else None

    @property
    def net_shortfall(self) -> int:
        return max(0, self.oracle_admitted - self.admitted)

    @property
    def overshoot(self) -> int:
        return max(0, self.load.largest_admitted - self.limit)

    @property
    def ok(self) -> bool:
        held = self.observed.invariant_a is Proof.HELD and self.observed.invariant_b is Proof.HELD
        return held and self.overshoot == 0

    def _total(self, figure: Callable[[RegionFigures], int]) -> int:
        return sum(map(figure, self.load.regions.values()))

    def to_json(self) -> dict[str, Any]:
        seen = self.observed
        return {
            "ok": self.ok,
            "quota": self.quota,
            "partial": self.partial,
            "elapsed_s": round(self.elapsed_s, 3),
            "limit": self.limit,
            "admitted": self.admitted,
            "denied": self.denied,
            "failed_reserves": self.failed,
            "late": self.late,
            "errors": self.load.failed_calls,
            "unreturned": self.load.unreturned,
            "oracle_admitted": self.oracle_admitted,
            "admitted_of_oracle": self.admitted_of_oracle,
            "false_denials": self.false_denials,
            "net_shortfall": self.net_shortfall,
            "reserve_ms": None if self.load.reserve_ms is None else asdict(self.load.reserve_ms),
            "transfers": seen.movement.hand_overs,
            "units_moved": seen.movement.hand_over_units,
            "claims": seen.movement.claims,
            "units_claimed": seen.movement.claim_units,
            "freezes": dict(seen.freezes),
            "thaws": dict(seen.thaws),
            "largest_slices_sum": seen.largest_slices_sum,
            "largest_spent": seen.largest_spent,
            "largest_admitted": self.load.largest_admitted,
            "overshoot": self.overshoot,
            "revisions_checked": seen.revisions_checked,
            "samples": seen.samples,
            "consistent_cuts": seen.consistent_cuts,
            "invariant_a": seen.invariant_a.value,
            "invariant_b": seen.invariant_b.value,
            "differences": list(seen.differences),
            "notes": [*self.notes, *seen.gaps],
            "regions": {name: asdict(region) for name, region in self.load.regions.items()},
        }

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self.partial:
            parts.append(Text(f"PARTIAL: interrupted after {self.elapsed_s:.1f} s", style="bold yellow"))
        parts += [_table("Demand and answers", self._answers()), _table("Safety", self._safety())]
        parts += [_table("Movement of capacity", self._movement()), _regions(self.load.regions)]
        parts += [Text(f"difference: {text}", style="bold red") for text in self.observed.differences]
        parts += [Text(f"not proven: {text}", style="yellow") for text in self.observed.gaps]
        parts += [Text(f"note: {text}") for text in self.notes]
        return Group(*parts)

    def _answers(self) -> Iterator[tuple[str, str, str]]:
        yield "admitted", _units(self.admitted), f"{self.admitted / max(self.elapsed_s, 0.001):,.0f} units/s"
        yield "denied", _units(self.denied), "answered 429: no capacity free in that region"
        yield "failed reserves", _units(self.failed), "no grant and no denial: a slice could have served them"
        yield "late", _units(self.late), "never sent: no connection free in time"
        for what, count in self.load.failed_calls.items():
            yield "failed calls", f"{count:,} calls", what
        yield "one exact counter", _units(self.oracle_admitted), "what it admits of the very same requests"
        share = self.admitted_of_oracle
        yield "admitted of that", "-" if share is None else f"{share} %", ""
        yield "false denials", _units(self.false_denials), "denied here, admitted by the exact counter"
        yield "net shortfall", _units(self.net_shortfall), "exact counter's admissions less those here"
        if self.load.reserve_ms is not None:
            yield "reserve latency", *_latency(self.load.reserve_ms)
        yield "not given back", _units(self.load.unreturned), "could not be returned at the end"

    def _safety(self) -> Iterator[tuple[str, str | Text, str]]:
        seen = self.observed
        yield "limit", _units(self.limit), f"of {self.quota}"
        yield "largest sum of slices", _units(seen.largest_slices_sum), "what all regions together could spend at most"
        yield "largest admitted", _units(self.load.largest_admitted), "held at once for certain, as clients saw it"
        yield "largest spent", _units(seen.largest_spent), "used and reserved, as the databases say, in a sample"
        yield "overshoot", _units(self.overshoot), "largest admitted above the limit"
        yield (
            "invariant A",
            _judged(seen.invariant_a),
            f"slices and pool add up to the limit, in each of {seen.revisions_checked:,} etcd revisions",
        )
        yield "invariant B", _judged(seen.invariant_b), "no region ever held more than it owned, at any revision"
        yield "samples", f"{seen.samples:,}", f"of all regions at once; {seen.consistent_cuts:,} were consistent"

    def _movement(self) -> Iterator[tuple[str, str, str]]:
        moved, seen = self.observed.movement, self.observed
        yield "hand-overs", f"{moved.hand_overs:,}", f"{_units(moved.hand_over_units)}, region to region or pool"
        yield "grants and claims", f"{moved.claims:,}", f"{_units(moved.claim_units)}, pool to region"
        yield "freezes", f"{sum(seen.freezes.values()):,}", _by_region(seen.freezes)
        yield "thaws", f"{sum(seen.thaws.values()):,}", _by_region(seen.thaws)


def _table(title: str, rows: Iterator[tuple[str, str | Text, str]] | Iterator[tuple[str, str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def _regions(regions: Mapping[Region, RegionFigures]) -> Table:
    table = Table(title="By region, in units", title_justify="left", box=None, pad_edge=False)
    table.add_column("region")
    for column in ("admitted", "denied", "false denials", "failed", "late"):
        table.add_column(column, justify="right")
    for name, region in regions.items():
        figures = (region.admitted, region.denied, region.false_denials, region.failed, region.late)
        table.add_row(name, *(f"{figure:,}" for figure in figures))
    return table


def _units(count: int) -> str:
    return f"{count:,} unit" if count == 1 else f"{count:,} units"


def _latency(ms: Percentiles) -> tuple[str, str]:
    return f"p50 {ms.p50:.1f} ms", f"p95 {ms.p95:.1f}, p99 {ms.p99:.1f}, longest {ms.max:.1f} ms"


def _judged(verdict: Proof) -> Text:
    return Text(verdict.value, style=_COLOURS[verdict])


def _by_region(counts: Mapping[Region, int]) -> str:
    return ", ".join(f"{region} {count}" for region, count in sorted(counts.items()))
