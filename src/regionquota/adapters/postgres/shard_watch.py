"""When a counter is spread over more shards, when over one again, and when its shards are evened out."""

import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from regionquota.adapters.postgres import rows
from regionquota.adapters.postgres.memo import Memo
from regionquota.adapters.postgres.rows import CounterRow
from regionquota.adapters.postgres.statements import READS
from regionquota.adapters.postgres.transaction import Deadlines, Pool, connection
from regionquota.core.quota import QuotaKey
from regionquota.core.shards import CALM_FOR_S, CALM_PER_S, CROWDED_PER_S, are_uneven, merge
from regionquota.core.slice import Holding

ONE: Final = 1


class ShardWatch:
    """Looks at what its own process works on; every process of a region does, and what they do agrees."""

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines
        self._looked_at = time.monotonic()
        self._writes: dict[QuotaKey, int] = {}
        self._busy_at: dict[QuotaKey, float] = {}

    async def look(self, memo: Memo, slot: int) -> tuple[Mapping[QuotaKey, int], Sequence[Holding]]:
        """Over how many shards which counters should be laid out anew: ONE, or at least that many; and all that are
        spread, whole.
        """
        now = time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        crowded = {key for key, count in memo.collisions().items() if count >= CROWDED_PER_S * passed}
        wanted = {key: slot + 1 for key in crowded if memo.shards_of(key) <= slot}
        seen = await self._read(memo)
        for key, shards in seen.items():
            if self._is_calm(key, sum(row.version for row in shards), now, passed):
                wanted[key] = ONE
            elif are_uneven([row.holding for row in shards]):
                wanted.setdefault(key, len(shards))
        self._writes = {key: count for key, count in self._writes.items() if key in seen}
        self._busy_at = {key: at for key, at in self._busy_at.items() if key in seen}
        return wanted, [merge([row.holding for row in shards]) for shards in seen.values()]

    async def _read(self, memo: Memo) -> Mapping[QuotaKey, list[CounterRow]]:
        if not memo.spread:
            return {}
        async with connection(self._pool, self._deadlines) as conn:
            found = await conn.fetch(READS["holdings_of"], *rows.keys(memo.spread))
        ordered = sorted(map(rows.counter_row_of, found), key=lambda row: row.holding.key)
        seen = {key: list(shards) for key, shards in groupby(ordered, key=lambda row: row.holding.key)}
        memo.spread.intersection_update(key for key, shards in seen.items() if len(shards) > 1)
        return {key: shards for key, shards in seen.items() if len(shards) > 1}

    def _is_calm(self, key: QuotaKey, writes: int, now: float, passed: float) -> bool:
        before = self._writes.get(key)
        self._writes[key] = writes
        if before is None or writes - before >= CALM_PER_S * passed:
            self._busy_at[key] = now
        return now - self._busy_at[key] >= CALM_FOR_S
