"""What the callers of one region were told, kept apart from the ledger that it is compared with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from regionquota.core.commands import (
    Adjust,
    Adjusted,
    Command,
    Commit,
    Expire,
    Extend,
    Granted,
    Invalid,
    Meter,
    Metered,
    Outcome,
    Pledge,
    Release,
    Reserve,
    Settled,
    Start,
)
from regionquota.core.entries import Entry, EntryKind
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Reservation, State
from regionquota.explorer.invariants import Invariant, Violation

Effect: TypeAlias = tuple[str, str, QuotaKey]
"""Of what kind, under which name, on which quota."""

_SETTLED = "commit"
_ADJUSTED = "adjust"
_METERED = "meter"


@dataclass(slots=True)
class Book:
    """`unsure` are commands that nobody has answered; they are asked again before the books are compared.

    `holds` are the reservations that a caller may name, by request id; `sent` is what it may repeat.
    """

    holds: dict[str, str] = field(default_factory=dict)
    sent: list[Command] = field(default_factory=list)
    unsure: list[Command] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    told: dict[Effect, int] = field(default_factory=dict)
    forgiven: dict[Effect, int] = field(default_factory=dict)
    """What was told, and then lost."""
    before: frozenset[str] = frozenset()
    """Reservations that were settled before this book was begun."""

    def copy(self) -> "Book":
        """Of one in which nobody was told anything yet."""
        return Book(dict(self.holds), before=self.before)

    def hear(self, command: Command, outcome: Outcome) -> None:
        match command:
            case Reserve():
                self._hear_hold(command, outcome)
            case Commit() | Release() | Start():
                if isinstance(outcome, Settled):
                    self._hear_change(command, outcome.reservation)
            case Adjust():
                self._hear_adjustment(command, outcome)
            case Meter():
                self._hear_reading(command, outcome)
            case Extend() | Expire() | Pledge():
                pass
            case _:
                assert_never(command)

    def _hear_change(self, command: Commit | Release | Start, held: Reservation) -> None:
        match command:
            case Commit():
                _expect(held, command.reservation_id, State.COMMITTED)
                self._hear_commit(held)
            case Release():
                _expect(held, command.reservation_id, State.RELEASED)
            case Start() if held.operation_id != command.operation_id:
                raise Violation(Invariant.ANSWER, f"{command} was answered with {held}")

    def _hear_hold(self, command: Reserve, outcome: Outcome) -> None:
        if not isinstance(outcome, Granted):
            return
        held = outcome.reservation
        charged = tuple((line.key, line.amount) for line in held.lines)
        if charged != ((command.key, command.amount), *((line.key, line.amount) for line in command.also)):
            raise Violation(Invariant.ANSWER, f"{command} was answered with the hold {held}")
        if self.holds.setdefault(command.request_id, held.id) != held.id:
            said = f"{command.request_id} holds as {self.holds[command.request_id]} and again as {held.id}"
            raise Violation(Invariant.ONCE, said)

    def _hear_commit(self, settled: Reservation) -> None:
        if settled.id in self.before:
            return
        for line in settled.lines:
            assert line.actual is not None
            self._tell((_SETTLED, settled.id, line.key), line.actual)

    def _hear_adjustment(self, command: Adjust, outcome: Outcome) -> None:
        if not isinstance(outcome, Adjusted):
            return
        if (outcome.adjustment.delta, outcome.adjustment.key) != (command.delta, command.key):
            raise Violation(Invariant.ANSWER, f"{command} was answered with {outcome.adjustment}")
        self._tell((_ADJUSTED, command.request_id, command.key), command.delta)

    def _hear_reading(self, command: Meter, outcome: Outcome) -> None:
        if isinstance(outcome, Invalid):
            raise Violation(Invariant.ANSWER, f"an honest word was refused: {command}: {outcome.message}")
        if isinstance(outcome, Metered):
            for key in command.keys:
                name = (_METERED, command.incarnation, key)
                self.told[name] = max(self.told.get(name, 0), command.total)

    def _tell(self, effect: Effect, units: int) -> None:
        if self.told.setdefault(effect, units) != units:
            raise Violation(Invariant.ANSWER, f"{effect} was told as {self.told[effect]} and as {units}")

    def forgive(self, reservations: Mapping[str, Reservation], entries: Iterable[Entry]) -> None:
        """The database has lost commits: nobody answers for what was acknowledged and is not in it any more."""
        found = effects(entries)
        for effect, units in list(self.told.items()):
            if units != found.get(effect, 0):
                self.forgiven[effect] = units
                del self.told[effect]
        self.holds = {request: name for request, name in self.holds.items() if name in reservations}
        self.before = frozenset(
            name for name in self.before if name in reservations and reservations[name].state is State.COMMITTED
        )

    def compare(self, entries: Iterable[Entry]) -> None:
        """With what the ledger says since this book was begun. To be called when nothing is unsure."""
        found = effects(entries)
        for effect, units in self.told.items():
            if units != found.get(effect, 0) and not self._may_be(effect, found[effect]):
                raise Violation(
                    Invariant.ONCE, f"{effect} was acknowledged as {units}, the ledger says {found[effect]}"
                )
        for effect, units in found.items():
            # A further line of a refund is not answered: it may have had less to take back.
            if (
                effect not in self.told
                and not self._may_be(effect, units)
                and not (effect[0] == _ADJUSTED and self._was_adjusted(effect[1]))
            ):
                raise Violation(Invariant.ONCE, f"the ledger has {units} for {effect}, of which nobody was told")

    def _may_be(self, effect: Effect, units: int) -> bool:
        """What was forgiven may have its effect again: some messages are late. A meter's word may be an earlier one."""
        forgiven = self.forgiven.get(effect)
        if effect[0] == _METERED and forgiven is not None:
            return self.told.get(effect, 0) <= units <= forgiven
        return forgiven == units

    def _was_adjusted(self, request: str) -> bool:
        return any(kind == _ADJUSTED and name == request for kind, name, _ in (*self.told, *self.forgiven))


def _expect(held: Reservation, name: str, state: State) -> None:
    if held.id != name or held.state is not state:
        raise Violation(Invariant.ANSWER, f"{name} was told to be {state}, and it is {held}")


def effect_of(entry: Entry) -> Effect | None:
    """What a line of the ledger is the effect of; None: of time, or of what is owed."""
    match entry.kind:
        case EntryKind.COMMIT | EntryKind.LATE_COMMIT if entry.reservation_id is not None:
            return (_SETTLED, entry.reservation_id, entry.key)
        case EntryKind.ADJUST if entry.request_id is not None:
            return (_ADJUSTED, entry.request_id, entry.key)
        case EntryKind.METER:
            return (_METERED, entry.reason.split("/")[1].split(" ")[0], entry.key)
        case _:
            return None


def effects(entries: Iterable[Entry]) -> Mapping[Effect, int]:
    sums: dict[Effect, int] = defaultdict(int)
    for entry in entries:
        if (effect := effect_of(entry)) is not None:
            sums[effect] += entry.delta
    return sums


def once(entries: Sequence[Entry], seen: set[Effect]) -> None:
    """A reservation is settled, and a request adjusts, once: a second line for it is a second charge, or refund."""
    for entry in entries:
        effect = effect_of(entry)
        if effect is None or effect[0] == _METERED:
            continue
        if effect in seen:
            raise Violation(Invariant.ONCE, f"{entry.kind} a second time: {entry}")
        seen.add(effect)
