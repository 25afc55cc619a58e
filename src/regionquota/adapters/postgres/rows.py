"""Between rows and the core's values. Times are timestamptz in Postgres and seconds since 1970 in the core."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from asyncpg import Record

from regionquota.core.commands import Adjustment
from regionquota.core.counter import Counter
from regionquota.core.ledger import Entry
from regionquota.core.periods import Epoch
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reservation import Reservation, State
from regionquota.core.slice import Holding

Columns: TypeAlias = list[list[Any]]

# Values in each row below, in the order in which the statement `store` takes them.
HOLDING_COLUMNS: Final = 13
CLOSED_COLUMNS: Final = 11
RESERVATION_COLUMNS: Final = 13
CHANGE_COLUMNS: Final = 5
ADJUSTMENT_COLUMNS: Final = 11
ENTRY_COLUMNS: Final = 10


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def key_of(row: Record) -> QuotaKey:
    return QuotaKey(row["tenant_id"], row["resource"], row["scope"])


def counter_of(row: Record) -> Counter:
    return Counter(
        slice=row["slice"],
        available=row["available"],
        reserved=row["reserved"],
        used=row["used"],
        retired=row["retired"],
        overdraft_issued=row["overdraft_issued"],
        overdraft_repaid=row["overdraft_repaid"],
    )


def holding_of(row: Record) -> Holding:
    return Holding(
        key=key_of(row),
        kind=Kind(row["kind"]),
        limit=row["limit_total"],
        revision=row["revision"],
        epoch=row["epoch"],
        counter=counter_of(row),
    )


def reservation_of(row: Record) -> Reservation:
    settled_at = row["settled_at"]
    return Reservation(
        id=str(row["id"]),
        key=key_of(row),
        epoch=row["epoch"],
        request_id=row["request_id"],
        digest=row["digest"],
        amount=row["amount"],
        state=State(row["state"]),
        created_at=row["created_at"].timestamp(),
        expires_at=row["expires_at"].timestamp(),
        actual=row["actual"],
        settled_at=None if settled_at is None else settled_at.timestamp(),
    )


def adjustment_of(row: Record) -> Adjustment:
    return Adjustment(
        key=key_of(row),
        epoch=row["epoch"],
        request_id=row["request_id"],
        digest=row["digest"],
        delta=row["delta"],
        reason=row["reason"],
        used=row["used"],
        available=row["available"],
        at=row["at"].timestamp(),
    )


def columns(rows: Sequence[Sequence[Any]], width: int) -> Columns:
    """Turn rows of `width` values into one list per column, as `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def keys(wanted: Iterable[QuotaKey]) -> Columns:
    return columns([(key.tenant, key.resource, key.scope) for key in wanted], 3)


def balances(counter: Counter) -> tuple[int, ...]:
    return (
        counter.slice,
        counter.available,
        counter.reserved,
        counter.used,
        counter.retired,
        counter.overdraft_issued,
        counter.overdraft_repaid,
    )


def holding_row(holding: Holding) -> tuple[Any, ...]:
    key = holding.key
    head = (key.tenant, key.resource, key.scope, holding.limit, holding.revision, holding.epoch)
    return head + balances(holding.counter)


def closed_row(key: QuotaKey, epoch: Epoch, counter: Counter) -> tuple[Any, ...]:
    return (key.tenant, key.resource, key.scope, epoch, *balances(counter))


def reservation_row(reservation: Reservation) -> tuple[Any, ...]:
    key = reservation.key
    return (
        reservation.id,
        key.tenant,
        key.resource,
        key.scope,
        reservation.epoch,
        reservation.request_id,
        reservation.digest,
        reservation.amount,
        reservation.state.value,
        moment(reservation.created_at),
        moment(reservation.expires_at),
        reservation.actual,
        None if reservation.settled_at is None else moment(reservation.settled_at),
    )


def change_row(reservation: Reservation) -> tuple[Any, ...]:
    return (
        reservation.id,
        reservation.state.value,
        moment(reservation.expires_at),
        reservation.actual,
        None if reservation.settled_at is None else moment(reservation.settled_at),
    )


def entry_row(entry: Entry) -> tuple[Any, ...]:
    key = entry.key
    return (
        moment(entry.at),
        key.tenant,
        key.resource,
        key.scope,
        entry.epoch,
        entry.kind.value,
        entry.delta,
        entry.reservation_id,
        entry.request_id,
        entry.reason,
    )


def adjustment_row(adjustment: Adjustment) -> tuple[Any, ...]:
    key = adjustment.key
    return (
        key.tenant,
        adjustment.request_id,
        key.resource,
        key.scope,
        adjustment.epoch,
        adjustment.digest,
        adjustment.delta,
        adjustment.reason,
        adjustment.used,
        adjustment.available,
        moment(adjustment.at),
    )
