"""Counts what this process granted, freed and denied between two reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

from regionquota.core.demand import Demand, turn_of
from regionquota.core.policy import Priority
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.core.slice import Holding, at

RETRIED_WITHIN_S: Final = 15.0
"""A denied caller is told to come back after 10 s; so long at least is told how much it asked for at once."""

MAX_QUOTAS: Final = 1_000
"""Quotas in one report: about 150 kB, and some 10 ms of work. The busiest are named."""


Counts: TypeAlias = tuple[int, int, int]
"""Units granted, freed and denied."""


@dataclass(slots=True)
class _Tally:
    granted: int = 0
    freed: int = 0
    denied: int = 0
    denied_high: int = 0
    denied_low: int = 0
    largest: int = 0
    largest_denied: int = 0
    taken: Counts = (0, 0, 0)
    """By `take_counted`."""

    @property
    def counts(self) -> Counts:
        return self.granted, self.freed, self.denied


_NOTHING: Final = _Tally()


@dataclass(frozen=True, slots=True)
class Tallied:
    """What was counted in `seconds`, up to `now`."""

    tallies: Mapping[QuotaKey, _Tally]
    seconds: float
    now: float
    denied_before: Mapping[QuotaKey, int] = field(default_factory=dict)
    """The largest amount that was denied in one of the reports before, `RETRIED_WITHIN_S` ago at most."""

    def words(self, holdings: Iterable[Holding]) -> list[Demand]:
        """One for each that holds anything, or was asked for or lately denied.

        Sums are cut off at what readers take: one tenant's must not keep the words of all others from them.
        """
        found = []
        for held in (at(holding, self.now) for holding in holdings):
            tally = self.tallies.get(held.key, _NOTHING)
            counter = held.counter
            before = self.denied_before.get(held.key, 0)
            if counter.slice or counter.used or counter.reserved or tally.denied or before:
                found.append(
                    Demand(
                        key=held.key,
                        slice=counter.slice,
                        used=counter.used,
                        reserved=counter.reserved,
                        granted=min(tally.granted, MAX_AMOUNT),
                        freed=min(tally.freed, MAX_AMOUNT),
                        denied=min(tally.denied, MAX_AMOUNT),
                        denied_high=min(tally.denied_high, MAX_AMOUNT),
                        denied_low=min(tally.denied_low, MAX_AMOUNT),
                        seconds=self.seconds,
                        epoch=held.epoch,
                        largest=max(tally.largest, before),
                        at=self.now,
                    )
                )
        return found


def _added(one: _Tally, other: _Tally) -> _Tally:
    return _Tally(
        one.granted + other.granted,
        one.freed + other.freed,
        one.denied + other.denied,
        one.denied_high + other.denied_high,
        one.denied_low + other.denied_low,
        max(one.largest, other.largest),
        max(one.largest_denied, other.largest_denied),
    )


def busiest(words: list[Demand]) -> list[Demand]:
    """The first `MAX_QUOTAS` of them."""
    words.sort(key=lambda word: (word.denied, word.granted + word.freed, word.slice), reverse=True)
    return words[:MAX_QUOTAS]


@dataclass(slots=True)
class DemandMeter:
    """`since` is when the counting began, in seconds since 1970."""

    since: float
    _tallies: dict[QuotaKey, _Tally] = field(default_factory=dict)
    _touched: dict[QuotaKey, None] = field(default_factory=dict)
    _before: "Tallied | None" = None
    _denied_before: list[tuple[float, Mapping[QuotaKey, int]]] = field(default_factory=list)
    _learns: bool = False
    _counted_before: dict[QuotaKey, Counts] = field(default_factory=dict)

    def touch(self, key: QuotaKey) -> None:
        """Something about the holding changed, such as its slice."""
        self._touched[key] = None

    def take_touched(self) -> Sequence[QuotaKey]:
        """What was touched, granted, freed or denied since it was last returned here, or denied in a report that still
        counts: up to `MAX_QUOTAS`, what was denied first, then in the order in which it was touched.
        """
        denied = [key for key, tally in self._tallies.items() if tally.denied]
        chosen = list(islice(dict.fromkeys([*denied, *self._touched]), MAX_QUOTAS))
        for key in chosen:
            self._touched.pop(key, None)
        return chosen

    def granted(self, key: QuotaKey, amount: int) -> None:
        tally = self._tally(key)
        tally.granted += amount
        tally.largest = max(tally.largest, amount)

    def freed(self, key: QuotaKey, amount: int) -> None:
        self._tally(key).freed += amount

    def denied(self, key: QuotaKey, amount: int, priority: Priority = Priority.NORMAL) -> None:
        tally = self._tally(key)
        tally.denied += amount
        if priority is Priority.HIGH:
            tally.denied_high += amount
        elif priority is Priority.LOW:
            tally.denied_low += amount
        tally.largest = max(tally.largest, amount)
        tally.largest_denied = max(tally.largest_denied, amount)

    def take(self, now: float) -> Tallied:
        """What was counted; starts counting anew."""
        seconds = max(now - self.since, 0.0)
        if self._learns:
            self._counted_before = self.take_counted()
        tallies, self._tallies, self.since = self._tallies, {}, now
        self._before = Tallied(tallies, seconds, now, self._denied_lately(now))
        denied = {key: tally.largest_denied for key, tally in tallies.items() if tally.denied}
        self._denied_before.append((now, denied))
        self._touched.update(dict.fromkeys([*self._before.denied_before, *denied]))
        return self._before

    def _denied_lately(self, now: float) -> Mapping[QuotaKey, int]:
        self._denied_before = [
            (until, denied) for until, denied in self._denied_before if 0 <= now - until < RETRIED_WITHIN_S
        ]
        lately: dict[QuotaKey, int] = {}
        for _, denied in self._denied_before:
            for key, amount in denied.items():
                lately[key] = max(amount, lately.get(key, 0))
        return lately

    def learn(self) -> None:
        """From now on `take_counted` is called now and then."""
        self._learns = True

    def take_counted(self) -> dict[QuotaKey, Counts]:
        """Units granted, freed and denied since it was last called, whatever was reported meanwhile."""
        counted, self._counted_before = self._counted_before, {}
        for key, tally in self._tallies.items():
            now, taken = tally.counts, tally.taken
            if now != taken:
                before = counted.get(key, (0, 0, 0))
                counted[key] = (
                    before[0] + now[0] - taken[0],
                    before[1] + now[1] - taken[1],
                    before[2] + now[2] - taken[2],
                )
                tally.taken = now
        return counted

    def rate(self, key: QuotaKey, now: float) -> float:
        """Units asked for per second, since the report before the last."""
        seconds, units = max(now - self.since, 0.0), self._asked(self._tallies, key)
        if self._before is not None:
            seconds, units = seconds + self._before.seconds, units + self._asked(self._before.tallies, key)
        return units / max(seconds, 0.1)

    def largest(self, key: QuotaKey) -> int:
        """Units that somebody asked for at once, since the report before the last."""
        before = _NOTHING if self._before is None else self._before.tallies.get(key, _NOTHING)
        return max(before.largest, self._tallies.get(key, _NOTHING).largest)

    def turn(self, key: QuotaKey) -> int:
        """As `turn_of`, of what was denied since the report before the last."""
        now = self._tallies.get(key, _NOTHING)
        return turn_of(now if self._before is None else _added(now, self._before.tallies.get(key, _NOTHING)))

    @staticmethod
    def _asked(tallies: Mapping[QuotaKey, _Tally], key: QuotaKey) -> int:
        tally = tallies.get(key, _NOTHING)
        return tally.granted + tally.denied

    def so_far(self, keys: Iterable[QuotaKey], now: float) -> Tallied:
        """What was counted of these until now, since the report before the last: a rate over a moment is noise."""
        seconds = max(now - self.since, 0.0)
        if self._before is None:
            return Tallied({key: self._tallies.get(key, _NOTHING) for key in keys}, seconds, now)
        before = self._before.tallies
        summed = {key: _added(before.get(key, _NOTHING), self._tallies.get(key, _NOTHING)) for key in keys}
        return Tallied(summed, self._before.seconds + seconds, now)

    def _tally(self, key: QuotaKey) -> _Tally:
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        self._touched[key] = None
        return tally
