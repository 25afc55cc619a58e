"""Units reserved in advance, and handed out without a call for each.

What was handed out of a reservation is committed and the rest given back, in one call: when it is used up, when its
time is over, when its period ends, or at the end. Nothing is handed out of it after that call was begun. So each unit
is charged or returned, once, in the period of its reserve.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from regionquota.client.answers import Reservation
from regionquota.client.arguments import check_integer
from regionquota.client.calls import Calls, Priority
from regionquota.client.errors import Denied, QuotaError, Unavailable

SPENT_WITHIN: Final = 0.8
"""Of its time to live a reservation is handed out for so long: then it is settled while it still holds."""
SMALLER_MAY_PASS: Final = frozenset({"OVER_LIMIT", "KEPT_FOR_HIGHER_PRIORITY", "MAX_SINGLE_RESERVATION"})

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Lot:
    """One reservation. Nothing is handed out of it after `ends`, by the loop's clock."""

    reservation: Reservation
    used: int
    ends: float
    timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> int:
        return self.reservation.amount - self.used


@dataclass(frozen=True, slots=True)
class _Refusal:
    at: float
    units: int
    error: Denied


class Block:
    """Made by `Client.block`. Any number of tasks may take units of it.

    A process that is killed leaves uncharged what it has handed out of its last reservation: at most `size` units.
    """

    def __init__(
        self,
        calls: Calls,
        tenant_id: str,
        resource: str,
        size: int,
        *,
        scope: str,
        ttl_s: int,
        priority: Priority = "normal",
    ) -> None:
        check_integer("size", size, 1)
        self._calls = calls
        self._tenant_id = tenant_id
        self._resource = resource
        self._scope = scope
        self._size = size
        self._ttl_s = ttl_s
        self._priority = priority
        self._loop = asyncio.get_running_loop()
        self._lot: _Lot | None = None
        self._refilling = asyncio.Lock()
        self._refusal: _Refusal | None = None
        self._settlements: set[asyncio.Task[None]] = set()
        self._unsettled: dict[str, _Lot] = {}
        self._closed = False

    @property
    def unsettled(self) -> Mapping[str, int]:
        """Reservations that are not charged yet although units of them were used: how many."""
        return {name: lot.used for name, lot in self._unsettled.items()}

    async def take(self, units: int = 1) -> None:
        """Use `units`. Asks a server only where what is here does not suffice.

        Raises `Denied` where the limit has no room for them, and `QuotaError` of any other kind: then none are used.
        """
        check_integer("units", units, 1)
        since = self._loop.time()
        if self._hand_out(units):
            return
        async with self._refilling:
            if self._hand_out(units):  # of what somebody else has fetched meanwhile
                return
            refusal = self._refusal
            if refusal is not None and refusal.at >= since and refusal.units <= units:
                raise Denied(str(refusal.error), refusal.error.problem)
            await self._refill(units)

    async def close(self) -> None:
        """Settle. Raises `Unavailable` where that failed: `unsettled` says what is not charged."""
        self._closed = True
        self._end_lot()
        await asyncio.shield(self._calls.settling(self._settle_the_rest()))

    def _hand_out(self, units: int) -> bool:
        if self._closed:
            raise RuntimeError("the block is closed")
        lot = self._lot
        if lot is None or lot.left < units or lot.ends <= self._loop.time():
            return False
        lot.used += units
        return True

    async def _refill(self, units: int) -> None:
        """Replace what is here by a new reservation, out of which `units` are used."""
        ended = self._lot
        self._end_lot()
        if ended is not None and ended.left:
            await asyncio.gather(*self._settlements)  # what it gives back may be what is needed now
        began = self._loop.time()
        reservation = await self._reserve(units)
        lot = _Lot(reservation, units, began + self._life_of(reservation))
        if self._closed:
            lot.used = 0
            self._settle_soon(lot)
            raise RuntimeError("the block is closed")
        lot.timer = self._loop.call_at(lot.ends, self._end, lot)
        self._lot = lot

    async def _reserve(self, units: int) -> Reservation:
        """A whole block, or what there is of it, or just `units`."""
        asked = max(self._size, units)
        while True:
            try:
                return await self._calls.reserve(
                    self._tenant_id,
                    self._resource,
                    asked,
                    scope=self._scope,
                    ttl_s=self._ttl_s,
                    priority=self._priority,
                )
            except Denied as error:
                if asked == units or error.reason not in SMALLER_MAY_PASS:
                    self._refusal = _Refusal(self._loop.time(), units, error)
                    raise
                asked = max(units, min(_available(error.problem), asked - 1))

    def _life_of(self, reservation: Reservation) -> float:
        """Seconds since before the reserve was asked for, so that they end no later than here or at the server."""
        life = SPENT_WITHIN * self._ttl_s
        if reservation.charged_until is None:
            return life
        return min(life, (reservation.charged_until - reservation.created_at).total_seconds())

    def _end(self, lot: _Lot) -> None:
        if self._lot is lot:
            self._end_lot()

    def _end_lot(self) -> None:
        lot, self._lot = self._lot, None
        if lot is not None:
            if lot.timer is not None:
                lot.timer.cancel()
            self._settle_soon(lot)

    def _settle_soon(self, lot: _Lot) -> None:
        if lot.used:
            self._unsettled[lot.reservation.reservation_id] = lot
        task = self._calls.settling(self._settle(lot))
        self._settlements.add(task)
        task.add_done_callback(self._settlements.discard)

    async def _settle(self, lot: _Lot) -> None:
        name = lot.reservation.reservation_id
        try:
            if lot.used:
                await self._calls.commit(lot.reservation, lot.used)
                self._unsettled.pop(name, None)
            else:
                await self._calls.release(lot.reservation)
        except QuotaError as error:
            if lot.used:
                _log.error("%d units of reservation %s were used and are not charged: %s", lot.used, name, error)
            else:
                _log.info("reservation %s ends with its time: %s", name, error)

    async def _settle_the_rest(self) -> None:
        await asyncio.gather(*self._settlements)
        await asyncio.gather(*(self._settle(lot) for lot in list(self._unsettled.values())))
        if self._unsettled:
            raise Unavailable(f"used and not charged: {dict(self.unsettled)}", maybe_done=True)


def _available(problem: Mapping[str, Any]) -> int:
    available = problem.get("available", 0)
    return available if isinstance(available, int) else 0
