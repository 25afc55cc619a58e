"""What this process last saw of the rows it works on, so that most batches need no look before they write.

Never trusted: what is decided upon it is stored only if every row still is as remembered (`store` in ledger.sql).
"""

from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from regionquota.adapters.postgres.rows import CounterRow
from regionquota.core.balances import Loaded, RequestKey, Writes
from regionquota.core.commands import Command, Correction, QuotaCommand, ReservationCommand, Reserve
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import HOLDING, Reservation

MAX_COUNTERS: Final = 50_000
MAX_RESERVATIONS: Final = 100_000
"""Rows remembered, some 1 kB each; beyond it those that were seen longest ago are forgotten."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Basis:
    """What a batch is decided upon: the rows, in the versions that they have, and that the reserves' ids are not known
    yet. Of a quota that is spread it is one shard. Versions are those of one life of the server.
    """

    counters: dict[QuotaKey, CounterRow]
    reservations: Sequence[Reservation]
    requests: Sequence[RequestKey] = ()
    life: str = ""

    @property
    def is_spread(self) -> bool:
        return any(row.shards > 1 for row in self.counters.values())


@dataclass(slots=True)
class Memo:
    """`spread` are the quotas that were last seen in several shards.

    All of it was seen in one `life` (incarnation) of the server: a copy that lacks commits counts its versions anew, so
    a row of the same version may be another row.
    """

    life: str = ""
    spread: set[QuotaKey] = field(default_factory=set)
    _counters: dict[QuotaKey, CounterRow] = field(default_factory=dict)
    _reservations: dict[str, Reservation] = field(default_factory=dict)
    _lost: dict[QuotaKey, CounterRow] = field(default_factory=dict)
    _collisions: Counts[QuotaKey] = field(default_factory=Counts)

    def recall(self, batch: Sequence[Command]) -> tuple[Loaded, Basis] | None:
        """What `batch` names; None if any of it is not remembered, or has to be looked up in any case."""
        loaded, counters, requests = Loaded(), dict[QuotaKey, CounterRow](), list[RequestKey]()
        for command in batch:
            if isinstance(command, Correction):
                return None
            if isinstance(command, Reserve):
                keys = command.keys
                requests.append((command.key.tenant, command.request_id))
            else:
                known = self._reservations.get(command.reservation_id)
                if known is None:
                    return None
                loaded.reservations[known.id] = known
                keys = tuple(line.key for line in known.lines)
            for key in keys:
                if key in counters:
                    continue
                row = self._counters.get(key)
                if row is None:
                    return None
                counters[key], loaded.holdings[key] = row, row.holding
        named = tuple(loaded.reservations.values())
        if any(line.epoch != loaded.holdings[line.key].epoch for known in named for line in known.lines):
            return None  # charged to an epoch that has ended: its counter is not remembered
        return loaded, Basis(counters, named, requests, self.life)

    def missing(self, batch: Sequence[Command]) -> tuple[Sequence[str], Sequence[QuotaKey]] | None:
        """Reservations and counters that `batch` names and that are not remembered.

        None: it has corrections, which are rare and need more to be read.
        """
        if any(isinstance(command, Correction) for command in batch):
            return None
        names = {
            command.reservation_id
            for command in batch
            if isinstance(command, ReservationCommand) and command.reservation_id not in self._reservations
        }
        keys = {key for command in batch if isinstance(command, QuotaCommand) for key in command.keys}
        return sorted(names), [key for key in keys if key not in self._counters]

    def knows(self, key: QuotaKey) -> bool:
        return key in self._counters

    def shards_of(self, key: QuotaKey) -> int:
        """As last seen."""
        row = self._counters.get(key)
        return 1 if row is None else row.shards

    def enter(self, life: str) -> None:
        """What was seen in another life says nothing about this one."""
        if life != self.life:
            for seen in (self._counters, self._reservations, self._lost, self._collisions):
                seen.clear()
            self.life = life

    def remember(self, reservations: Iterable[Reservation], counters: Iterable[CounterRow], life: str) -> None:
        """What was just read, unless something newer has been learnt meanwhile."""
        self.enter(life)
        for one in reservations:
            if one.id not in self._reservations:
                _put(self._reservations, one.id, one, MAX_RESERVATIONS)
        for row in counters:
            known = self._counters.get(row.holding.key)
            if known is None or known.version < row.version or known.shard != row.shard:
                self._keep(row)

    def learn(self, counters: Iterable[CounterRow], writes: Writes, life: str) -> None:
        """What is stored by now."""
        self.enter(life)
        for row in counters:
            self._keep(row)
        for one in (*writes.created.values(), *writes.changed.values()):
            if one.state in HOLDING:
                _put(self._reservations, one.id, one, MAX_RESERVATIONS)
            else:
                self._reservations.pop(one.id, None)

    def forget(self, basis: Basis) -> None:
        """Something of it is not so any more; what, and whether others did it, shows when it is read again."""
        for key, row in basis.counters.items():
            if self._counters.pop(key, None) is not None:
                _put(self._lost, key, row, MAX_COUNTERS)
        for one in basis.reservations:
            self._reservations.pop(one.id, None)

    def forget_counters(self, keys: Iterable[QuotaKey]) -> None:
        for key in keys:
            self._counters.pop(key, None)

    def collisions(self) -> Mapping[QuotaKey, int]:
        """How often others had written to a counter that this process was about to write to, since the last time."""
        counted, self._collisions = self._collisions, Counts()
        self._lost.clear()
        return counted

    def _keep(self, row: CounterRow) -> None:
        key = row.holding.key
        lost = self._lost.pop(key, None)
        if lost is not None and (lost.shard, lost.shards) == (row.shard, row.shards) and lost.version != row.version:
            self._collisions[key] += 1
        (self.spread.add if row.shards > 1 else self.spread.discard)(key)
        _put(self._counters, key, row, MAX_COUNTERS)


def _put(memory: dict[K, V], key: K, value: V, most: int) -> None:
    memory.pop(key, None)  # to the end: the longest unseen stand in front
    memory[key] = value
    if len(memory) > most:
        del memory[next(iter(memory))]
