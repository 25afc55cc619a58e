"""What the outside must offer so that work of unknown outcome is resolved. As the ports in `ports`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from regionquota.core.reservation import Reservation


class Verdict(StrEnum):
    """What an executor knows of an operation."""

    COMMITTED = "committed"
    RELEASED = "released"
    RUNNING = "running"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """`actual` units were used; None: as many as were reserved. Only what was committed has any."""

    reservation_id: str
    verdict: Verdict
    actual: int | None = None


class Executor(Protocol):
    """Who carries out the work that reservations are held for."""

    async def ask(self, reservations: Sequence[Reservation]) -> Sequence[Finding]:
        """What became of them: at most one finding for each, and none for what was not understood.

        Raises `ExecutorUnavailable`, also for an answer that cannot be read at all.
        """
        ...
