"""RegionStore on Postgres: load under locks, decide in the core, store with set-based statements."""

import json
from collections.abc import Container, Iterable, Sequence
from typing import Any

import asyncpg

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.statements import LEDGER, READS, SLICES
from regionquota.adapters.postgres.transaction import Connection, Deadlines, Pool, connection, transaction
from regionquota.core.allocation import Allocation, Move
from regionquota.core.commands import Adjust, Command, Outcome, Reserve
from regionquota.core.ledger import Loaded, Writes, decide, turn_of_epoch
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding, apply
from regionquota.errors import StoreUnavailable
from regionquota.ports import BalanceCheck, SliceEntry

MAX_RESTARTS = 5
"""How often one call starts over when another process inserted the same key in between."""


class _Overtaken(Exception):  # noqa: N818
    """What a batch works on was made after it had been looked for, so it is not locked."""


class PostgresRegionStore:
    """Times out by `deadlines`; the pool is the caller's to open and close."""

    def __init__(self, pool: Pool, region: Region, deadlines: Deadlines) -> None:
        self._pool = pool
        self._region = region
        self._deadlines = deadlines

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        for _ in range(MAX_RESTARTS):
            try:
                async with transaction(self._pool, self._deadlines) as conn:
                    loaded = await _load(conn, batch)
                    outcomes, writes = decide(loaded, batch, now)
                    await _store(conn, writes)
                return outcomes
            except (asyncpg.UniqueViolationError, _Overtaken):
                # Another process used the same request id in between: the next look finds what it made.
                continue
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions of request ids with another process")

    async def apply(self, key: QuotaKey, allocation: Allocation, revision: int, now: float) -> Holding | None:
        for _ in range(MAX_RESTARTS):
            async with transaction(self._pool, self._deadlines) as conn:
                row = await conn.fetchrow(SLICES["lock_counter"], key.tenant, key.resource, key.scope)
                before = None if row is None else rows.holding_of(row)
                changed = apply(before, key, allocation, revision, self._region, now)
                if changed is None or changed == before:
                    return changed
                if before is None and not await _create_counter(conn, changed):
                    continue
                await _record_slice(conn, before, changed, allocation.moves_from(self._region), now)
                return changed
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions over the first use of {key}")

    async def holding(self, key: QuotaKey) -> Holding | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["holding"], key.tenant, key.resource, key.scope)
        return None if row is None else rows.holding_of(row)

    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]:
        async with connection(self._pool, self._deadlines) as conn:
            return [rows.holding_of(row) for row in await conn.fetch(READS["holdings"], tenant)]

    async def reservation(self, reservation_id: str) -> Reservation | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["reservation"], reservation_id)
        return None if row is None else rows.reservation_of(row)

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["reservation_of_request"], tenant, request_id)
        return None if row is None else rows.reservation_of(row)

    async def expired(self, now: float, most: int) -> Sequence[tuple[str, float]]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["expired"], rows.moment(now), most)
        return [(str(row["id"]), row["expires_at"].timestamp()) for row in found]

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        parts = (None, None, None) if key is None else (key.tenant, key.resource, key.scope)
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["slice_history"], after, *parts, most)
        return [
            SliceEntry(
                id=row["id"],
                at=row["at"].timestamp(),
                key=rows.key_of(row),
                revision=row["revision"],
                before=row["before"],
                after=row["after"],
                moves=json.loads(row["moves"]),
            )
            for row in found
        ]

    async def check_balances(self) -> Sequence[BalanceCheck]:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["check_balances"], timeout=AUDIT_TIMEOUT_S)
        return [
            BalanceCheck(
                key=rows.key_of(row),
                epoch=row["epoch"],
                counter=rows.counter_of(row),
                replayed={name: row[f"replayed_{name}"] for name in REPLAYED},
            )
            for row in found
        ]


REPLAYED = ("slice", "reserved", "used", "overdraft_issued", "overdraft_repaid")
AUDIT_TIMEOUT_S = 300.0
"""An audit reads whole tables."""


