"""The life of a reservation: one transition table, and nothing that changes a state outside it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey


class State(StrEnum):
    PENDING = "PENDING"
    COMMITTED = "COMMITTED"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


class Event(StrEnum):
    COMMIT = "commit"
    RELEASE = "release"
    EXPIRE = "expire"


TRANSITIONS: Final = {
    (State.PENDING, Event.COMMIT): State.COMMITTED,
    (State.PENDING, Event.RELEASE): State.RELEASED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
    (State.EXPIRED, Event.COMMIT): State.COMMITTED,  # late commit: the work happened, usage must show it
}


@dataclass(frozen=True, slots=True)
class Reservation:
    """`amount` units of `key`, charged to `epoch`, the period of the reserve. Times are seconds since 1970."""

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


def after(state: State, event: Event) -> State | None:
    """The state that `event` leads to, or None where the table has no such transition."""
    return TRANSITIONS.get((state, event))
