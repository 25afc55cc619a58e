"""What to replay, how fast, and what to break meanwhile."""

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from regionquota.core.quota import MAX_AMOUNT, QuotaKey, Region
from regionquota.errors import InvalidRequest
from regionquota.replay.trace import Trace

_WINDOW: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)-(\d+(?:\.\d+)?)(ms|s|m)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds after the start of the replay."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Partition:
    region: Region
    window: Window


def parse_window(text: str, field_name: str = "--etcd-outage") -> Window:
    """`20s-50s`; also `ms` and `m`."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(field_name, f'{field_name} takes a time such as 20s-40s (ms, s or m), got "{text}"')
    start, start_unit, end, end_unit = match.groups()
    window = Window(float(start) * _UNIT_S[start_unit], float(end) * _UNIT_S[end_unit])
    if window.start >= window.end:
        raise InvalidRequest(field_name, f'{field_name} must end after it starts, got "{text}"')
    return window


def parse_partition(text: str, regions: Sequence[Region]) -> Partition:
    """`ap:20s-40s`."""
    region, _, window = text.rpartition(":")
    if region not in regions:
        raise InvalidRequest(
            "--partition", f'--partition takes REGION:START-END with a region of {", ".join(regions)}, got "{text}"'
        )
    return Partition(region, parse_window(window, "--partition"))


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """`limit` None: `limit_factor` times the mean demand per bin. Each `run` has a quota of its own."""

    trace: Trace
    bin_s: float = 0.5
    limit: int | None = None
    limit_factor: float = 1.5
    release_share: float = 0.1
    seed: int = 1
    tenant: str = "replay"
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    connections: int = 64
    call_timeout_s: float = 2.0
    patience_s: float | None = None
    """How long a unit waits for a free connection before it is late, and not sent at all. None: one bin."""
    closing_s: float = 30.0
    """How long giving back, and completing the histories, may each take after the last bin."""
    partitions: Sequence[Partition] = ()
    etcd_outages: Sequence[Window] = ()

    def __post_init__(self) -> None:
        _require("bin-seconds", self.bin_s, 0.05, 3600)
        _require("limit-factor", self.limit_factor, 0, 1000)
        _require("release-share", self.release_share, 0, 1)
        _require("connections", self.connections, 1, 1000)
        _require("limit", self.quota_limit, 0, MAX_AMOUNT)
        for region in self.trace.regions:
            windows = [cut.window for cut in self.partitions if cut.region == region]
            _require_apart("partition", windows, self.duration_s)
        _require_apart("etcd-outage", self.etcd_outages, self.duration_s)

    @property
    def duration_s(self) -> float:
        return len(self.trace.demand) * self.bin_s

    @property
    def quota(self) -> QuotaKey:
        return QuotaKey(self.tenant, f"units-{self.run}")

    @property
    def quota_limit(self) -> int:
        return round(self.limit_factor * self.trace.mean) if self.limit is None else self.limit


def _require(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidRequest(name, f"{name} must be from {low} to {high}, got {value}")


def _require_apart(name: str, windows: Sequence[Window], duration_s: float) -> None:
    in_order = sorted(windows, key=lambda window: window.start)
    for window in in_order:
        if window.start >= duration_s:
            raise InvalidRequest(
                name, f"{name} starts at {window.start:g} s, but the replay is over after {duration_s:g} s"
            )
    for one, other in pairwise(in_order):
        if other.start < one.end:
            raise InvalidRequest(name, f"{name} at {other.start:g} s starts before the one at {one.start:g} s ends")


@dataclass(frozen=True, slots=True)
class Targets:
    """Base URLs of the region servers, and headers (authorization) to send with every call."""

    urls: Mapping[Region, str]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Faults:
    """How to break and mend. `heal` and `start_etcd` may be called where nothing is broken: they must do no harm."""

    cut: Callable[[Region], Awaitable[None]]
    heal: Callable[[Region], Awaitable[None]]
    stop_etcd: Callable[[], Awaitable[None]]
    start_etcd: Callable[[], Awaitable[None]]
