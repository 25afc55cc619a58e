"""What this process last saw of the rows it works on, so that most batches need no look before they write.

Never trusted: what is decided upon it is stored only if every row still is as remembered (`store` in ledger.sql).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from regionquota.core.balances import Loaded, Writes
from regionquota.core.commands import Adjust, Command, Meter, Pledge, Reserve
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import HOLDING, Reservation
from regionquota.core.slice import Holding

MAX_COUNTERS: Final = 50_000
MAX_RESERVATIONS: Final = 100_000
"""Rows remembered, some 1 kB each; beyond it those that were seen longest ago are forgotten."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Basis:
    """What a batch is decided upon: the rows, and which versions of them."""

    versions: dict[QuotaKey, int]
    reservations: Sequence[Reservation]


@dataclass(slots=True)
class Memo:
    _counters: dict[QuotaKey, tuple[int, Holding]] = field(default_factory=dict)
    _reservations: dict[str, Reservation] = field(default_factory=dict)

    def recall(self, batch: Sequence[Command]) -> tuple[Loaded, Basis] | None:
        """What `batch` names; None if any of it is not remembered, or has to be looked up in any case."""
        loaded, versions = Loaded(), dict[QuotaKey, int]()
        for command in batch:
            if isinstance(command, Adjust | Meter | Pledge):
                return None
            if isinstance(command, Reserve):
                keys = command.keys
            else:
                known = self._reservations.get(command.reservation_id)
                if known is None:
                    return None
                loaded.reservations[known.id] = known
                keys = tuple(line.key for line in known.lines)
            for key in keys:
                if key in versions:
                    continue
                counter = self._counters.get(key)
                if counter is None:
                    return None
                versions[key], loaded.holdings[key] = counter
        named = tuple(loaded.reservations.values())
        if any(line.epoch != loaded.holdings[line.key].epoch for known in named for line in known.lines):
            return None  # charged to an epoch that has ended: its counter is not remembered
        return loaded, Basis(versions, named)

    def learn(self, basis: Basis, loaded: Loaded, writes: Writes) -> None:
        """What was decided upon `basis` is stored. `loaded` is as `decide` left it."""
        for key, version in basis.versions.items():
            _put(self._counters, key, (version + (key in writes.holdings), loaded.holdings[key]), MAX_COUNTERS)
        for one in (*writes.created.values(), *writes.changed.values()):
            if one.state in HOLDING:
                _put(self._reservations, one.id, one, MAX_RESERVATIONS)
            else:
                self._reservations.pop(one.id, None)

    def forget(self, basis: Basis) -> None:
        self.forget_counters(basis.versions)
        for one in basis.reservations:
            self._reservations.pop(one.id, None)

    def forget_counters(self, keys: Iterable[QuotaKey]) -> None:
        for key in keys:
            self._counters.pop(key, None)


def _put(memory: dict[K, V], key: K, value: V, most: int) -> None:
    memory.pop(key, None)  # to the end: the longest unseen stand in front
    memory[key] = value
    if len(memory) > most:
        del memory[next(iter(memory))]