async def _load(conn: Connection, batch: Sequence[Command]) -> Loaded:
    """Lock and read what `batch` names: reservations, then counters, then what the counters' locks protect."""
    loaded = Loaded()
    named = [command.reservation_id for command in batch if not isinstance(command, Reserve | Adjust)]
    if named:
        found = await conn.fetch(LEDGER["load_reservations"], sorted(set(named)))
        loaded.reservations = {str(row["id"]): rows.reservation_of(row) for row in found}
    reserves = [command for command in batch if isinstance(command, Reserve)]
    adjusts = [command for command in batch if isinstance(command, Adjust)]
    wanted = {command.key for command in reserves} | {command.key for command in adjusts}
    wanted |= {reservation.key for reservation in loaded.reservations.values()}
    if wanted:
        await _load_counters(conn, loaded, wanted)
    if reserves:
        await _load_requests(conn, loaded, reserves, wanted)
    if adjusts:
        asked = rows.columns([(command.key.tenant, command.request_id) for command in adjusts], 2)
        for row in await conn.fetch(LEDGER["load_adjustments"], *asked):
            loaded.adjustments[row["tenant_id"], row["request_id"]] = rows.adjustment_of(row)
    return loaded


async def _load_counters(conn: Connection, loaded: Loaded, wanted: Iterable[QuotaKey]) -> None:
    for row in await conn.fetch(LEDGER["load_counters"], *rows.keys(wanted)):
        holding = rows.holding_of(row)
        loaded.holdings[holding.key] = holding
    closed = {
        (held.key.tenant, held.key.resource, held.key.scope, held.epoch)
        for held in loaded.reservations.values()
        if held.epoch != loaded.holdings[held.key].epoch
    }
    if closed:
        for row in await conn.fetch(LEDGER["load_closed"], *rows.columns(list(closed), 4)):
            loaded.closed[rows.key_of(row), row["epoch"]] = rows.counter_of(row)


async def _load_requests(
    conn: Connection, loaded: Loaded, reserves: Sequence[Reserve], wanted: Container[QuotaKey]
) -> None:
    """Reserves whose id is known already. Their quota may differ from the one asked for, so it is loaded too."""
    asked = rows.columns([(command.key.tenant, command.request_id) for command in reserves], 2)
    for row in await conn.fetch(LEDGER["load_requests"], *asked):
        known = rows.reservation_of(row)
        loaded.requests[known.key.tenant, known.request_id] = known.id
        loaded.reservations.setdefault(known.id, known)
        if known.key not in loaded.holdings:
            if known.key in wanted:
                raise _Overtaken
            holding = await conn.fetchrow(READS["holding"], known.key.tenant, known.key.resource, known.key.scope)
            assert holding is not None, "a reservation's quota has a counter in its region for ever"
            loaded.holdings[known.key] = rows.holding_of(holding)


async def _store(conn: Connection, writes: Writes) -> None:
    """One round trip, none where nothing was changed."""
    parts: tuple[tuple[Sequence[Sequence[Any]], int], ...] = (
        ([rows.holding_row(held) for held in writes.holdings.values()], rows.HOLDING_COLUMNS),
        ([rows.closed_row(*of, counter) for of, counter in writes.closed.items()], rows.CLOSED_COLUMNS),
        ([rows.reservation_row(new) for new in writes.created.values()], rows.RESERVATION_COLUMNS),
        ([rows.change_row(changed) for changed in writes.changed.values()], rows.CHANGE_COLUMNS),
        ([rows.adjustment_row(new) for new in writes.adjustments], rows.ADJUSTMENT_COLUMNS),
        ([rows.entry_row(entry) for entry in writes.entries], rows.ENTRY_COLUMNS),
    )
    if any(values for values, _ in parts):
        await conn.execute(LEDGER["store"], *(column for part in parts for column in rows.columns(*part)))


async def _create_counter(conn: Connection, holding: Holding) -> bool:
    """False: somebody else did."""
    tenant, resource, scope, *rest = rows.holding_row(holding)
    created = await conn.fetchval(SLICES["create_counter"], tenant, resource, scope, holding.kind.value, *rest)
    return created is not None


async def _record_slice(
    conn: Connection, before: Holding | None, changed: Holding, moves: Sequence[Move], now: float
) -> None:
    """The counter, the epoch that was closed, the debt that was repaid; a slice ledger row if the slice changed."""
    closed, entries = turn_of_epoch(before, changed, now)
    await _store(conn, Writes(holdings={changed.key: changed}, closed=closed, entries=entries))
    was = 0 if before is None else before.slice
    if changed.slice != was:
        key = changed.key
        named = json.dumps([{"id": m.id, "to": m.target, "amount": m.amount} for m in moves])
        await conn.execute(
            SLICES["append_slice"], rows.moment(now), key.tenant, key.resource, key.scope,
            changed.revision, changed.epoch, was, changed.slice, named,
        )  # fmt: skip
