"""A region's database that remembers what can still be asked for, and nothing of what is over."""

from collections.abc import Sequence

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.balances import Loaded, Writes
from regionquota.core.commands import Command, Outcome, QuotaCommand
from regionquota.core.ledger import decide
from regionquota.core.reservation import HOLDING


class LeanStore(MemoryRegionStore):
    """Of millions of settled reservations and ledger lines none is needed. Nobody commits in a later period."""

    def _transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        loaded = Loaded()
        for command in batch:
            if isinstance(command, QuotaCommand):
                keys = command.keys
            elif known := self._reservations.get(command.reservation_id):
                loaded.reservations[known.id] = known
                keys = tuple(line.key for line in known.lines)
            else:
                continue
            loaded.holdings.update((key, self._holdings[key]) for key in keys if key in self._holdings)
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
