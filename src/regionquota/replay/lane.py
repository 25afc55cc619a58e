"""One region's part of a replay: units arrive, are reserved, settled, and given back one bin later."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import monotonic
from typing import Final

from regionquota.core.quota import Region
from regionquota.replay.calls import TTL_S, CallError, RegionCalls
from regionquota.replay.generate import Arrival, arrivals
from regionquota.replay.load import Load, Verdict
from regionquota.replay.plan import ReplayPlan

RESERVE_PAUSES_S: Final = (0.05, 0.2)
"""Before the second and the third sending of a reserve; there is no fourth."""
LONGEST_PAUSE_S: Final = 1.0
COMMIT_WITHIN_S: Final = TTL_S / 2
"""A hold that is neither committed nor known to be for this long no longer counts as certainly held: it may expire."""
RETURNS_PER_BIN: Final = 20
CLOCK_GRAIN_S: Final = 0.001


class Lane:
    def __init__(self, plan: ReplayPlan, region: Region, calls: RegionCalls, load: Load) -> None:
        self._plan = plan
        self._region = region
        self._at = plan.trace.regions.index(region)
        self._calls = calls
        self._load = load
        self._queue: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._due: deque[float] = deque()
        self._lost: list[str] = []
        self._unsettled: list[str] = []
        self._returns = 0
        self._give_up_at = math.inf
        self._workers: list[asyncio.Task[None]] = []
        self._returner: list[asyncio.Task[None]] = []
        self._returning = True

    def start(self, group: asyncio.TaskGroup, begun: float) -> None:
        self._workers = [group.create_task(self._work(begun)) for _ in range(self._plan.connections)]
        self._returner = [group.create_task(self._return_due())]

    async def arrive(self, begun: float) -> None:
        """Ends with the last arrival."""
        plan = self._plan
        for arrival in arrivals(
            plan.trace, self._at, bin_s=plan.bin_s, release_share=plan.release_share, seed=plan.seed
        ):
            wait = begun + arrival.at - monotonic()
            if wait > CLOCK_GRAIN_S:
                await asyncio.sleep(wait)
            self._queue.put_nowait(arrival)

    async def close(self, within_s: float, *, interrupted: bool) -> None:
        """Finish what is under way and give everything back, so that nothing stays used or reserved."""
        self._give_up_at = monotonic() + within_s
        while interrupted and not self._queue.empty():
            self._queue.get_nowait()
        for _ in self._workers:
            self._queue.put_nowait(None)
        await asyncio.gather(*self._workers)
        self._returning = False
        await asyncio.gather(*self._returner)
        await self._give_back(math.inf)
        await self._side_by_side(self._release_lost, self._lost)
        await self._side_by_side(self._commit_and_return, self._unsettled)

    async def _work(self, begun: float) -> None:
        patience = self._plan.bin_s if self._plan.patience_s is None else self._plan.patience_s
        while (arrival := await self._queue.get()) is not None:
            if monotonic() - begun - arrival.at > patience:
                self._load.late[self._at] += 1
            else:
                await self._serve(releases=arrival.releases)

    async def _serve(self, *, releases: bool) -> None:
        load = self._load
        sent = monotonic()
        request = load.send(self._at, sent)
        reservation = await self._reserve(request)
        if releases:
            load.freed(request, monotonic())
        if reservation is None:
            return
        if releases:
            load.held.remove()
            if not await self._until_done("release", partial(self._calls.release, reservation)):
                load.unreturned += 1
        elif await self._until_done("commit", partial(self._calls.commit, reservation), by=sent + COMMIT_WITHIN_S):
            self._due.append(sent + self._plan.bin_s)
        else:
            load.held.remove()
            self._unsettled.append(reservation)

    async def _reserve(self, request: int) -> str | None:
        request_id = f"{self._plan.run}-{request}"
        reached = False
        for pause in (*RESERVE_PAUSES_S, None):
            try:
                reservation = await self._calls.reserve(request_id)
            except CallError as error:
                self._load.failed_calls[f"reserve: {error.kind}"] += 1
                reached = reached or error.reached
                if not error.again or pause is None:
                    break
                await _pause(pause, error)
            else:
                verdict = Verdict.DENIED if reservation is None else Verdict.ADMITTED
                self._load.answer(request, verdict, monotonic())
                return reservation
        if reached:
            self._lost.append(request_id)
        return None

    async def _return_due(self) -> None:
        tick = self._plan.bin_s / RETURNS_PER_BIN
        while self._returning:
            await asyncio.sleep(tick)
            # What falls due before half the next tick goes now: units are held one bin on average, as by the oracle.
            await self._give_back(monotonic() + tick / 2)

    async def _give_back(self, due: float) -> None:
        units = 0
        while self._due and self._due[0] <= due:
            self._due.popleft()
            units += 1
        if units:
            self._load.held.remove(units)
            await self._adjust(-units)

    async def _adjust(self, delta: int) -> None:
        self._returns += 1
        request_id = f"{self._plan.run}-{self._region}-return-{self._returns}"
        if not await self._until_done("give back", partial(self._calls.adjust, request_id, delta)):
            self._load.unreturned -= delta

    async def _release_lost(self, request_id: str) -> None:
        """A reserve without an answer may have been granted: asked again with its id, the server says so."""

        async def reserve_and_release() -> None:
            reservation = await self._calls.reserve(request_id)
            if reservation is not None:
                await self._calls.release(reservation)

        if not await self._until_done("release of a lost reserve", reserve_and_release):
            self._load.unreturned += 1

    async def _commit_and_return(self, reservation: str) -> None:
        if await self._until_done("commit", partial(self._calls.commit, reservation)):
            await self._adjust(-1)
        else:
            self._load.unreturned += 1

    async def _until_done(self, what: str, call: Callable[[], Awaitable[None]], *, by: float = math.inf) -> bool:
        pause = RESERVE_PAUSES_S[0]
        while monotonic() < min(by, self._give_up_at):
            try:
                await call()
            except CallError as error:
                self._load.failed_calls[f"{what}: {error.kind}"] += 1
                if not error.again:
                    return False
                await _pause(pause, error)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                return True
        return False

    async def _side_by_side(self, handle: Callable[[str], Awaitable[None]], ids: Iterable[str]) -> None:
        pending = iter(ids)

        async def worker() -> None:
            for one in pending:
                await handle(one)

        await asyncio.gather(*(worker() for _ in range(self._plan.connections)))


async def _pause(pause_s: float, error: CallError) -> None:
    await asyncio.sleep(max(pause_s, min(error.retry_after_s, LONGEST_PAUSE_S)))
