"""A region's database, as one process of the explorer sees it: every call waits for its turn, and may fail."""

from collections.abc import (
    Awaitable,
    Callable,
    Sequence,
)
from functools import partial
from typing import Any, TypeVar

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation
from regionquota.core.commands import Command, Outcome
from regionquota.core.history import Bond, Sight, Standing
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding
from regionquota.errors import OutcomeUnknown, StoreUnavailable, Unavailable
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.ports import READ, WRITE, Call, Surroundings, ignored, turn
from regionquota.ports import (
    Backlog,
    BalanceCheck,
    Expired,
    Incarnation,
    Resharding,
    SliceEntry,
)

T = TypeVar("T")

_APPLY = Call("apply", WRITE)
_TRANSACT = Call("transact", WRITE)
_EXPIRE = Call("expire", WRITE)
_INCARNATION = Call("learn the incarnation", READ)
_TRUST = Call("trust", WRITE)
_STANDING = Call("read the standing", READ)
_ADOPT = Call("adopt another standing", WRITE)
_REMEMBER = Call("remember what was seen", WRITE)
_HOLDING = Call("read the holding", READ)
_HOLDINGS = Call("read the holdings", READ)
_RESERVATION = Call("read a reservation", READ)


class StorePort:
    """`RegionStore` of one process, and `StandingStore`. `bond`: it changes slices only as that allows."""

    def __init__(self, world: Surroundings, store: MemoryRegionStore, bond: Bond | None = None) -> None:
        self._world = world
        self._store = store
        self._bond = bond

    @property
    def region(self) -> Region:
        return self._store.region

    async def _send(self, call: Call, now: float, method: Callable[..., Awaitable[T]], *args: Any) -> T:
        fault = await turn(call)
        if fault is None:
            return await self._write(now, method, *args)
        self._world.count(fault)
        if fault is Fault.LOST_REPLY:
            await self._write(now, method, *args)
            raise OutcomeUnknown(fault)
        if fault is Fault.DELAY:
            self._world.post(call.name, lambda: ignored(self._write(now, method, *args)), self.region)
        raise StoreUnavailable(fault)

    async def _write(self, now: float, method: Callable[..., Awaitable[T]], *args: Any) -> T:
        """A transaction that breaks a rule changes nothing; that it came to that is what the world hears of."""
        self._world.wrote(self._store.region, now)
        try:
            return await method(*args)
        except Unavailable:
            raise
        except Exception as error:
            self._world.broke(error)
            raise

    async def _wait(self, call: Call) -> None:
        fault = await turn(call)
        if fault is not None:
            self._world.count(fault)
            raise StoreUnavailable(fault)

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        return await self._send(_TRANSACT, now, self._store.transact, batch, now)

    async def apply(
        self, key: QuotaKey, allocation: Allocation, revision: int, now: float, *, within: str | None = None
    ) -> Holding | None:
        apply = self._store.apply if within is None and self._bond is None else partial(self._apply, within)
        return await self._send(_APPLY, now, apply, key, allocation, revision, now)

    async def _apply(
        self, within: str | None, key: QuotaKey, allocation: Allocation, revision: int, now: float
    ) -> Holding | None:
        bond = self._bond
        if bond is None:
            return await self._store.apply(key, allocation, revision, now, within=within)
        self._store.require_standing(bond, key, allocation, revision)
        return await self._store.apply(key, allocation, revision, now, within=within, is_evicted=bond.is_evicted)

    async def incarnation(self) -> Incarnation:
        await self._wait(_INCARNATION)
        return await self._store.incarnation()

    async def trust(self, name: str) -> bool:
        trusted = await self._send(_TRUST, 0.0, self._trust, name)
        if trusted:
            self._world.did(Deed.TRUST)
        return trusted

    async def _trust(self, name: str) -> bool:
        bond = self._bond
        return (bond is None or bond.standing == self._store.stands) and await self._store.trust(name)

    async def standing(self) -> Standing | None:
        await self._wait(_STANDING)
        return await self._store.standing()

    async def recall(self) -> tuple[Standing | None, Sight]:
        await self._wait(_STANDING)
        return await self._store.recall()

    async def adopt(self, before: Standing | None, standing: Standing, *, distrust: bool = False) -> bool:
        return await self._send(_ADOPT, 0.0, partial(self._store.adopt, distrust=distrust), before, standing)

    async def remember(self, history: str, sight: Sight) -> None:
        await self._send(_REMEMBER, 0.0, self._store.remember, history, sight)

    async def expire(self, now: float, most: int) -> Expired:
        return await self._send(_EXPIRE, now, self._store.expire, now, most)

    async def holding(self, key: QuotaKey) -> Holding | None:
        await self._wait(_HOLDING)
        return await self._store.holding(key)

    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]:
        await self._wait(_HOLDINGS)
        return await self._store.holdings(tenant)

    async def holdings_after(self, key: QuotaKey | None, most: int) -> Sequence[Holding]:
        await self._wait(_HOLDINGS)
        return await self._store.holdings_after(key, most)

    async def holdings_of(self, keys: Sequence[QuotaKey]) -> Sequence[Holding]:
        await self._wait(_HOLDINGS)
        return await self._store.holdings_of(keys)

    async def reservation(self, reservation_id: str) -> Reservation | None:
        await self._wait(_RESERVATION)
        return await self._store.reservation(reservation_id)

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        await self._wait(_RESERVATION)
        return await self._store.reservation_of_request(tenant, request_id)

    async def overdue(self, now: float) -> float | None:
        return await self._store.overdue(now)

    async def unknown(
        self, most: int, *, tenant: str | None = None, after: Reservation | None = None
    ) -> Sequence[Reservation]:
        return await self._store.unknown(most, tenant=tenant, after=after)

    async def unknown_backlog(self) -> Backlog:
        return await self._store.unknown_backlog()

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        return await self._store.slice_history(after, most, key)

    async def rebalance_shards(self, now: float) -> Resharding:
        return await self._store.rebalance_shards(now)

    async def check_balances(self) -> Sequence[BalanceCheck]:
        return await self._store.check_balances()
