"""What a batch changed, as the statement `store` takes it: a JSON array of rows for each part, or nothing."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from regionquota.adapters.postgres.memo import Basis
from regionquota.adapters.postgres.rows import CounterRow
from regionquota.adapters.postgres.statements import LEDGER
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
    parts = (
        _part(_held(known) for known in basis.reservations),
        _part({**_key(key), "shard": row.shard, "version": row.version} for key, row in basis.counters.items()),
        _part(map(_counter, counters)),
        _part(_closed(key, epoch, counter) for (key, epoch), counter in writes.closed.items()),
        _part(map(_created, writes.created.values())),
        _part(map(_changed, writes.changed.values())),
        _part(map(_adjustment, writes.adjustments)),
        _part(map(_reading, writes.readings.values())),
        _part(map(_entry, writes.entries)),
        _part({"tenant_id": tenant, "request_id": one} for tenant, one in basis.requests if (tenant, one) not in made),
    )
    return not any(parts) or bool(await conn.fetchval(LEDGER["store"], *parts))


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
