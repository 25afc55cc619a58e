"""RegionStore on Postgres: decide in the core upon what is remembered or looked up, store with one statement."""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import asyncpg

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.incarnation import incarnation_of, life_of, trust
from regionquota.adapters.postgres.loading import load, load_closed, lock_counters, peek
from regionquota.adapters.postgres.memo import Basis, Memo
from regionquota.adapters.postgres.rows import CounterRow
from regionquota.adapters.postgres.shard_watch import ONE, ShardWatch
from regionquota.adapters.postgres.sharding import Locked, Overtaken, laid_out
from regionquota.adapters.postgres.slot import Slot
from regionquota.adapters.postgres.standing import require_standing
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
from regionquota.core.commands import Command, Outcome, Reserve
from regionquota.core.history import Bond
from regionquota.core.ledger import decide, free_expired
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation, State
from regionquota.core.shards import decides_alone, merge, near_a_new_week, says_for_all
from regionquota.core.slice import Holding, hear, refuse_contradiction
from regionquota.errors import NotTrusted, ProtocolError, StoreUnavailable, WentBackwards
from regionquota.ports import Backlog, BalanceCheck, Expired, Incarnation, Resharded, Resharding, SliceEntry

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

    def __init__(
        self, pool: Pool, region: Region, deadlines: Deadlines, slot: Slot | None = None, bond: Bond | None = None
    ) -> None:
        """`slot` None: the process has no shards of its own. Whether `pool` is fenced decides what may be admitted.

        `bond` None: whatever history of etcd an allocation was read in is right. For tests, and who applies nothing.
        """
        self._pool = pool
        self._region = region
        self._deadlines = deadlines
        self._memo = Memo()
        self._slot = slot or Slot()
        self._bond = bond
        self._shard_watch = ShardWatch(pool, deadlines)

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        for _ in range(MAX_LOOKS):
            recalled = self._memo.recall(batch) or await self._look_up(batch)
            decided = None if recalled is None else self._decide(*recalled, batch, now)
            if recalled is None or decided is None:
                break
            outcomes, writes = decided
            if await self._store_at_once(batch, writes, recalled[1]):
                return outcomes
        for _ in range(MAX_RESTARTS):
            try:
                async with transaction(self._pool, self._deadlines) as conn:
                    await _require_trust(conn, batch)
                    loaded, locked = await load(conn, batch, now)
                    outcomes, writes = decide(loaded, batch, now)
                    written = locked.written(writes)
                    await store(conn, writes, written)
                    life = life_of(conn)
            except _START_OVER:
                continue
            self._learn(locked, written, writes, life)
            return outcomes
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions of request ids with another process")

    async def _look_up(self, batch: Sequence[Command]) -> tuple[Loaded, Basis] | None:
        """Read what is not remembered, without a lock: whether it still is so is asked when it is stored."""
        missing = self._memo.missing(batch)
        if missing is None:
            return None
        try:
            async with connection(self._pool, self._deadlines) as conn:
                await peek(conn, self._memo, *missing, self._slot.number)
        except asyncpg.InvalidCachedStatementError:
            return None  # the table is being changed: look under a lock
        return self._memo.recall(batch)

    def _decide(
        self, loaded: Loaded, basis: Basis, batch: Sequence[Command], now: float
    ) -> tuple[Sequence[Outcome], Writes] | None:
        """None: it has to be decided upon what is locked, and upon all shards of what is spread."""
        if basis.is_spread and near_a_new_week(now):
            return None
        try:
            outcomes, writes = decide(loaded, batch, now)
        except ProtocolError:  # rows seen at different moments need not go together; one shard may hold too little
            self._memo.forget(basis)
            return None
        if basis.is_spread and not _holds_for_all(basis, outcomes, writes):
            return None
        return outcomes, writes

    async def _store_at_once(self, batch: Sequence[Command], writes: Writes, basis: Basis) -> bool:
        """In one round trip, and without holding a lock across any; False: what was remembered is not so any more."""
        written = [basis.counters[key]._replace(holding=holding) for key, holding in writes.holdings.items()]
        try:
            async with at_once(self._pool, self._deadlines) as conn:
                await _require_trust(conn, batch)
                stored = basis.life == life_of(conn) and await store(conn, writes, written, basis)
        except _START_OVER:
            stored = False
        except BaseException:
            self._memo.forget(basis)
            raise
        if stored:
            self._memo.learn([row._replace(version=row.version + 1) for row in written], writes, basis.life)
        else:
            self._memo.forget(basis)
        return stored

    def _learn(self, locked: Locked, written: Sequence[CounterRow], writes: Writes, life: str) -> None:
        """Of each counter the row that this process works on."""
        rows = [row for found in locked.rows.values() for row in found]
        rows += [row._replace(version=row.version + 1) for row in written]
        self._memo.learn([row for row in rows if row.shard == self._slot.number % row.shards], writes, life)

    async def expire(self, now: float, most: int) -> Expired:
        for _ in range(MAX_RESTARTS):
            try:
                return await self._expire(now, most)
            except Overtaken:
                continue
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} counters that were spread while they were waited for")

    async def _expire(self, now: float, most: int) -> Expired:
        async with transaction(self._pool, self._deadlines) as conn:
            found = await conn.fetch(LEDGER["expire"], rows.moment(now), most)
            if found and found[0]["is_torn"]:
                raise Overtaken
            ended = [row for row in found if row["state"] == State.EXPIRED]
            left = {(rows.key_of(row), row["epoch"]): row["amount"] for row in ended if not row["is_freed"]}
            if left:
                families = {(key.tenant, key.resource) for key, _ in left}
                # With parents, which keep what of a guarantee is not in use any more.
                family = {key for key in map(rows.key_of, ended) if (key.tenant, key.resource) in families}
                await self._free(conn, left, family, now)
        units: dict[QuotaKey, int] = {}
        for row in ended:
            key = rows.key_of(row)
            units[key] = units.get(key, 0) + row["amount"]
        self._memo.forget_counters(units)
        oldest = min((row["oldest"].timestamp() for row in found), default=now)
        return Expired(sum(row["holds"] for row in found), units, now - oldest)

    async def _free(
        self, conn: Connection, left: Mapping[tuple[QuotaKey, Epoch], int], family: Collection[QuotaKey], now: float
    ) -> None:
        locked = await lock_counters(conn, family, now)
        loaded = Loaded(holdings=dict(locked.wholes))
        await load_closed(conn, loaded, left)
        writes = free_expired(loaded, left, now)
        await store(conn, writes, locked.written(writes))

    async def incarnation(self) -> Incarnation:
        async with connection(self._pool, self._deadlines) as conn:
            return await incarnation_of(conn)

    async def trust(self, name: str) -> bool:
        async with connection(self._pool, self._deadlines) as conn:
            return await trust(conn, name, None if self._bond is None else self._bond.standing)

    async def apply(
        self, key: QuotaKey, allocation: Allocation, revision: int, now: float, *, within: str | None = None
    ) -> Holding | None:
        for _ in range(MAX_RESTARTS):
            try:
                async with transaction(self._pool, self._deadlines) as conn:
                    found = await incarnation_of(conn)
                    if within not in (None, found.name):
                        raise StoreUnavailable("the server is in another incarnation by now")
                    bond = self._bond
                    if bond is not None:
                        await require_standing(conn, bond)
                    locked = await lock_counters(conn, [key], now)
                    before = locked.wholes.get(key)
                    is_evicted = bond is not None and bond.is_evicted
                    if bond is not None and found.is_trusted and not is_evicted:
                        refuse_contradiction(before, allocation, revision, self._region)
                    changed = hear(
                        before, key, allocation, revision, self._region, now,
                        is_trusted=found.is_trusted and within is None, is_evicted=is_evicted,
                    )  # fmt: skip
                    if changed is None or changed == before:
                        return changed
                    if before is None and not await _create_counter(conn, changed):
                        continue
                    await self._record_slice(conn, locked, changed, allocation, now)
            except _START_OVER:
                continue
            except WentBackwards as error:
                if self._bond is not None:
                    self._bond.seen.contradict(str(error))
                raise
            self._memo.forget_counters([key])
            return changed
        raise StoreUnavailable(f"gave up after {MAX_RESTARTS} collisions over the first use of {key}")

    async def _record_slice(
        self, conn: Connection, locked: Locked, changed: Holding, allocation: Allocation, now: float
    ) -> None:
        """The counter, the epoch that was closed, the debt that was repaid; a slice ledger row if the slice changed."""
        before = locked.wholes.get(changed.key)
        closed, entries = turn(before, changed, now)
        writes = Writes(holdings={changed.key: changed}, closed=closed, entries=entries)
        await store(conn, writes, locked.written(writes))
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

    async def rebalance_shards(self, now: float) -> Resharding:
        await self._slot.keep()
        wanted, seen = await self._shard_watch.look(self._memo, self._slot.number)
        done = [await self.spread(key, count, now) for key, count in wanted.items()]
        return Resharding([one for one in done if one is not None], seen)

    async def spread(self, key: QuotaKey, count: int, now: float) -> Resharded | None:
        """Lay the counter out evenly over ONE shard, or over at least `count`.

        None: it may not be spread, or somebody else is at it.
        """
        try:
            async with transaction(self._pool, self._deadlines) as conn:
                locked = await lock_counters(conn, [key], now)
                if key not in locked.wholes:
                    return None
                before, holding = len(locked.rows[key]), locked.wholes[key]
                laid = laid_out(locked.rows[key], holding, count if count == ONE else max(count, before))
                shards = laid[0].shards
                if shards == before == 1:
                    return None
                if shards > before:
                    await conn.execute(SLICES["open_shards"], *rows.parts(key), shards)
                await store(conn, Writes(entries=list(locked.leaks.get(key, ()))), laid)
        except _START_OVER:
            return None
        self._memo.forget_counters([key])
        return Resharded(key, before, shards)

    @read_again
    async def holding(self, key: QuotaKey) -> Holding | None:
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["holding"], *rows.parts(key))
        return (await _made_of(found))[0] if found else None

    @read_again
    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]:
        async with connection(self._pool, self._deadlines) as conn:
            return await _made_of(await conn.fetch(READS["holdings"], tenant))

    @read_again
    async def holdings_after(self, key: QuotaKey | None, most: int) -> Sequence[Holding]:
        place = ("", "", "") if key is None else rows.parts(key)
        async with connection(self._pool, self._deadlines) as conn:
            return await _made_of(await conn.fetch(READS["holdings_after"], *place, most))

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
    """Of quotas in the order of `found`. There may be a hundred thousand, and callers who wait for the event loop."""
    shards: dict[QuotaKey, list[Holding]] = {}
    for start in range(0, len(found), MADE_AT_ONCE):
        for holding in map(rows.holding_of, found[start : start + MADE_AT_ONCE]):
            shards.setdefault(holding.key, []).append(holding)
        await asyncio.sleep(0)
    return [merge(parts) for parts in shards.values()]


async def _require_trust(conn: Connection, batch: Sequence[Command]) -> None:
    """Raises `NotTrusted`. Settling needs none: what is held is held."""
    if not (await incarnation_of(conn)).is_trusted and any(isinstance(command, Reserve) for command in batch):
        raise NotTrusted("Postgres was restarted or replaced, and its slices were not compared with etcd since")


def _holds_for_all(basis: Basis, outcomes: Sequence[Outcome], writes: Writes) -> bool:
    """Whether what was decided upon one shard of each quota is what all shards together would have led to."""
    if not all(map(says_for_all, outcomes)):
        return False
    return all(
        decides_alone(row.holding, writes.holdings[key])
        for key, row in basis.counters.items()
        if row.shards > 1 and key in writes.holdings
    )


async def _create_counter(conn: Connection, holding: Holding) -> bool:
    """False: somebody else did."""
    return await conn.fetchval(
        SLICES["create_counter"], *rows.parts(holding.key), holding.kind.value, holding.limit, holding.revision,
        holding.epoch,
    ) is not None  # fmt: skip
