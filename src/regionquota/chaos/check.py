"""Holds what callers were told against what the ledgers say. Pure: the same histories give the same verdict."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from regionquota.chaos.books import Books, Held, UsageLine
from regionquota.chaos.history import Answer, Ask, Op
from regionquota.chaos.overshoot import over_at_rest, over_in_between
from regionquota.core.entries import EntryKind
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import State

COMMITTED: Final = frozenset({EntryKind.COMMIT, EntryKind.LATE_COMMIT})


@dataclass(frozen=True, slots=True)
class Failover:
    """A region went on with a copy of its database. `dead` are the books of the server that was killed at `at`, when
    etcd was at `revision`.

    What stands in them and not in the region's books was lost with that server, and by nobody else; it must not be
    lost at all where it should have been copied before it was acknowledged (`excuses` False).
    """

    at: float
    revision: int
    dead: Books
    excuses: bool = True


@dataclass(slots=True)
class Findings:
    """A line per finding. `expected` are acknowledged operations that a failover provably took along."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    overshoot: list[str] = field(default_factory=list)
    expected: list[Op] = field(default_factory=list)

    def all(self) -> Sequence[str]:
        return [
            f"{what}: {line}"
            for what, lines in (
                ("lost", self.lost),
                ("doubled", self.doubled),
                ("phantom", self.phantom),
                ("overshoot", self.overshoot),
            )
            for line in lines
        ]


class _Index:
    """One region's books, by the ids that callers know."""

    def __init__(self, books: Books) -> None:
        self.holds = {held.id: held for held in books.holds}
        self.requests: defaultdict[tuple[str, str], list[Held]] = defaultdict(list)
        for held in books.holds:
            self.requests[held.key.tenant, held.request_id].append(held)
        self.commits: defaultdict[str, list[UsageLine]] = defaultdict(list)
        self.adjustments: defaultdict[tuple[str, str], list[UsageLine]] = defaultdict(list)
        for line in books.lines:
            if line.kind in COMMITTED and line.reservation_id is not None:
                self.commits[line.reservation_id].append(line)
            elif line.kind == EntryKind.ADJUST and line.request_id is not None:
                self.adjustments[line.key.tenant, line.request_id].append(line)
        self.adjusted = Counter((row.key.tenant, row.request_id, row.delta) for row in books.adjusted)

    def missing(self, op: Op) -> str | None:
        """What an acknowledged operation lacks here, or None."""
        match op.ask:
            case Ask.RESERVE:
                found = self.requests.get((op.key.tenant, op.name), [])
                is_there = any(held.id == op.reservation_id and held.amount == op.amount for held in found)
                return None if is_there else "no such hold"
            case Ask.START:
                held = self.holds.get(op.name)
                is_started = held is not None and held.operation_id == op.operation_id
                return None if is_started else "the hold was not started by it"
            case Ask.COMMIT:
                return self._unsettled(op, State.COMMITTED, op.amount) or _unexplained(
                    self.commits.get(op.name, ()), op.amount
                )
            case Ask.RELEASE:
                return self._unsettled(op, State.RELEASED, None)
            case Ask.ADJUST:
                name = (op.key.tenant, op.name)
                if self.adjusted[*name, -op.amount] == 0:
                    return "no such adjustment"
                return _unexplained(self.adjustments.get(name, ()), -op.amount)
            case _:
                assert_never(op.ask)

    def _unsettled(self, op: Op, state: State, actual: int | None) -> str | None:
        held = self.holds.get(op.name)
        if held is None:
            return "the hold is gone"
        return None if (held.state, held.actual) == (state, actual) else f"the hold is {held.state} {held.actual}"


def _unexplained(lines: Sequence[UsageLine], delta: int) -> str | None:
    return None if sum(line.delta for line in lines) == delta else "the usage ledger does not say so"


def check(
    ops: Sequence[Op],
    books: Mapping[Region, Books],
    limits: Mapping[QuotaKey, int],
    failovers: Mapping[Region, Failover] | None = None,
) -> Findings:
    """`limits` are the largest that were in force. The books are read after the last answer."""
    failovers = failovers or {}
    found = Findings()
    indexes = {region: _Index(one) for region, one in books.items()}
    dead = {region: _Index(one.dead) for region, one in failovers.items()}
    for op in ops:
        if op.answer is not Answer.DONE:
            continue
        lacking = indexes[op.region].missing(op)
        if lacking is None:
            continue
        if op.region in dead and failovers[op.region].excuses and dead[op.region].missing(op) is None:
            found.expected.append(op)
        else:
            found.lost.append(f"{op} was acknowledged, but {lacking}")
    for region, index in indexes.items():
        found.doubled += _doubled(region, index)
        mine = [op for op in ops if op.region == region]
        found.phantom += _phantoms(region, index, mine)
    found.overshoot += over_at_rest(books, limits)
    ended = {region: one.at for region, one in failovers.items()}
    for key, limit in limits.items():
        owed = [line for one in books.values() for line in one.lines if line.key == key]
        found.overshoot += over_in_between(key, limit, [op for op in ops if op.key == key], owed, found.expected, ended)
    return found


def _doubled(region: Region, index: _Index) -> Iterator[str]:
    for (tenant, request), held in index.requests.items():
        if len(held) > 1:
            yield f"request {request} of {tenant} holds {len(held)} times in {region}"
    for reservation, lines in index.commits.items():
        if len(lines) > 1:
            yield f"reservation {reservation} was charged {len(lines)} times in {region}"
    for (tenant, request), lines in index.adjustments.items():
        if len(lines) > 1:
            yield f"adjustment {request} of {tenant} was charged {len(lines)} times in {region}"


def _phantoms(region: Region, index: _Index, ops: Sequence[Op]) -> Iterator[str]:
    """What nobody asked for in this region, or what was refused for good and happened all the same."""
    possible: defaultdict[Ask, set[tuple[str, str]]] = defaultdict(set)
    for op in ops:
        if op.may_have_happened:
            possible[op.ask].add((op.key.tenant, op.name))
    for name in index.requests:
        if name not in possible[Ask.RESERVE]:
            yield f"{region} has a hold for request {name[1]} of {name[0]}, which was not granted to anybody"
    for held in index.holds.values():
        for ask in _befallen(held):
            if (held.key.tenant, held.id) not in possible[ask]:
                yield f"{region} has {held.id} as {held.state}, but nobody asked for its {ask}"
    for name in index.adjustments:
        if name not in possible[Ask.ADJUST]:
            yield f"{region} has an adjustment {name[1]} of {name[0]}, which nobody made"


def _befallen(held: Held) -> Iterator[Ask]:
    """What callers must have asked for, for the hold to be what it is."""
    if held.operation_id is not None:
        yield Ask.START
    if held.state is State.COMMITTED:
        yield Ask.COMMIT
    if held.state is State.RELEASED:
        yield Ask.RELEASE
