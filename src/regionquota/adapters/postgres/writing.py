"""What a batch changed, as the statement `store` takes it: a JSON array of rows for each part, or nothing."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from regionquota.adapters.postgres.memo import Basis
from regionquota.adapters.postgres.rows import CounterRow
from regionquota.adapters.postgres.statements import STORE
from regionquota.adapters.postgres.transaction import Connection
from regionquota.core.balances import Writes
from regionquota.core.commands import Adjustment, Reading
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import Line, Reservation

_NOTHING: Final = Basis({}, ())
_encode: Final = msgspec.json.Encoder().encode


async def store(conn: Connection, writes: Writes, counters: Iterable[CounterRow], basis: Basis = _NOTHING) -> bool:
    """One round trip. False: nothing was stored, for `basis` does not hold. Rows that are locked need not be in it.

    `counters` are the rows for the holdings in `writes`.
    """
    made = {(new.key.tenant, new.request_id) for new in writes.created.values()}
    parts = {
        "held": _part(map(_held, basis.reservations)),
        "counted": _part(map(_version, basis.counters.values())),
        "refused": _part(
            {"tenant_id": tenant, "request_id": one} for tenant, one in basis.requests if (tenant, one) not in made
        ),
        "new": _part(map(_created, writes.created.values())),
        "counters": _part(map(_counter, counters)),
        "closed": _part(_closed(key, epoch, counter) for (key, epoch), counter in writes.closed.items()),
        "changed": _part(map(_changed, writes.changed.values())),
        "adjusted": _part(map(_adjustment, writes.adjustments)),
        "metered": _part(map(_reading, writes.readings.values())),
        "explained": _part(map(_entry, writes.entries)),
    }
    present = {name: rows for name, rows in parts.items() if rows is not None}
    return not present or bool(await conn.fetchval(_statement(tuple(present)), *present.values()))


# What has to be true if anything is to be written, in the order in which locks are taken.
_GUARDS: Final = {
    "held": "(SELECT count(*) FROM held) = json_array_length(:rows)",
    "counted": "(SELECT count(*) FROM counted) = json_array_length(:rows)",
    "refused": "NOT EXISTS (SELECT FROM refused)",
    "new": "NOT EXISTS (SELECT FROM new JOIN reservations USING (tenant_id, request_id))",
}


@lru_cache
def _statement(names: tuple[str, ...]) -> str:
    """Everything that a batch changed, provided that what it was decided upon still is so. Returns whether it is."""
    looks, guards, changes = [], ["true"], []
    for number, name in enumerate(names, 1):
        rows = f"${number}::json"
        text = STORE[name].replace(":rows", rows)
        if name in _GUARDS:
            looks.append(f"{name} AS MATERIALIZED (\n{text}\n)")
            guards.append(_GUARDS[name].replace(":rows", rows))
        else:
            changes.append(f"{name} AS (\n{text}\n)")
    if "new" in names:
        changes.append(f"created AS (\n{STORE['created']}\n)")
    guard = f"guard AS MATERIALIZED (\nSELECT {' AND '.join(guards)} AS holds\n)"
    return f"WITH {', '.join([*looks, guard, *changes])}\nSELECT holds FROM guard"


def _part(rows: Iterable[dict[str, Any]]) -> str | None:
    listed = list(rows)
    return _encode(listed).decode() if listed else None


def _key(key: QuotaKey) -> dict[str, Any]:
    return {"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope}


def _balances(counter: Counter) -> dict[str, Any]:
    return {
        "slice": counter.slice,
        "available": counter.available,
        "reserved": counter.reserved,
        "used": counter.used,
        "retired": counter.retired,
        "overdraft_issued": counter.overdraft_issued,
        "overdraft_repaid": counter.overdraft_repaid,
        "overage": counter.overage,
    }


def _version(row: CounterRow) -> dict[str, Any]:
    return {**_key(row.holding.key), "shard": row.shard, "version": row.version}


def _held(known: Reservation) -> dict[str, Any]:
    return {"id": known.id, "state": known.state, "expires_at": known.expires_at}


def _counter(row: CounterRow) -> dict[str, Any]:
    holding = row.holding
    return {
        **_key(holding.key),
        "shard": row.shard,
        "shards": row.shards,
        "epoch": holding.epoch,
        **_balances(holding.counter),
        "leaked_at": holding.leaked_at,
        "guaranteed": holding.guaranteed,
        "lien": holding.lien,
    }


def _closed(key: QuotaKey, epoch: Epoch, counter: Counter) -> dict[str, Any]:
    return {**_key(key), "epoch": epoch, **_balances(counter)}


def _created(new: Reservation) -> dict[str, Any]:
    return {
        **_changed(new),
        **_key(new.key),
        "epoch": new.epoch,
        "request_id": new.request_id,
        "digest": "\\x" + new.digest.hex(),
        "amount": new.amount,
        "created_at": new.created_at,
        "generation": new.generation,
        "over": new.over,
    }


def _changed(changed: Reservation) -> dict[str, Any]:
    return {
        "id": changed.id,
        "state": changed.state,
        "expires_at": changed.expires_at,
        "actual": changed.actual,
        "settled_at": changed.settled_at,
        "operation_id": changed.operation_id,
        "also": [_line(line) for line in changed.also] or None,
    }


def _line(line: Line) -> dict[str, Any]:
    key = line.key
    return {
        "tenant": key.tenant,
        "resource": key.resource,
        "scope": key.scope,
        "epoch": line.epoch,
        "amount": line.amount,
        "over": line.over,
        "actual": line.actual,
        "via": line.via,
    }


def _adjustment(adjustment: Adjustment) -> dict[str, Any]:
    return {
        **_key(adjustment.key),
        "request_id": adjustment.request_id,
        "epoch": adjustment.epoch,
        "digest": "\\x" + adjustment.digest.hex(),
        "delta": adjustment.delta,
        "reason": adjustment.reason,
        "used": adjustment.used,
        "available": adjustment.available,
        "at": adjustment.at,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        **_key(reading.key),
        "source": reading.source,
        "incarnation": reading.incarnation,
        "sequence": reading.sequence,
        "total": reading.total,
        "epoch": reading.epoch,
        "added": reading.added,
        "at": reading.at,
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        **_key(entry.key),
        "at": entry.at,
        "epoch": entry.epoch,
        "kind": entry.kind,
        "delta": entry.delta,
        "reservation_id": entry.reservation_id,
        "request_id": entry.request_id,
        "reason": entry.reason,
    }
