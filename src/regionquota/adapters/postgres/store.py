"""RegionStore on Postgres: decide in the core upon what is remembered or looked up, store with one statement."""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import asyncpg

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.loading import Overtaken, load, load_closed, load_counters, peek
from regionquota.adapters.postgres.memo import Basis, Memo
from regionquota.adapters.postgres.statements import LEDGER, READS, SLICES
from regionquota.adapters.postgres.transaction import (
    Connection,
    Deadlines,
    Pool,
    at_once,
    connection,
    plan_freely,
    read_again,
    transaction,
)
from regionquota.adapters.postgres.writing import store
from regionquota.core.allocation import Allocation
from regionquota.core.balances import Loaded, Writes, turn
from regionquota.core.commands import Command, Outcome
from regionquota.core.ledger import decide, free_expired
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation, State
from regionquota.core.slice import Holding, apply
from regionquota.errors import ProtocolError, StoreUnavailable
from regionquota.ports import Backlog, BalanceCheck, Expired, SliceEntry

MAX_LOOKS: Final = 2
"""Decisions upon rows that are not locked, before they are: what was remembered, then what was just read."""
MAX_RESTARTS: Final = 5
"""How often one call starts over when another process inserted the same key in between."""
REPLAYED: Final = ("slice", "reserved", "used", "overdraft_issued", "overdraft_repaid", "guaranteed")
MADE_AT_ONCE: Final = 200
"""Holdings made of rows without a pause: about 2 ms."""
AUDIT_TIMEOUT_S: Final = 300.0
"""An audit reads whole tables."""

# Another process used the same request id, or changed the table's columns: the next look finds what it did.
_START_OVER: Final = (asyncpg.UniqueViolationError, asyncpg.InvalidCachedStatementError, Overtaken)


