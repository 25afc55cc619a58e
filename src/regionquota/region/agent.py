"""The region agent's loops around its steps. Several agents of one region are safe at any time."""

import asyncio
from dataclasses import dataclass

from regionquota.loops import forever, stop
from regionquota.region.attendance import Attendance
from regionquota.region.claims import Claims
from regionquota.region.follower import Follower
from regionquota.region.urgency import Urgency


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two steps of each kind."""

    attend: float
    report: float
    settle: float
    retry: float = 0.2


class Agent:
    def __init__(
        self, follower: Follower, claims: Claims, attendance: Attendance, pace: Pace, urgency: Urgency | None = None
    ) -> None:
        self.follower = follower
        self.claims = claims
        self.attendance = attendance
        self._pace = pace
        self._urgency = urgency
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        pace = self._pace
        self._tasks = [
            asyncio.create_task(forever("follow allocations", self.follower.follow, pace.retry)),
            asyncio.create_task(forever("settle moves", self.follower.settle, pace.settle)),
            asyncio.create_task(forever("claim headroom", self.claims.serve, 0.0)),
            asyncio.create_task(forever("sign of life", self.attendance.attend, pace.attend)),
            asyncio.create_task(forever("report demand", self.attendance.report, pace.report)),
        ]

        if self._urgency is not None:
            self._tasks.append(asyncio.create_task(forever("cry for headroom", self._urgency.serve, 0.0)))

    async def stop(self) -> None:
        await stop(self._tasks)
        await self.attendance.close()
