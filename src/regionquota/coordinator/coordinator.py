"""The coordinator's loops: hold what it leads, run rounds of that. Any number of coordinators may run at once."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from regionquota.coordinator.alerts import Alerts
from regionquota.coordinator.carrying_out import Round
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.known_regions import KnownRegions
from regionquota.coordinator.leading import Election, Led
from regionquota.coordinator.liveness import Liveness, update
from regionquota.coordinator.rounds import run_round, run_urgent
from regionquota.coordinator.urgent import Cries
from regionquota.core.demand import Demand
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Policy
from regionquota.loops import RETRY_PAUSE_S, forever, stop
from regionquota.ports import AllocationStore, Clock, Directory, Fence, RegionRecord

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
    """`on_round` hears of each round that this process made, with the number of frozen regions.

    All coordinators of one deployment are to have as many `groups`.
    """

    def __init__(
        self,
        name: str,
        allocations: AllocationStore,
        directory: Directory,
        clock: Clock,
        policy: Policy,
        tempo: Tempo,
        *,
        groups: int = 1,
        writes_at_once: int = 1,
        on_round: Callable[[Round, int], None] = lambda _round, _frozen: None,
        cries: Cries | None = None,
        documents: Shelves | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        self._allocations = allocations
        self._directory = directory
        self._clock = clock
        self._policy = policy
        self._tempo = tempo
        self._writes_at_once = writes_at_once
        self._on_round = on_round
        self._cries = cries
        self._documents = documents
        self._regions = KnownRegions(directory)
        self._reports: Sequence[tuple[Region, Demand]] = ()
        self._alerts = alerts
        self._liveness = Liveness(tempo.freeze_after)
        self._watches_by: Fence | None = None
        self._election = Election(name, directory, tempo.leader_ttl, groups)
        self._planning = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def led(self) -> Led:
        return self._election.led

    @property
    def heard_s_ago(self) -> float | None:
        """Seconds since etcd last answered; None before it ever did."""
        return self._election.heard_s_ago

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(forever("hold the leadership", self.hold, self._tempo.leader_ttl / 3)),
            asyncio.create_task(forever("plan", self.plan, self._tempo.interval)),
        ]
        if self._cries is not None:
            self._tasks += [
                asyncio.create_task(forever("hear who runs short", self._cries.listen, RETRY_PAUSE_S)),
                asyncio.create_task(forever("serve who runs short", self.serve, self._tempo.urgent_pause)),
            ]

    async def stop(self) -> None:
        """Resign, so that others take over at once."""
        await stop(self._tasks)
        if self._documents is not None:
            await self._documents.stop()
        await self._election.close()

    async def hold(self) -> None:
        """Prolong the lease, and lead what is this process's to lead; what no longer is, it gives up between rounds."""
        await self._election.hold()
        if self._documents is not None:
            self._documents.follow(dict(self.led.parts()))
        await self._give_up()

    async def serve(self) -> None:
        """Plan what is cried for, as far as this process leads it."""
        assert self._cries is not None
        urgent = await self._cries.take()
        led = self.led
        if not any(word.key in led for _, word in urgent.short):
            return
        with self._at_work():
            done = await run_urgent(
                urgent,
                self._regions,
                self._reports,
                self._allocations,
                self._directory,
                led,
                self._policy,
                round_s=self._tempo.interval,
                now=self._clock.now(),
                new_id=_new_id,
                known=self._documents,
                writes_at_once=self._writes_at_once,
            )
        self._tell(done)
        await self._give_up()

    async def plan(self) -> None:
        """One round of all that this process leads."""
        led = self.led
        if not led:
            return
        with self._at_work():
            await self._plan(led)
        await self._give_up()

    async def _plan(self, led: Led) -> None:
        now = self._clock.now()
        records = await self._look_at_regions(led, now)
        done = await run_round(
            records,
            self._allocations,
            self._directory,
            led,
            self._policy,
            round_s=self._tempo.interval,
            now=now,
            new_id=_new_id,
            regions=self._regions,
            known=self._documents,
            writes_at_once=self._writes_at_once,
        )
        self._tell(done)
        self._reports = done.demand
        if self._alerts is not None:
            await self._alerts.look(done.find, done.demand, led, now)

    async def _look_at_regions(self, led: Led, now: float) -> Mapping[Region, RegionRecord]:
        if led.of_regions != self._watches_by:
            # What was absent when it last watched may have come and gone since.
            self._watches_by, self._liveness = led.of_regions, Liveness(self._tempo.freeze_after)
        if led.of_regions is None:
            return {name: stored.record for name, stored in (await self._regions.regions()).items()}
        records, changed = await update(self._liveness, self._regions, led.of_regions, now)
        for record in changed:
            _log.warning("region frozen" if record.frozen else "region thawed", region=record.name)
        return records

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._planning += 1
        try:
            yield
        finally:
            self._planning -= 1

    async def _give_up(self) -> None:
        if not self._planning:
            await self._election.give_up()

    def _tell(self, done: Round) -> None:
        self._on_round(done, sum(record.frozen is not None for record in self._regions.records.values()))


def _new_id() -> str:
    return secrets.token_hex(6)
