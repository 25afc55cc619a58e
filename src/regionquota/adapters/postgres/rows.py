"""Between rows and the core's values. Times are timestamptz in Postgres and seconds since 1970 in the core."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from asyncpg import Record

from regionquota.core.commands import Adjustment, Reading
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry
from regionquota.core.periods import Epoch
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reservation import Line, Reservation, State
from regionquota.core.slice import Holding

Columns: TypeAlias = list[list[Any]]

# Values in each row below, in the order in which the statement `store` takes them.
HELD_COLUMNS: Final = 3
COUNTED_COLUMNS: Final = 4
HOLDING_COLUMNS: Final = 15
CLOSED_COLUMNS: Final = 12
RESERVATION_COLUMNS: Final = 17
CHANGE_COLUMNS: Final = 7
ADJUSTMENT_COLUMNS: Final = 11
READING_COLUMNS: Final = 10
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
        overage=row["overage"],
    )


def holding_of(row: Record) -> Holding:
    return Holding(
        key=key_of(row),
        kind=Kind(row["kind"]),
        limit=row["limit_total"],
        revision=row["revision"],
        epoch=row["epoch"],
        counter=counter_of(row),
        policy=_policy(row["policy"]),
        unlimited=row["unlimited"],
        leaked_at=row["leaked_at"],
        guaranteed=row["guaranteed"],
        lien=row["lien"],
    )


def policy_text(policy: QuotaPolicy) -> str:
    """JSON, without what is as by default: most rows then hold two characters of it."""
    plain = msgspec.to_builtins(policy)
    return msgspec.json.encode({name: value for name, value in plain.items() if value != _DEFAULTS[name]}).decode()


@lru_cache(maxsize=4096)
def _policy(text: str) -> QuotaPolicy:
    return msgspec.json.decode(text, type=QuotaPolicy)


_DEFAULTS: Final = msgspec.to_builtins(DEFAULT_POLICY)


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
        operation_id=row["operation_id"],
        generation=row["generation"],
        over=row["over"],
        also=() if row["also"] is None else _lines_of(row["also"]),
    )


class _Line(msgspec.Struct):
    tenant: str
    resource: str
    scope: str
    epoch: int
    amount: int
    over: int
    actual: int | None
    via: tuple[int, ...]


def _lines_of(text: str) -> tuple[Line, ...]:
    return tuple(
        Line(QuotaKey(one.tenant, one.resource, one.scope), one.epoch, one.amount, one.over, one.actual, one.via)
        for one in msgspec.json.decode(text, type=list[_Line])
    )


def _lines_text(lines: Sequence[Line]) -> str | None:
    if not lines:
        return None
    return msgspec.json.encode(
        [
            _Line(
                line.key.tenant, line.key.resource, line.key.scope,
                line.epoch, line.amount, line.over, line.actual, line.via,
            )
            for line in lines
        ]
    ).decode()  # fmt: skip


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


def reading_of(row: Record) -> Reading:
    return Reading(
        key=key_of(row),
        source=row["source"],
        incarnation=row["incarnation"],
        sequence=row["sequence"],
        total=row["total"],
        epoch=row["epoch"],
        added=row["added"],
        at=row["at"].timestamp(),
    )


def columns(rows: Sequence[Sequence[Any]], width: int) -> Columns:
    """Turn rows of `width` values into one list per column, as `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def parts(key: QuotaKey) -> tuple[str, str, str]:
    return (key.tenant, key.resource, key.scope)


def keys(wanted: Iterable[QuotaKey]) -> Columns:
    return columns([parts(key) for key in wanted], 3)


def balances(counter: Counter) -> tuple[int, ...]:
    return (
        counter.slice,
        counter.available,
        counter.reserved,
        counter.used,
        counter.retired,
        counter.overdraft_issued,
        counter.overdraft_repaid,
        counter.overage,
    )


def held_row(reservation: Reservation) -> tuple[Any, ...]:
    return (reservation.id, reservation.state.value, moment(reservation.expires_at))


def holding_row(holding: Holding) -> tuple[Any, ...]:
    key = holding.key
    time_and_liens = (holding.leaked_at, holding.guaranteed, holding.lien)
    return (key.tenant, key.resource, key.scope, holding.epoch, *balances(holding.counter), *time_and_liens)


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
        reservation.operation_id,
        reservation.generation,
        reservation.over,
        _lines_text(reservation.also),
    )


def change_row(reservation: Reservation) -> tuple[Any, ...]:
    return (
        reservation.id,
        reservation.state.value,
        moment(reservation.expires_at),
        reservation.actual,
        None if reservation.settled_at is None else moment(reservation.settled_at),
        reservation.operation_id,
        _lines_text(reservation.also),
    )


def reading_row(reading: Reading) -> tuple[Any, ...]:
    key = reading.key
    return (
        key.tenant,
        key.resource,
        key.scope,
        reading.source,
        reading.incarnation,
        reading.sequence,
        reading.total,
        reading.epoch,
        reading.added,
        moment(reading.at),
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
