"""A clock for tests."""

from dataclasses import dataclass


@dataclass
class HandClock:
    """Stands still until it is set. Seconds since 1970."""

    seconds: float = 1_000_000.0

    def now(self) -> float:
        return self.seconds


@dataclass
class Clock:
    """Seconds, from wherever one begins."""

    time: float = 0.0

    def now(self) -> float:
        return self.time
