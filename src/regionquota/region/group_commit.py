"""Group commit: commands that arrive together share one transaction and are answered once it is durable.

Commands of one tenant go through one lane, one transaction at a time; the next batch gathers meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from regionquota.core.commands import Command, Outcome
from regionquota.errors import StoreUnavailable, Unavailable
from regionquota.ports import Clock, RegionStore

MAX_ATTEMPTS: Final = 3
"""Times a batch is put to the store: connections broken by a restart of Postgres cost one attempt each."""
RETRY_AFTER_S: Final = 0.05

GIVE_UP_AFTER_S: Final = 5.0
"""A command that waited so long is answered without being tried, and a batch that failed so late is not repeated: a
database that hangs costs each caller about twice this, not the length of the queue times its deadlines."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """`since` is monotonic."""

    command: Command
    outcome: asyncio.Future[Outcome]
    since: float


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
        self._queues: list[asyncio.Queue[_Waiting]] = [asyncio.Queue(max_queue) for _ in range(lanes)]
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._workers = [asyncio.create_task(self._work(queue)) for queue in self._queues]

    async def stop(self) -> None:
        """Finish what was accepted. Callers must have stopped submitting."""
        for queue in self._queues:
            await queue.join()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def submit(self, command: Command, bucket: int) -> Outcome:
        """The command's durable outcome. Raises `StoreUnavailable`: not done, or not known; repeat it with its id.

        A caller that goes away while it waits changes nothing: the command is carried out all the same.
        """
        return await self.put(command, bucket)

    def put(self, command: Command, bucket: int) -> asyncio.Future[Outcome]:
        """As `submit`, without a coroutine for each of many commands."""
        queue = self._queues[bucket % len(self._queues)]
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        try:
            queue.put_nowait(_Waiting(command, waiting, time.monotonic()))
        except asyncio.QueueFull:
            refusal = StoreUnavailable(f"{queue.maxsize} requests are waiting already: try again")
            waiting.set_exception(refusal)
        return waiting

    async def _work(self, queue: asyncio.Queue[_Waiting]) -> None:
        while True:
            batch = [await queue.get()]
            while len(batch) < self._max_batch and not queue.empty():
                batch.append(queue.get_nowait())
            try:
                await self._answer(self._refuse_old(batch))
            finally:
                for _ in batch:
                    queue.task_done()

    def _refuse_old(self, batch: Sequence[_Waiting]) -> Sequence[_Waiting]:
        """What is left of `batch` without those that waited too long; these were not begun, and are told so."""
        oldest = time.monotonic() - GIVE_UP_AFTER_S
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
        except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
            await self._answer_failure(batch, error)
            return
        for one, outcome in zip(batch, outcomes, strict=True):
            if not one.outcome.done():
                one.outcome.set_result(outcome)

    async def _answer_failure(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """A command that is refused must not take its neighbours with it: each gets its own transaction."""
        if len(batch) > 1 and not isinstance(error, Unavailable):
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
            except StoreUnavailable:
                if attempt == MAX_ATTEMPTS or time.monotonic() - began > GIVE_UP_AFTER_S:
                    raise
            await asyncio.sleep(RETRY_AFTER_S * attempt)
        raise AssertionError("unreachable")
