"""What a caller may ask of the ledger, and what it may answer. Validated at the edge: nothing is checked twice."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Event, Reservation
from regionquota.core.slice import Holding


class Charge(NamedTuple):
    """A further line of a request. `via`: the lines (the first is 0) that it is charged for; see `Line`."""

    key: QuotaKey
    amount: int
    via: tuple[int, ...] = ()


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Hold `amount` for `ttl_s` seconds, and what `also` says, all or none.

    The caller chooses `reservation_id`, so that a repeat names the same. No two lines name the same quota. `priority`
    says how it is asked for, not what is held: `digest` is not of it, and it is not kept.
    """

    reservation_id: str
    key: QuotaKey
    amount: int
    request_id: str
    digest: bytes
    ttl_s: int
    also: tuple[Charge, ...] = ()
    priority: Priority = Priority.NORMAL

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, *(line.key for line in self.also))


class Start(msgspec.Struct, frozen=True, gc=False):
    """The work begins, by this operation and no other; from now on the hold does not end by itself."""

    reservation_id: str
    operation_id: str


class Commit(msgspec.Struct, frozen=True, gc=False):
    """`actual` None commits what was reserved; `lines` says what further lines are settled at.

    `reason` goes to the usage ledger.
    """

    reservation_id: str
    actual: int | None = None
    lines: Mapping[QuotaKey, int] = msgspec.field(default_factory=dict)
    reason: str = ""


class Release(msgspec.Struct, frozen=True, gc=False):
    """`reason` goes to the usage ledger, where the release repays a debt; else there is no line to hold it."""

    reservation_id: str
    reason: str = ""


class Extend(msgspec.Struct, frozen=True, gc=False):
    """Let the hold end `ttl_s` seconds from now."""

    reservation_id: str
    ttl_s: int


class Expire(msgspec.Struct, frozen=True, gc=False):
    """The sweeper's word; it does nothing to a hold that was extended or settled in the meantime."""

    reservation_id: str


class Adjust(msgspec.Struct, frozen=True, gc=False):
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


class Meter(msgspec.Struct, frozen=True, gc=False):
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


class Pledge(msgspec.Struct, frozen=True, gc=False):
    """Keep in `parent` what of the guarantee of `key` is not in use."""

    key: QuotaKey
    parent: QuotaKey

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        return (self.key, self.parent)


Correction: TypeAlias = Adjust | Meter | Pledge
QuotaCommand: TypeAlias = Reserve | Correction
ReservationCommand: TypeAlias = Start | Commit | Release | Extend | Expire
Command: TypeAlias = QuotaCommand | ReservationCommand


class DenyReason(StrEnum):
    OVER_LIMIT = "OVER_LIMIT"
    KEPT_FOR_HIGHER_PRIORITY = "KEPT_FOR_HIGHER_PRIORITY"
    """One of high priority had fitted."""
    IN_DEBT = "IN_DEBT"
    OVERDRAFT_EXCEEDED = "OVERDRAFT_EXCEEDED"
    """In debt by more than the policy's largest overdraft."""
    MAX_SINGLE_RESERVATION = "MAX_SINGLE_RESERVATION"
    ADMISSION_CLOSED = "ADMISSION_CLOSED"


class Adjustment(msgspec.Struct, frozen=True, gc=False):
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


class Reading(msgspec.Struct, frozen=True, gc=False):
    """How far a source has been counted: `added` is what its last word added."""

    key: QuotaKey
    source: str
    incarnation: str
    sequence: int
    total: int
    epoch: int
    added: int
    at: float


class Granted(msgspec.Struct, frozen=True, gc=False):
    """`would_deny`: the policy let it in though it does not fit."""

    reservation: Reservation
    holding: Holding
    replayed: bool = False
    would_deny: DenyReason | None = None


class Denied(msgspec.Struct, frozen=True, gc=False):
    """`holding` is that of the line that does not fit, `amount` what the line asks for; `room` is what one of high
    priority could get of it, of which `kept` units are not for this one.
    """

    reason: DenyReason
    amount: int
    holding: Holding
    room: int = 0
    kept: int = 0
    priority: Priority = Priority.NORMAL

    @property
    def free(self) -> int:
        """What it could get."""
        return max(0, self.room - self.kept)


class Suspended(msgspec.Struct, frozen=True, gc=False):
    """The tenant may not reserve anything, whatever its quotas say."""

    tenant: str
    why: str


class UnknownQuota(msgspec.Struct, frozen=True, gc=False):
    """No row for the quota in this region; another may have one."""

    key: QuotaKey


class RequestConflict(msgspec.Struct, frozen=True, gc=False):
    """The request id is known with other content."""

    request_id: str


class Settled(msgspec.Struct, frozen=True, gc=False):
    """Committed, released, expired or extended: the reservation as it is now."""

    reservation: Reservation
    replayed: bool = False


class Forbidden(msgspec.Struct, frozen=True, gc=False):
    """The reservation's state has no such transition, or it was committed with another amount."""

    reservation: Reservation
    event: Event | None
    message: str


class NotFound(msgspec.Struct, frozen=True, gc=False):
    reservation_id: str


class Adjusted(msgspec.Struct, frozen=True, gc=False):
    adjustment: Adjustment
    replayed: bool = False


class Metered(msgspec.Struct, frozen=True, gc=False):
    """`replayed`: a word that was heard before, or overtaken by a later one; it added nothing."""

    reading: Reading
    holding: Holding
    replayed: bool = False


class Pledged(msgspec.Struct, frozen=True, gc=False):
    holding: Holding


class Invalid(msgspec.Struct, frozen=True, gc=False):
    """The request does not fit the balance it names: `field` says which part of it."""

    field: str
    message: str


Refusal: TypeAlias = Denied | Suspended | UnknownQuota | RequestConflict | Forbidden | NotFound | Invalid
Outcome: TypeAlias = Granted | Settled | Adjusted | Metered | Pledged | Refusal
