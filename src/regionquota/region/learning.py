"""Learns what this region is asked for at which hour, and foresees by it what it will be asked for.

Advisory: what is lost, or counted in the hour after, costs nothing but a little of the estimate.
"""

from collections.abc import Collection, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

from regionquota.core.forecast import NOTHING, Counted, Foreseen, Outlook, hour_of, hours_to_recall, outlook
from regionquota.core.quota import QuotaKey
from regionquota.errors import OutcomeUnknown
from regionquota.learning_ports import DemandHistory
from regionquota.ports import Clock
from regionquota.region.demand import MAX_QUOTAS, DemandMeter

HOUR_S: Final = 3600.0
MINUTE_S: Final = 60.0
"""Between two steps; what is asked for in one is what a busy minute is told by."""
LOOKS_AN_HOUR: Final = 6
"""How often it is looked up what the past says of a quota."""
MAX_PEAKS: Final = 10_000
"""Quotas whose busiest minute of this hour is remembered; beyond it all are forgotten."""
AT_ONCE: Final = 200
"""Quotas that are written, and that are recalled, in one step: those that were asked for most."""


_NOTHING: Final = Counted()


class Learning:
    """`step` is to be made every minute (a sixtieth of `hour_s`).

    What could not be written is kept for the next step, of up to `MAX_QUOTAS` quotas, those that were asked for most.
    What may have been written or not is given up: counted twice would be worse than a minute that is missing.
    """

    def __init__(self, meter: DemandMeter, history: DemandHistory, clock: Clock, *, hour_s: float = HOUR_S) -> None:
        self._meter = meter
        self._history = history
        self._clock = clock
        self._hour_s = hour_s
        self._pending: dict[QuotaKey, Counted] = {}
        self._peaks_of = 0.0
        self._peaks: dict[QuotaKey, int] = {}
        self._told: dict[QuotaKey, None] = {}
        self._outlooks: dict[QuotaKey, Outlook | None] = {}
        self._looked_at: dict[QuotaKey, float] = {}
        meter.learn()

    def foreseen(self, key: QuotaKey, now: float) -> Foreseen:
        """Of a quota that is told of; what is asked here for the first time is recalled in the next step."""
        self._told[key] = None
        known = self._outlooks.get(key)
        return NOTHING if known is None or abs(now - known.made) > self._hour_s else known.at(now, self._hour_s)

    async def step(self) -> None:
        """Raises `StoreUnavailable`."""
        now = self._clock.now()
        hour = hour_of(now, self._hour_s)
        self._count(hour)
        await self._write(hour)
        await self._recall(now)

    def _count(self, hour: float) -> None:
        """The minute that is over. A busier one than all before it in this hour raises the peak by the difference, so
        that those of several servers add up.
        """
        if hour != self._peaks_of:
            self._peaks_of, self._peaks = hour, {}
        if len(self._peaks) >= MAX_PEAKS:
            self._peaks.clear()
        for key, (granted, freed, denied) in self._meter.take_counted().items():
            asked = granted + denied
            raised = max(0, asked - self._peaks.get(key, 0))
            if raised:
                self._peaks[key] = asked
            self._pending[key] = self._pending.get(key, _NOTHING).plus(Counted(granted, freed, denied, raised))
        self._pending = dict(_most_asked(self._pending, MAX_QUOTAS))

    async def _write(self, hour: float) -> None:
        chosen = dict(_most_asked(self._pending, AT_ONCE))
        if not chosen:
            return
        try:
            await self._history.add(hour, chosen)
        except OutcomeUnknown:
            self._drop(chosen)
            raise
        self._drop(chosen)

    def _drop(self, written: Collection[QuotaKey]) -> None:
        for key in written:
            del self._pending[key]

    async def _recall(self, now: float) -> None:
        """What is told of, and was looked up too long ago; or at a time that is not yet, by a clock that was wrong."""
        told, self._told = self._told, {}
        old = {key for key, at in self._looked_at.items() if abs(now - at) >= self._hour_s / LOOKS_AN_HOUR}
        for key in old - told.keys():
            del self._outlooks[key], self._looked_at[key]
        wanted = list(islice((key for key in told if key in old or key not in self._looked_at), AT_ONCE))
        if not wanted:
            return
        found = await self._history.recall(wanted, hours_to_recall(now, self._hour_s))
        outlooks = {past.key: outlook(past, now, self._hour_s) for past in found}
        for key in wanted:
            self._looked_at[key] = now
            self._outlooks[key] = outlooks.get(key)


def _most_asked(counted: dict[QuotaKey, Counted], most: int) -> Sequence[tuple[QuotaKey, Counted]]:
    if len(counted) <= most:
        return list(counted.items())
    return nlargest(most, counted.items(), key=lambda item: item[1].granted + item[1].denied)


def nothing_foreseen(_key: QuotaKey, _now: float) -> Foreseen:
    return NOTHING
