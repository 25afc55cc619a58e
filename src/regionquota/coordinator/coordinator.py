"""The coordinator's loops: hold the leadership, run rounds. Any number of coordinators may run at once."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from regionquota.coordinator.alerts import Alerts
from regionquota.coordinator.documents import Documents
from regionquota.coordinator.liveness import Liveness, update
from regionquota.coordinator.rounds import Round, run_round, run_urgent
from regionquota.coordinator.urgent import Cries
from regionquota.core.rebalancing import Policy
from regionquota.loops import RETRY_PAUSE_S, forever, stop
from regionquota.ports import AllocationStore, Clock, Directory, Fence, Session

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tempo:
    """Seconds. `freeze_after` is grace beyond the signs of life's own lease; `urgent_pause` lies between two plans of
    what regions cry for.
    """

    interval: float
    leader_ttl: int
    freeze_after: float
    urgent_pause: float = 0.3


class Coordinator:
    """`on_round` hears of each round that this process led, with the number of frozen regions."""

    def __init__(
        self,
        name: str,
        allocations: AllocationStore,
        directory: Directory,
        clock: Clock,
        policy: Policy,
        tempo: Tempo,
        *,
        on_round: Callable[[Round, int], None] = lambda _round, _frozen: None,
        cries: Cries | None = None,
        documents: Documents | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        self._name = name
        self._allocations = allocations
        self._directory = directory
        self._clock = clock
        self._policy = policy
        self._tempo = tempo
        self._on_round = on_round
        self._cries = cries
        self._documents = documents
        self._alerts = alerts
        self._liveness = Liveness(tempo.freeze_after)
        self._session: Session | None = None
        self._fence: Fence | None = None
        self._kept_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_leader(self) -> bool:
        """By this process's own monotonic clock, so that a hung etcd cannot make it last longer than its lease."""
        return self._fence is not None and time.monotonic() - self._kept_at < self._tempo.leader_ttl

    @property
    def heard_s_ago(self) -> float | None:
        """Seconds since etcd last answered; None before it ever did."""
        return time.monotonic() - self._kept_at if self._kept_at else None

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(forever("hold the leadership", self.hold, self._tempo.leader_ttl / 3)),
            asyncio.create_task(forever("plan", self.plan, self._tempo.interval)),
        ]
        if self._documents is not None:
            self._tasks.append(
                asyncio.create_task(forever("follow allocations", self._documents.follow, RETRY_PAUSE_S))
            )
        if self._cries is not None:
            self._tasks += [
                asyncio.create_task(forever("hear who runs short", self._cries.listen, RETRY_PAUSE_S)),
                asyncio.create_task(forever("serve who runs short", self.serve, self._tempo.urgent_pause)),
            ]

    async def stop(self) -> None:
        """Resign, so that another takes over at once."""
        await stop(self._tasks)
        self._fence = None
        if self._session is not None:
            await self._session.close()

    async def hold(self) -> None:
        """Prolong the lease, and lead if nobody else does."""
        began = time.monotonic()
        if self._session is not None and not await self._session.keep():
            self._session = None
            self._fence = None
        if self._session is None:
            self._session = await self._directory.open_session(self._tempo.leader_ttl)
        fence = await self._directory.lead(self._session, self._name)
        if fence != self._fence:
            _log.info("leading" if fence else "standing by", coordinator=self._name)
        self._fence, self._kept_at = fence, began

    async def serve(self) -> None:
        """Plan what is cried for, if this process leads."""
        assert self._cries is not None
        urgent = await self._cries.take()
        fence = self._fence
        if fence is None or not self.is_leader:
            return
        # Those of the last round may know nothing of a region that was frozen, or evicted, since.
        records = {name: stored.record for name, stored in (await self._directory.regions()).items()}
        done = await run_urgent(
            urgent,
            records,
            self._allocations,
            self._directory,
            fence,
            self._policy,
            now=self._clock.now(),
            new_id=lambda: secrets.token_hex(6),
        )
        self._on_round(done, sum(record.frozen is not None for record in records.values()))

    async def plan(self) -> None:
        """One round, if this process leads."""
        fence = self._fence
        if fence is None or not self.is_leader:
            return
        now = self._clock.now()
        records, changed = await update(self._liveness, self._directory, fence, now)
        for record in changed:
            _log.warning("region frozen" if record.frozen else "region thawed", region=record.name)
        done = await run_round(
            records,
            self._allocations,
            self._directory,
            fence,
            self._policy,
            round_s=self._tempo.interval,
            now=now,
            new_id=lambda: secrets.token_hex(6),
            known=self._documents,
        )
        self._on_round(done, sum(record.frozen is not None for record in records.values()))
        if self._alerts is not None:
            await self._alerts.look(done.documents, done.demand, fence, now)
