"""Safeguards around a database that may lack commits."""

from collections.abc import Sequence
from typing import Any, Final

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core import slice as slices
from regionquota.core.commands import Command, Outcome
from regionquota.core.slice import apply
from regionquota.ports import Incarnation
from regionquota.region.trust import Trust

_step = Trust.step


async def _admit_at_once(self: MemoryRegionStore, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
    return self._transact(batch, now)


async def _trust_blindly(self: Trust) -> None:
    found = await self._store.incarnation()
    if not found.is_trusted:
        await self._store.trust(found.name)


class _Distrusted:
    def __init__(self, store: Any, found: Incarnation) -> None:
        self._store = store
        self._found = found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def incarnation(self) -> Incarnation:
        return Incarnation(self._found.name, is_trusted=False)


async def _trust_first(self: Trust) -> None:
    """Compares all the same, but afterwards."""
    store = self._store
    found = await store.incarnation()
    if not found.is_trusted and await store.trust(found.name):
        await _step(Trust(self._me, self._allocations, _Distrusted(store, found), self._clock))


async def _leave_to_agents(*_: Any) -> bool:
    return True


ABLATED: Final[Sequence[tuple[Any, ...]]] = (
    (
        "trusted-only",
        "a database that may lack commits admits nothing",
        (MemoryRegionStore, "transact", _admit_at_once),
    ),
    (
        "compared-at-all",
        "a database is compared with etcd before it is trusted",
        (Trust, "step", _trust_blindly),
    ),
    ("trusted-last", "a database is trusted only after all of it was compared", (Trust, "step", _trust_first)),
    (
        "taken-away-in-use",
        "the comparison takes away what is not owned even if it is in use",
        (slices, "apply_strictly", apply),
    ),
    (
        "hand-over-of-before",
        "whoever compares hands over, so that nobody can who let go before the failover",
        (Trust, "_hand_over", _leave_to_agents),
    ),
    (
        "forgotten-compared",
        "quotas that the database has forgotten are compared, too",
        (Trust, "_mine", lambda _self, _documents: set()),
    ),
)
