"""Tells the coordinator at once what is denied here and cannot be claimed, instead of in the next report."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from regionquota.core.quota import QuotaKey, Region
from regionquota.ports import Clock, RegionStore, Session
from regionquota.region.demand import DemandMeter
from regionquota.urgency_ports import Cry, UrgencyBoard

MAX_QUOTAS: Final = 100
"""In one cry, those that deny at high priority first; the others follow in the next."""
LONGEST_PAUSES: Final = 4
MAX_WAITING: Final = 10_000
"""Quotas whose pause is remembered; beyond it all are forgotten."""


@dataclass(frozen=True, slots=True)
class _Pause:
    owned: int
    turn: int
    length: float
    until: float


class Urgency:
    """`pause_s` lies between two cries: what runs short in it is told together. `owned` is what the region owns of a
    quota, as it last heard.

    A cry that changed nothing of that is repeated after twice the pause at the soonest, and so on up to
    `LONGEST_PAUSES` of them: where nobody has anything left, denials cost etcd next to nothing. A denial at a higher
    priority than was cried for does not wait for the end of a pause.
    """

    def __init__(
        self,
        me: Region,
        instance: str,
        board: UrgencyBoard,
        store: RegionStore,
        meter: DemandMeter,
        clock: Clock,
        session: Callable[[], Session | None],
        owned: Callable[[QuotaKey], int],
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
        self._owned = owned
        self._pause_s = pause_s
        self._lead_s = lead_s
        self._short: dict[QuotaKey, None] = {}
        self._pauses: dict[QuotaKey, _Pause] = {}
        self._wake = asyncio.Event()

    def run_short(self, key: QuotaKey, available: int) -> None:
        """Unless what is available lasts longer than help takes, and would do for any single request."""
        now = self._clock.now()
        pause = self._pauses.get(key)
        is_paused = pause is not None and now < pause.until and pause.owned == self._owned(key)
        if pause is not None and is_paused and self._meter.turn(key) >= pause.turn:
            return
        lasting = self._meter.rate(key, now) * self._lead_s
        if available > max(lasting, self._meter.largest(key)):
            return
        self._short[key] = None
        self._wake.set()

    async def serve(self) -> None:
        """One cry; waits until something runs short. Raises `Unavailable`: the next denial cries again."""
        await self._wake.wait()
        self._wake.clear()
        chosen = sorted(self._short, key=self._meter.turn)[:MAX_QUOTAS]
        for key in chosen:
            del self._short[key]
        if self._short:
            self._wake.set()
        session = self._session()
        if session is None:
            return
        words = self._meter.so_far(chosen, self._clock.now()).words(await self._store.holdings_of(chosen))
        self._remember(chosen)
        await self._board.cry(session, Cry(self._me, self._instance, words))
        await asyncio.sleep(self._pause_s)

    def _remember(self, cried: Iterable[QuotaKey]) -> None:
        now = self._clock.now()
        if len(self._pauses) >= MAX_WAITING:
            self._pauses.clear()
        for key in cried:
            owned, before = self._owned(key), self._pauses.get(key)
            length = self._pause_s
            if before is not None and before.owned == owned and now < before.until + before.length:
                length = min(2 * before.length, LONGEST_PAUSES * self._pause_s)
            self._pauses[key] = _Pause(owned, self._meter.turn(key), length, now + length)