class PostgresRegionStore:
    """Times out by `deadlines`; the pool is the caller's to open and close."""

    def __init__(self, pool: Pool, region: Region, deadlines: Deadlines) -> None:
        self._pool = pool
        self._region = region
        self._deadlines = deadlines
        self._memo = Memo()

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        for _ in range(MAX_LOOKS):
            recalled = self._memo.recall(batch) or await self._look_up(batch)
            if recalled is None:
                break
            outcomes = await self._decide_at_once(*recalled, batch, now)
            if outcomes is not None:
                return outcomes
        for _ in range(MAX_RESTARTS):
            try:
                async with transaction(self._pool, self._deadlines) as conn:
                    loaded, basis = await load(conn, batch)
                    outcomes, writes = decide(loaded, batch, now)
                    if not await store(conn, writes):
                        raise Overtaken
            except _START_OVER:
                continue
            self._memo.learn(basis, loaded, writes)
            return outcomes
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions of request ids with another process")

    async def _look_up(self, batch: Sequence[Command]) -> tuple[Loaded, Basis] | None:
        """Read what is not remembered, without a lock: whether it still is so is asked when it is stored."""
        missing = self._memo.missing(batch)
        if missing is None:
            return None
        try:
            async with connection(self._pool, self._deadlines) as conn:
                await peek(conn, self._memo, *missing)
        except asyncpg.InvalidCachedStatementError:
            return None  # the table is being changed: look under a lock
        return self._memo.recall(batch)

    async def _decide_at_once(
        self, loaded: Loaded, basis: Basis, batch: Sequence[Command], now: float
    ) -> Sequence[Outcome] | None:
        """In one round trip, and without holding a lock across any; None: what was remembered is not so any more."""
        try:
            outcomes, writes = decide(loaded, batch, now)
        except ProtocolError:  # rows that were seen at different moments need not go together
            self._memo.forget(basis)
            return None
        try:
            async with at_once(self._pool, self._deadlines) as conn:
                stored = await store(conn, writes, basis)
        except _START_OVER:
            stored = False
        except BaseException:
            self._memo.forget(basis)
            raise
        if stored:
            self._memo.learn(basis, loaded, writes)
            return outcomes
        self._memo.forget(basis)
        return None

    async def expire(self, now: float, most: int) -> Expired:
        async with transaction(self._pool, self._deadlines) as conn:
            found = await conn.fetch(LEDGER["expire"], rows.moment(now), most)
            ended = [row for row in found if row["state"] == State.EXPIRED]
            left = {(rows.key_of(row), row["epoch"]): row["amount"] for row in ended if not row["is_freed"]}
            if left:
                loaded, families = Loaded(), {(key.tenant, key.resource) for key, _ in left}
                # With parents, which keep what of a guarantee is not in use any more.
                family = {key for key in map(rows.key_of, ended) if (key.tenant, key.resource) in families}
                await load_counters(conn, loaded, family)
                await load_closed(conn, loaded, left)
                await store(conn, free_expired(loaded, left, now))
        units: dict[QuotaKey, int] = {}
        for row in ended:
            key = rows.key_of(row)
            units[key] = units.get(key, 0) + row["amount"]
        self._memo.forget_counters(units)
        oldest = min((row["oldest"].timestamp() for row in found), default=now)
        return Expired(sum(row["holds"] for row in found), units, now - oldest)

    async def apply(self, key: QuotaKey, allocation: Allocation, revision: int, now: float) -> Holding | None:
        for _ in range(MAX_RESTARTS):
            try:
                async with transaction(self._pool, self._deadlines) as conn:
                    row = await conn.fetchrow(SLICES["lock_counter"], *rows.parts(key))
                    before = None if row is None else rows.holding_of(row)
                    changed = apply(before, key, allocation, revision, self._region, now)
                    if changed is None or changed == before:
                        return changed
                    if before is None and not await _create_counter(conn, changed):
                        continue
                    await self._record_slice(conn, before, changed, allocation, now)
            except asyncpg.InvalidCachedStatementError:
                continue
            self._memo.forget_counters([key])
            return changed
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions over the first use of {key}")

    async def _record_slice(
        self, conn: Connection, before: Holding | None, changed: Holding, allocation: Allocation, now: float
    ) -> None:
        """The counter, the epoch that was closed, the debt that was repaid; a slice ledger row if the slice changed."""
        closed, entries = turn(before, changed, now)
        await store(conn, Writes(holdings={changed.key: changed}, closed=closed, entries=entries))
        terms = (changed.limit, changed.revision, changed.unlimited, rows.policy_text(changed.policy))
        await conn.execute(SLICES["set_terms"], *rows.parts(changed.key), *terms)
        was = 0 if before is None else before.slice
        if changed.slice != was:
            moves = allocation.moves_from(self._region)
            named = json.dumps([{"id": m.id, "to": m.target, "amount": m.amount} for m in moves])
            await conn.execute(
                SLICES["append_slice"], rows.moment(now), *rows.parts(changed.key),
                changed.revision, changed.epoch, was, changed.slice, named,
            )  # fmt: skip

    @read_again
    async def holding(self, key: QuotaKey) -> Holding | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["holding"], *rows.parts(key))
        return None if row is None else rows.holding_of(row)

    @read_again
    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]:
        async with connection(self._pool, self._deadlines) as conn:
            return await _made_of(await conn.fetch(READS["holdings"], tenant))

    @read_again
    async def holdings_of(self, keys: Sequence[QuotaKey]) -> Sequence[Holding]:
        async with connection(self._pool, self._deadlines) as conn:
            return await _made_of(await conn.fetch(READS["holdings_of"], *rows.keys(keys)))

    @read_again
    async def reservation(self, reservation_id: str) -> Reservation | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["reservation"], reservation_id)
        return None if row is None else rows.reservation_of(row)

    @read_again
    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        async with connection(self._pool, self._deadlines) as conn:
            row = await conn.fetchrow(READS["reservation_of_request"], tenant, request_id)
        return None if row is None else rows.reservation_of(row)

    async def unknown(
        self, most: int, *, tenant: str | None = None, after: Reservation | None = None
    ) -> Sequence[Reservation]:
        place = (None, None) if after is None else (rows.moment(after.expires_at), after.id)
        async with connection(self._pool, self._deadlines) as conn:
            return [rows.reservation_of(row) for row in await conn.fetch(READS["unknown"], most, tenant, *place)]

    async def unknown_backlog(self) -> Backlog:
        async with connection(self._pool, self._deadlines) as conn:
            [row] = await conn.fetch(READS["unknown_backlog"])
        return Backlog(row["count"], None if row["oldest"] is None else row["oldest"].timestamp())

    async def overdue(self, now: float) -> float | None:
        async with connection(self._pool, self._deadlines) as conn:
            oldest = await conn.fetchval(READS["overdue"], rows.moment(now))
        return None if oldest is None else float(oldest.timestamp())

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        named = (None, None, None) if key is None else rows.parts(key)
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["slice_history"], after, *named, most)
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
        async with transaction(self._pool, self._deadlines) as conn:
            await plan_freely(conn, AUDIT_TIMEOUT_S)
            found = await conn.fetch(READS["check_balances"], timeout=AUDIT_TIMEOUT_S)
        return [
            BalanceCheck(
                key=rows.key_of(row),
                epoch=row["epoch"],
                counter=rows.counter_of(row),
                replayed={name: row[f"replayed_{name}"] for name in REPLAYED},
                guaranteed=row["guaranteed"],
            )
            for row in found
        ]


async def _made_of(found: Sequence[asyncpg.Record]) -> Sequence[Holding]:
    """There may be a hundred thousand, and callers who wait for the event loop."""
    holdings: list[Holding] = []
    for start in range(0, len(found), MADE_AT_ONCE):
        holdings += map(rows.holding_of, found[start : start + MADE_AT_ONCE])
        await asyncio.sleep(0)
    return holdings


async def _create_counter(conn: Connection, holding: Holding) -> bool:
    """False: somebody else did."""
    return await conn.fetchval(
        SLICES["create_counter"], *rows.parts(holding.key), holding.kind.value, holding.limit, holding.revision,
        holding.epoch,
    ) is not None  # fmt: skip
