"""What this process last saw of the rows it works on, so that most batches need no look before they write.

Never trusted: what is decided upon it is stored only if every row still is as remembered (`store` in ledger.sql).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from regionquota.core.balances import Loaded, RequestKey, Writes
from regionquota.core.commands import Command, Correction, QuotaCommand, ReservationCommand, Reserve
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
    """What a batch is decided upon: the rows, which versions of them, and that the reserves' ids are not known yet."""

    versions: dict[QuotaKey, int]
    reservations: Sequence[Reservation]
    requests: Sequence[RequestKey] = ()


@dataclass(slots=True)
class Memo:
    _counters: dict[QuotaKey, tuple[int, Holding]] = field(default_factory=dict)
    _reservations: dict[str, Reservation] = field(default_factory=dict)

    def recall(self, batch: Sequence[Command]) -> tuple[Loaded, Basis] | None:
        """What `batch` names; None if any of it is not remembered, or has to be looked up in any case."""
        loaded, versions, requests = Loaded(), dict[QuotaKey, int](), list[RequestKey]()
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
                if key in versions:
                    continue
                counter = self._counters.get(key)
                if counter is None:
                    return None
                versions[key], loaded.holdings[key] = counter
        named = tuple(loaded.reservations.values())
        if any(line.epoch != loaded.holdings[line.key].epoch for known in named for line in known.lines):
            return None  # charged to an epoch that has ended: its counter is not remembered
        return loaded, Basis(versions, named, requests)

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

    def remember(self, reservations: Iterable[Reservation], counters: Iterable[tuple[int, Holding]]) -> None:
        """What was just read, unless something newer has been learnt meanwhile."""
        for one in reservations:
            if one.id not in self._reservations:
                _put(self._reservations, one.id, one, MAX_RESERVATIONS)
        for version, holding in counters:
            known = self._counters.get(holding.key)
            if known is None or known[0] < version:
                _put(self._counters, holding.key, (version, holding), MAX_COUNTERS)

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
