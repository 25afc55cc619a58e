"""Tells the coordinator at once what is denied here and cannot be claimed, instead of in the next report."""

import asyncio
from collections.abc import Callable
from typing import Final

from regionquota.core.quota import QuotaKey, Region
from regionquota.ports import Clock, RegionStore, Session
from regionquota.region.demand import DemandMeter
from regionquota.urgency_ports import Cry, UrgencyBoard

MAX_QUOTAS: Final = 100
"""In one cry; the others follow in the next."""


class Urgency:
    """`pause_s` lies between two cries: what runs short in it is told together."""

    def __init__(
        self,
        me: Region,
        instance: str,
        board: UrgencyBoard,
        store: RegionStore,
        meter: DemandMeter,
        clock: Clock,
        session: Callable[[], Session | None],
        *,
        pause_s: float,
        lead_s: float,
    ) -> None:
        self._me = me
        self._instance = instance
        self._board = board
        self._store = store
        self._meter = meter
        self._clock = clock
        self._session = session
        self._pause_s = pause_s
        self._lead_s = lead_s
        self._short: dict[QuotaKey, None] = {}
        self._wake = asyncio.Event()

    def run_short(self, key: QuotaKey, available: int) -> None:
        """Unless what is available lasts longer than help takes, and would do for any single request."""
        lasting = self._meter.rate(key, self._clock.now()) * self._lead_s
        if available > max(lasting, self._meter.largest(key)):
            return
        self._short[key] = None
        self._wake.set()

    async def serve(self) -> None:
        """One cry; waits until something runs short. Raises `Unavailable`: the next denial cries again."""
        await self._wake.wait()
        self._wake.clear()
        chosen = list(self._short)[:MAX_QUOTAS]
        for key in chosen:
            del self._short[key]
        if self._short:
            self._wake.set()
        session = self._session()
        if session is None:
            return
        words = self._meter.so_far(chosen, self._clock.now()).words(await self._store.holdings_of(chosen))
        await self._board.cry(session, Cry(self._me, self._instance, words))
        await asyncio.sleep(self._pause_s)
