"""The life of a reservation: one transition table, and nothing that changes a state outside it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey


class State(StrEnum):
    PENDING = "PENDING"
    """Held; ends by itself."""
    STARTED = "STARTED"
    """The work is under way, by one named operation; does not end by itself."""
    UNKNOWN = "UNKNOWN"
    """Started, and its deadline passed without a receipt. Keeps its capacity until somebody knows."""
    COMMITTED = "COMMITTED"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


class Event(StrEnum):
    START = "start"
    COMMIT = "commit"
    RELEASE = "release"
    EXPIRE = "expire"


TRANSITIONS: Final = {
    (State.PENDING, Event.START): State.STARTED,
    (State.PENDING, Event.COMMIT): State.COMMITTED,
    (State.PENDING, Event.RELEASE): State.RELEASED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
    (State.STARTED, Event.COMMIT): State.COMMITTED,
    (State.STARTED, Event.RELEASE): State.RELEASED,
    (State.STARTED, Event.EXPIRE): State.UNKNOWN,
    (State.UNKNOWN, Event.COMMIT): State.COMMITTED,
    (State.UNKNOWN, Event.RELEASE): State.RELEASED,
    (State.EXPIRED, Event.COMMIT): State.COMMITTED,  # late commit: the work happened, usage must show it
}
HOLDING: Final = frozenset({State.PENDING, State.STARTED, State.UNKNOWN})
"""States in which the amount counts as reserved."""
DUE: Final = frozenset({State.PENDING, State.STARTED})
"""States that end, or change, when their time has run out. Only these can be extended."""


class Line(NamedTuple):
    """`amount` units of one quota, charged to `epoch`, the period of the reserve. `actual` is what was settled.

    `over` units were beyond what was available when it was admitted. `via`: the lines, by their place in the
    reservation, that this one is charged for; what they do not use, it does not use either.
    """

    key: QuotaKey
    epoch: Epoch
    amount: int
    over: int = 0
    actual: int | None = None
    via: tuple[int, ...] = ()


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """Its first line is what the request names: `amount` units of `key` in `epoch`. `also` are the other lines.

    `generation` is that of the first line's policy at the reserve; `over` as in `Line`. Times are seconds since 1970.
    """

    id: str
    key: QuotaKey
    epoch: Epoch
    request_id: str
    digest: bytes
    amount: int
    state: State
    created_at: float
    expires_at: float
    actual: int | None = None
    settled_at: float | None = None
    operation_id: str | None = None
    generation: int = 1
    over: int = 0
    also: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        return (Line(self.key, self.epoch, self.amount, self.over, self.actual), *self.also)


def after(state: State, event: Event) -> State | None:
    """The state that `event` leads to, or None where the table has no such transition."""
    return TRANSITIONS.get((state, event))


def diagram(transitions: Mapping[tuple[State, Event], State] = TRANSITIONS) -> str:
    """The table as a Mermaid state diagram; the documentation holds what this prints."""
    ends = [state for state in State if not any(source is state for source, _ in transitions)]
    arrows = [f"    {source} --> {target}: {event}" for (source, event), target in transitions.items()]
    return "\n".join(
        ["stateDiagram-v2", "    [*] --> PENDING: reserve", *arrows, *(f"    {end} --> [*]" for end in ends)]
    )
