"""Looking before writing: lock and read what a batch names. Reservations, then counters, each in key order."""

from collections.abc import Collection, Container, Iterable, Sequence

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.incarnation import life_of
from regionquota.adapters.postgres.memo import Memo
from regionquota.adapters.postgres.sharding import Locked, Overtaken
from regionquota.adapters.postgres.statements import LEDGER, READS
from regionquota.adapters.postgres.transaction import Connection
from regionquota.core.balances import Loaded
from regionquota.core.commands import Adjust, Command, Meter, QuotaCommand, ReservationCommand, Reserve
from regionquota.core.quota import QuotaKey


async def load(conn: Connection, batch: Sequence[Command], now: float) -> tuple[Loaded, Locked]:
    """Raises `Overtaken`: start over."""
    loaded = Loaded()
    named = [command.reservation_id for command in batch if isinstance(command, ReservationCommand)]
    if named:
        found = await conn.fetch(LEDGER["load_reservations"], sorted(set(named)))
        loaded.reservations = {str(row["id"]): rows.reservation_of(row) for row in found}
    reserves = [command for command in batch if isinstance(command, Reserve)]
    adjusts = [command for command in batch if isinstance(command, Adjust)]
    meters = [command for command in batch if isinstance(command, Meter)]
    wanted = {key for command in batch if isinstance(command, QuotaCommand) for key in command.keys}
    wanted |= {line.key for known in loaded.reservations.values() for line in known.lines}
    locked = await lock_counters(conn, wanted, now)
    loaded.holdings.update(locked.wholes)
    await load_closed(conn, loaded)
    if reserves:
        await _load_requests(conn, loaded, reserves, wanted)
    if adjusts:
        asked = rows.columns([(command.key.tenant, command.request_id) for command in adjusts], 2)
        for row in await conn.fetch(LEDGER["load_adjustments"], *asked):
            loaded.adjustments[row["tenant_id"], row["request_id"]] = rows.adjustment_of(row)
    if meters:
        sources = [(*rows.parts(command.key), command.source, command.incarnation) for command in meters]
        for row in await conn.fetch(LEDGER["load_readings"], *rows.columns(sources, 5)):
            reading = rows.reading_of(row)
            loaded.readings[reading.key, reading.source, reading.incarnation] = reading
    return loaded, locked


async def peek(conn: Connection, memo: Memo, names: Sequence[str], keys: Sequence[QuotaKey], slot: int) -> None:
    """Let `memo` remember these reservations, their counters, and these counters, as they are; nothing is locked."""
    found = [rows.reservation_of(row) for row in await conn.fetch(READS["reservations"], names)] if names else []
    lines = {line.key for known in found for line in known.lines}
    wanted = rows.keys([*keys, *(key for key in lines if not memo.knows(key))])
    counters = await conn.fetch(READS["own_shards"], *wanted, slot) if wanted[0] else []
    memo.remember(found, map(rows.counter_row_of, counters), life_of(conn))


async def lock_counters(conn: Connection, wanted: Collection[QuotaKey], now: float) -> Locked:
    """Every shard of each. Raises `Overtaken`."""
    locked = Locked()
    if wanted:
        found = await conn.fetch(LEDGER["load_counters"], *rows.keys(wanted))
        locked.add(map(rows.counter_row_of, found), now)
    return locked


async def load_closed(conn: Connection, loaded: Loaded, also: Iterable[tuple[QuotaKey, int]] = ()) -> None:
    """The ended epochs that the loaded reservations, or `also`, are charged to."""
    charged = {(line.key, line.epoch) for known in loaded.reservations.values() for line in known.lines} | set(also)
    ended = [(*rows.parts(key), epoch) for key, epoch in charged if epoch != loaded.holdings[key].epoch]
    if ended:
        for row in await conn.fetch(LEDGER["load_closed"], *rows.columns(ended, 4)):
            loaded.closed[rows.key_of(row), row["epoch"]] = rows.counter_of(row)


async def _load_requests(
    conn: Connection, loaded: Loaded, reserves: Sequence[Reserve], wanted: Container[QuotaKey]
) -> None:
    """Reserves whose id is known already. Where their quota is not the one asked for, the answer needs none."""
    asked = rows.columns([(command.key.tenant, command.request_id) for command in reserves], 2)
    for row in await conn.fetch(LEDGER["load_requests"], *asked):
        known = rows.reservation_of(row)
        loaded.requests[known.key.tenant, known.request_id] = known.id
        loaded.reservations.setdefault(known.id, known)
        if known.key in wanted and known.key not in loaded.holdings:
            raise Overtaken
