"""A region's database that remembers what can still be asked for, and nothing of what is over."""

from collections.abc import Sequence

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.balances import Loaded, Writes
from regionquota.core.commands import Command, Outcome
from regionquota.core.ledger import decide
from regionquota.core.reservation import HOLDING


class LeanStore(MemoryRegionStore):
    """Of millions of settled reservations and ledger lines a simulation needs none. A batch has one command."""

    def _transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        named = self._named(batch)
        loaded = Loaded({key: held for key, held in self._holdings.items() if key in named})
        loaded.reservations.update(
            (name, self._reservations[name])
            for command in batch
            if (name := getattr(command, "reservation_id", None)) in self._reservations
        )
        outcomes, writes = decide(loaded, batch, now)
        self._store(writes)
        return outcomes

    def _store(self, writes: Writes) -> None:
        self._holdings.update(writes.holdings)
        self._reservations.update(writes.created)
        for name, held in writes.changed.items():
            if held.state in HOLDING:
                self._reservations[name] = held
            else:
                self._reservations.pop(name, None)
