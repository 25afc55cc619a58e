"""Group commit: commands that arrive together share one transaction and are answered once it is durable.

Commands of one tenant go through one lane, one transaction at a time; the next batch gathers meanwhile.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from regionquota.core.commands import Command, Outcome, Reserve
from regionquota.errors import NotTrusted, StoreUnavailable, Unavailable
from regionquota.loops import stop
from regionquota.ports import Clock, RegionStore

MAX_ATTEMPTS: Final = 3
"""Times a batch is put to the store: connections broken by a restart of Postgres cost one attempt each."""
RETRY_AFTER_S: Final = 0.05

GIVE_UP_AFTER_S: Final = 5.0
"""A command that waited so long is answered without being tried, and a batch that failed so late is not repeated: a
database that hangs costs each caller about twice this, not the length of the queue times its deadlines."""


class _Waiting(NamedTuple):
    """`since` is monotonic."""

    command: Command
    outcome: asyncio.Future[Outcome]
    since: float


class _Lane:
    """What waits for its turn; a queue of asyncio's costs several times as much per command."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.filled = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def put(self, one: _Waiting) -> None:
        self.waiting.append(one)
        if not self.filled.is_set():
            self.idle.clear()
            self.filled.set()

    async def take(self, most: int) -> Sequence[_Waiting]:
        """At least one. What was taken before is done with."""
        if not self.waiting:
            self.filled.clear()
            self.idle.set()
            await self.filled.wait()
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]


_log = structlog.get_logger(__name__)


class GroupCommit:
    """`start` before, `stop` after use. A stop answers everybody who is waiting."""

    def __init__(
        self,
        store: RegionStore,
        clock: Clock,
        *,
        lanes: int,
        max_batch: int,
        max_queue: int,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._max_batch = max_batch
        self._on_batch = on_batch
        self._max_queue = max_queue
        self._lanes = [_Lane() for _ in range(lanes)]
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._workers = [asyncio.create_task(self._work(lane)) for lane in self._lanes]

    async def stop(self) -> None:
        """Finish what was accepted. Callers must have stopped submitting."""
        try:
            for lane in self._lanes:
                await lane.idle.wait()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Carry out nothing more. Who still waits is cancelled: it is not known what became of it."""
        await stop(self._workers)
        for lane in self._lanes:
            for one in lane.waiting:
                one.outcome.cancel()

    async def submit(self, command: Command, bucket: int) -> Outcome:
        """The command's durable outcome. Raises `StoreUnavailable`: not done, or not known; repeat it with its id.

        A caller that goes away while it waits changes nothing: the command is carried out all the same.
        """
        return await self.put(command, bucket)

    def put(self, command: Command, bucket: int) -> asyncio.Future[Outcome]:
        """As `submit`, without a coroutine for each of many commands."""
        lane = self._lanes[bucket % len(self._lanes)]
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if len(lane.waiting) < self._max_queue:
            lane.put(_Waiting(command, outcome, time.monotonic()))
        else:
            refusal = StoreUnavailable(f"{self._max_queue} requests are waiting already: try again")
            outcome.set_exception(refusal)
        return outcome

    async def _work(self, lane: _Lane) -> None:
        while True:
            batch = await lane.take(self._max_batch)
            await self._answer(self._refuse_old(batch))

    def _refuse_old(self, batch: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """What is left of `batch` without those that waited too long; these were not begun, and are told so."""
        oldest = time.monotonic() - GIVE_UP_AFTER_S
        if batch[0].since >= oldest:
            return batch
        for one in batch:
            if one.since < oldest and not one.outcome.done():
                one.outcome.set_exception(StoreUnavailable(f"waited {GIVE_UP_AFTER_S:g} s for Postgres; not begun"))
        return [one for one in batch if one.since >= oldest]

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        if not batch:
            return
        try:
            self._on_batch(len(batch))
            outcomes = await self._put([one.command for one in batch])
        except asyncio.CancelledError:
            for one in batch:
                one.outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            await self._answer_failure(batch, error)
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            if not one.outcome.done():
                one.outcome.set_result(outcome)

    async def _answer_failure(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """A command that is refused must not take its neighbours with it: each gets its own transaction."""
        if isinstance(error, NotTrusted):
            others = [one for one in batch if not isinstance(one.command, Reserve)]
            batch = [one for one in batch if isinstance(one.command, Reserve)]
            await self._answer(others)
        elif len(batch) > 1 and not isinstance(error, Unavailable):
            _log.error("a batch was refused, its commands are tried one by one", size=len(batch), error=str(error))
            for one in batch:
                await self._answer([one])
            return
        for one in batch:
            if not one.outcome.done():
                one.outcome.set_exception(error)

    async def _put(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Put the batch to the store, again where that is safe: each command re-reads its own id first."""
        began = time.monotonic()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return await self._store.transact(commands, self._clock.now())
            except NotTrusted:
                raise
            except StoreUnavailable:
                if attempt == MAX_ATTEMPTS or time.monotonic() - began > GIVE_UP_AFTER_S:
                    raise
            await asyncio.sleep(RETRY_AFTER_S * attempt)
        raise AssertionError("unreachable")
