"""What a caller may ask of the ledger, and what it may answer. Validated at the edge: nothing is checked twice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Event, Reservation
from regionquota.core.slice import Holding


@dataclass(frozen=True, slots=True)
class Charge:
    """A further line of a request. `via`: the lines (the first is 0) that it is charged for; see `Line`."""

    key: QuotaKey
    amount: int
    via: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Hold `amount` for `ttl_s` seconds, and what `also` says, all or none.

    The caller chooses `reservation_id`, so that a repeat names the same. No two lines name the same quota.
    """

    reservation_id: str
    key: QuotaKey
    amount: int
    request_id: str
    digest: bytes
    ttl_s: int
    also: tuple[Charge, ...] = ()

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, *(line.key for line in self.also))


@dataclass(frozen=True, slots=True)
class Start:
    """The work begins, by this operation and no other; from now on the hold does not end by itself."""

    reservation_id: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Commit:
    """`actual` None commits what was reserved; `lines` says what further lines are settled at."""

    reservation_id: str
    actual: int | None = None
    lines: Mapping[QuotaKey, int] = field(default_factory=dict)


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
    """Change `used` by `delta`, which is not 0, here and in the quotas that `also` names, all or none."""

    key: QuotaKey
    delta: int
    request_id: str
    digest: bytes
    reason: str
    also: tuple[QuotaKey, ...] = ()
    reconciles: bool = False

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, *self.also)


@dataclass(frozen=True, slots=True)
class Meter:
    """`source` has counted `total` units of `key` since its `incarnation` began; this is its word number `sequence`."""

    key: QuotaKey
    source: str
    incarnation: str
    sequence: int
    total: int
    also: tuple[QuotaKey, ...] = ()

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, *self.also)


@dataclass(frozen=True, slots=True)
class Pledge:
    """Keep in `parent` what of the guarantee of `key` is not in use."""

    key: QuotaKey
    parent: QuotaKey

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, self.parent)


QuotaCommand: TypeAlias = Reserve | Adjust | Meter | Pledge
ReservationCommand: TypeAlias = Start | Commit | Release | Extend | Expire
Command: TypeAlias = QuotaCommand | ReservationCommand


class DenyReason(StrEnum):
    OVER_LIMIT = "OVER_LIMIT"
    IN_DEBT = "IN_DEBT"
    OVERDRAFT_EXCEEDED = "OVERDRAFT_EXCEEDED"
    """In debt by more than the policy's largest overdraft."""
    MAX_SINGLE_RESERVATION = "MAX_SINGLE_RESERVATION"
    ADMISSION_CLOSED = "ADMISSION_CLOSED"


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
class Reading:
    """How far a source has been counted: `added` is what its last word added."""

    key: QuotaKey
    source: str
    incarnation: str
    sequence: int
    total: int
    epoch: int
    added: int
    at: float


@dataclass(frozen=True, slots=True)
class Granted:
    """`would_deny`: the policy let it in though it does not fit."""

    reservation: Reservation
    holding: Holding
    replayed: bool = False
    would_deny: DenyReason | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """`holding` is that of the line that does not fit, `amount` what the line asks for; `free` is what it could get."""

    reason: DenyReason
    amount: int
    holding: Holding
    free: int = 0


@dataclass(frozen=True, slots=True)
class Suspended:
    """The tenant may not reserve anything, whatever its quotas say."""

    tenant: str
    why: str


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
class Metered:
    """`replayed`: a word that was heard before, or overtaken by a later one; it added nothing."""

    reading: Reading
    holding: Holding
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Pledged:
    holding: Holding


@dataclass(frozen=True, slots=True)
class Invalid:
    """The request does not fit the balance it names: `field` says which part of it."""

    field: str
    message: str


Refusal: TypeAlias = Denied | Suspended | UnknownQuota | RequestConflict | Forbidden | NotFound | Invalid
Outcome: TypeAlias = Granted | Settled | Adjusted | Metered | Pledged | Refusal
