"""Between rows and the core's values. Times are timestamptz in Postgres and seconds since 1970 in the core."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from asyncpg import Record

from regionquota.core.commands import Adjustment, Reading
from regionquota.core.counter import Counter
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reservation import Line, Reservation, State
from regionquota.core.slice import Holding

Columns: TypeAlias = list[list[Any]]


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


class CounterRow(NamedTuple):
    """One row of quota_counters: a quota, or one of its `shards`. Whoever writes it raises the version."""

    version: int
    shard: int
    shards: int
    holding: Holding


def counter_row_of(row: Record) -> CounterRow:
    return CounterRow(row["version"], row["shard"], row["shards"], holding_of(row))


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
