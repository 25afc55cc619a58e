"""Counters under lock: all the rows of each, as the one that they are together, and how that is laid out again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from msgspec.structs import replace

from regionquota.adapters.postgres.rows import CounterRow
from regionquota.core.balances import Writes, turn
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry
from regionquota.core.quota import QuotaKey
from regionquota.core.shards import may_be_split, merge, split
from regionquota.core.slice import Holding, leak


class Overtaken(Exception):  # noqa: N818
    """What a batch works on was made after it had been looked for, so it is not locked."""


@dataclass(slots=True)
class Locked:
    """`wholes` are the counters, leaked up to now, and `leaks` the ledger's lines of that: they stand once written."""

    rows: dict[QuotaKey, Sequence[CounterRow]] = field(default_factory=dict)
    wholes: dict[QuotaKey, Holding] = field(default_factory=dict)
    leaks: dict[QuotaKey, Sequence[Entry]] = field(default_factory=dict)

    def add(self, found: Iterable[CounterRow], now: float) -> None:
        """Rows in order of quota and shard. Raises `Overtaken`: a quota was spread before its rows could be locked."""
        for key, group in groupby(found, key=lambda row: row.holding.key):
            rows = list(group)
            if len(rows) != rows[0].shards:
                raise Overtaken
            self.rows[key] = rows
            self.wholes[key] = rows[0].holding
            if len(rows) > 1:
                self.wholes[key] = merge([leak(row.holding, now) for row in rows])
                _, self.leaks[key] = turn(merge([row.holding for row in rows]), self.wholes[key], now)

    def written(self, writes: Writes) -> list[CounterRow]:
        """Rows for the counters in `writes`, which gets the lines of what had leaked before."""
        for key, lines in self.leaks.items():
            if key in writes.holdings:
                writes.entries += lines
        return [row for key, holding in writes.holdings.items() for row in laid_out(self.rows.get(key, ()), holding)]


def laid_out(rows: Sequence[CounterRow], holding: Holding, count: int | None = None) -> list[CounterRow]:
    """`holding` over `count` shards, or as many as there were; over one where it may not be spread.

    Versions are those of `rows`, which are not written yet. Rows that go out of use are emptied.
    """
    before = len(rows) or 1
    shards = (count or before) if may_be_split(holding, count or before) else 1
    parts = [
        *split(holding, shards),
        *([replace(holding, counter=Counter(), guaranteed=0, lien=0)] * (before - shards)),
    ]
    versions = [row.version for row in rows] + [0] * (len(parts) - len(rows))
    return [
        CounterRow(version, shard, shards, part)
        for shard, (version, part) in enumerate(zip(versions, parts, strict=True))
    ]
