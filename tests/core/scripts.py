"""Random scripts of what may happen to a region's store: batches of commands, allocations heard of, passing time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import adjust, allocation, at, move, reservation_name, reserve

from regionquota.core.allocation import Allocation
from regionquota.core.commands import Command, Commit, Expire, Extend, Release
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey

VCPU, CALLS, UNKNOWN = QuotaKey("acme", "vcpu"), QuotaKey("acme", "calls"), QuotaKey("acme", "unknown")
KINDS = {VCPU: Kind.ALLOCATED, CALLS: Kind.CONSUMABLE, UNKNOWN: Kind.ALLOCATED}
BEGIN = at(2026, 6, 30, 23, 58)
"""Two minutes before a month ends, so that scripts cross it."""


@dataclass(frozen=True)
class Batch:
    commands: Sequence[Command]
    now: float


@dataclass(frozen=True)
class Heard:
    key: QuotaKey
    allocation: Allocation
    revision: int
    now: float


Happening: TypeAlias = Batch | Heard

_amounts = st.integers(1, 60) | st.integers(1, 60) | st.sampled_from([MAX_AMOUNT, MAX_AMOUNT - 1, MAX_AMOUNT // 2])
_keys = st.sampled_from([VCPU, VCPU, CALLS, CALLS, UNKNOWN])
_requests = st.integers(1, 6).map("request-{}".format)
_seconds = st.integers(-20, 60) | st.just(0)
_ttls = st.sampled_from([1, 5, 60])


@st.composite
def _commands(draw: st.DrawFn, names: "count[int]") -> Command:
    made = next(names)
    # One that was made, one that will be, or one that never is.
    known = reservation_name(draw(st.integers(1, made)))
    match draw(st.sampled_from(["reserve"] * 4 + ["commit"] * 2 + ["release", "expire", "extend", "adjust", "adjust"])):
        case "reserve":
            fresh = draw(st.booleans())
            request = f"fresh-{made}" if fresh else draw(_requests)
            name = reservation_name(made)
            return reserve(draw(_amounts), name=name, key=draw(_keys), request=request, ttl=draw(_ttls))
        case "commit":
            return Commit(known, draw(st.none() | _amounts))
        case "release":
            return Release(known)
        case "expire":
            return Expire(known)
        case "extend":
            return Extend(known, draw(_ttls))
        case _:
            return adjust(draw(_amounts) * draw(st.sampled_from([1, -1])), request=draw(_requests), key=draw(_keys))


@st.composite
def _allocations(draw: st.DrawFn, kind: Kind) -> Allocation:
    owned = draw(st.integers(0, 200) | st.just(MAX_AMOUNT))
    moves = [move("eu", "us", draw(st.integers(1, 100)))] if draw(st.booleans()) else []
    document = allocation(MAX_AMOUNT, kind=kind, eu=owned, moves=moves)
    epochs = [2026 * 12 + month - 1 for month in (5, 6, 7)]
    return document if kind is Kind.ALLOCATED else replace(document, epoch=draw(st.sampled_from(epochs)))


@st.composite
def scripts(draw: st.DrawFn, most: int = 20) -> list[Happening]:
    """Each reservation name is used by one reserve at most, as `reservation_id` sees to it in earnest."""
    names, now, revision = count(1), BEGIN, 10
    happenings: list[Happening] = [
        Heard(key, allocation(1000, kind=KINDS[key], eu=100), revision, now) for key in (VCPU, CALLS)
    ]
    for _ in range(draw(st.integers(1, most))):
        now += draw(_seconds)
        if draw(st.integers(0, 4)):
            commands: list[Any] = [draw(_commands(names)) for _ in range(draw(st.integers(1, 4)))]
            happenings.append(Batch(commands, now))
        else:
            revision += draw(st.integers(-2, 3))
            key = draw(st.sampled_from([VCPU, CALLS]))
            happenings.append(Heard(key, draw(_allocations(KINDS[key])), max(1, revision), now))
    return happenings
