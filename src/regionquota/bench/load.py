"""The load: as fast as the answers come, or at a given rate."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from regionquota.bench.caller import Caller
from regionquota.errors import RegionQuotaError

Unit: TypeAlias = Callable[[Caller], Coroutine[Any, Any, int]]
"""One unit of load on a free connection; returns how many reserves it made."""
WARM_UP_S: Final = 0.5
"""Answers in this time are not counted."""


@dataclass(slots=True)
class Measured:
    """`latencies_s` are of single units; `reserves` in `seconds`."""

    reserves: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.reserves / self.seconds if self.seconds else 0.0

    def percentile_ms(self, percent: float) -> float:
        if not self.latencies_s:
            return 0.0
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def saturate(callers: Sequence[Caller], unit: Unit, seconds: float) -> Measured:
    """Each connection makes its next call as soon as the last is answered."""
    measured = Measured(seconds=seconds)
    begin = time.perf_counter() + WARM_UP_S
    end = begin + seconds

    async def work(caller: Caller) -> None:
        while (sent := time.perf_counter()) < end:
            made = await unit(caller)
            answered = time.perf_counter()
            if begin <= answered <= end:
                measured.reserves += made
                measured.latencies_s.append(answered - sent)

    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(work(caller))
    return measured


async def at_rate(callers: Sequence[Caller], unit: Unit, per_second: float, seconds: float, seed: int) -> Measured:
    """Units arrive at random, `per_second` on average, whether or not earlier ones were answered.

    Latency counts from the arrival, so a server that stalls is charged for everybody who had to wait.
    """
    measured = Measured(seconds=seconds)
    idle: asyncio.Queue[Caller] = asyncio.Queue()
    for caller in callers:
        idle.put_nowait(caller)
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    begin = time.perf_counter() + WARM_UP_S

    async def one(due: float) -> None:
        caller = await idle.get()
        try:
            made = await unit(caller)
        finally:
            idle.put_nowait(caller)
        if due >= begin:
            measured.reserves += made
            measured.latencies_s.append(time.perf_counter() - due)

    due = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        while due < begin + seconds:
            due += chance.expovariate(per_second)
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.create_task(one(max(due, time.perf_counter() - 0.001) if wait > 0 else due))
    return measured


def expect(status: int, wanted: int, body: bytes) -> None:
    if status != wanted:
        raise RegionQuotaError(f"the server answered {status} where {wanted} was expected: {body[:300].decode()}")
