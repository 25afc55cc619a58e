"""A reservation around a piece of work."""

import asyncio
import logging

from regionquota.client.answers import Reservation
from regionquota.client.arguments import check_integer
from regionquota.client.calls import Calls
from regionquota.client.errors import QuotaError

_log = logging.getLogger(__name__)


class Hold:
    """Made by `Client.reserved`."""

    def __init__(self, calls: Calls, reservation: Reservation) -> None:
        self._calls = calls
        self._used: int | None = None
        self.reservation = reservation

    def use(self, amount: int) -> None:
        """What the work really took; 0 gives all back. Without a word all that was reserved is charged."""
        check_integer("amount", amount, 0)
        self._used = amount

    async def start(self, operation_id: str) -> None:
        self.reservation = await self._calls.start(self.reservation, operation_id)

    async def extend(self, ttl_s: int) -> None:
        self.reservation = await self._calls.extend(self.reservation, ttl_s)

    async def settle(self) -> None:
        """Goes on to its end although the caller is cancelled."""
        await asyncio.shield(self._calls.settling(self._commit()))

    async def abandon(self) -> None:
        """Raises nothing: whatever ended the work is what matters."""
        if self.reservation.operation_id is None:
            await asyncio.shield(self._calls.settling(self._release()))

    async def _commit(self) -> None:
        try:
            if self._used == 0:
                self.reservation = await self._calls.release(self.reservation)
            else:
                self.reservation = await self._calls.commit(self.reservation, self._used)
        except QuotaError as error:
            _log.error("reservation %s was used and is not charged: %s", self.reservation.reservation_id, error)
            raise

    async def _release(self) -> None:
        try:
            self.reservation = await self._calls.release(self.reservation)
        except QuotaError as error:
            _log.warning("reservation %s ends with its time: %s", self.reservation.reservation_id, error)
