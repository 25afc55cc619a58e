"""What a caller may ask of the ledger, and what it may answer. Validated at the edge: nothing is checked twice."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Event, Reservation
from regionquota.core.slice import Holding


@dataclass(frozen=True, slots=True)
class Reserve:
    """Hold `amount` for `ttl_s` seconds. The caller chooses `reservation_id`, so that a repeat names the same."""

    reservation_id: str
    key: QuotaKey
    amount: int
    request_id: str
    digest: bytes
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`actual` None commits what was reserved."""

    reservation_id: str
    actual: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    reservation_id: str


@dataclass(frozen=True, slots=True)
class Extend:
    """Let the hold end `ttl_s` seconds from now."""

    reservation_id: str
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Expire:
    """The sweeper's word; it does nothing to a hold that was extended or settled in the meantime."""

    reservation_id: str


@dataclass(frozen=True, slots=True)
class Adjust:
    """Change `used` by `delta`, which is not 0."""

    key: QuotaKey
    delta: int
    request_id: str
    digest: bytes
    reason: str


Command: TypeAlias = Reserve | Commit | Release | Extend | Expire | Adjust


class DenyReason(StrEnum):
    OVER_LIMIT = "OVER_LIMIT"
    IN_DEBT = "IN_DEBT"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """An adjustment as it was answered: `used` and `available` are those right after it."""

    key: QuotaKey
    epoch: int
    request_id: str
    digest: bytes
    delta: int
    reason: str
    used: int
    available: int
    at: float


@dataclass(frozen=True, slots=True)
class Granted:
    reservation: Reservation
    holding: Holding
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    reason: DenyReason
    amount: int
    holding: Holding


@dataclass(frozen=True, slots=True)
class UnknownQuota:
    """No row for the quota in this region; another may have one."""

    key: QuotaKey


@dataclass(frozen=True, slots=True)
class RequestConflict:
    """The request id is known with other content."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Committed, released, expired or extended: the reservation as it is now."""

    reservation: Reservation
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The reservation's state has no such transition, or it was committed with another amount."""

    reservation: Reservation
    event: Event | None
    message: str


@dataclass(frozen=True, slots=True)
class NotFound:
    reservation_id: str


@dataclass(frozen=True, slots=True)
class Adjusted:
    adjustment: Adjustment
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Invalid:
    """The request does not fit the balance it names: `field` says which part of it."""

    field: str
    message: str


Outcome: TypeAlias = (
    Granted | Denied | UnknownQuota | RequestConflict | Settled | Forbidden | NotFound | Adjusted | Invalid
)
