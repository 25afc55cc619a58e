"""Carries out the partitions and outages of a plan, and mends everything at the end, whatever happens."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from regionquota.replay.plan import Faults, ReplayPlan, Window

SWITCH_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Fault:
    what: str
    window: Window
    start: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]


@asynccontextmanager
async def breaking(plan: ReplayPlan, faults: Faults | None, begun: float, notes: list[str]) -> AsyncIterator[None]:
    """While inside, what the plan breaks is broken at its times; afterwards nothing is. What fails goes to `notes`.

    `faults` may be None where the plan breaks nothing.
    """
    tasks = [asyncio.create_task(_break(fault, begun, notes)) for fault in _planned(plan, faults)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _planned(plan: ReplayPlan, faults: Faults | None) -> Iterator[_Fault]:
    if faults is None:
        return
    for cut in plan.partitions:
        start, end = partial(faults.cut, cut.region), partial(faults.heal, cut.region)
        yield _Fault(f"partition of {cut.region}", cut.window, start, end)
    for window in plan.etcd_outages:
        yield _Fault("etcd outage", window, faults.stop_etcd, faults.start_etcd)


async def _break(fault: _Fault, begun: float, notes: list[str]) -> None:
    await asyncio.sleep(begun + fault.window.start - monotonic())
    try:
        await _switch(f"{fault.what} could not start", fault.start, notes)
        await asyncio.sleep(begun + fault.window.end - monotonic())
    finally:
        await _switch(f"{fault.what} could not end", fault.end, notes)


async def _switch(trouble: str, switch: Callable[[], Awaitable[None]], notes: list[str]) -> None:
    """Whatever goes wrong is told beside the results: the units that are held must be given back all the same."""
    try:
        async with asyncio.timeout(SWITCH_WITHIN_S):
            await switch()
    except Exception as error:  # noqa: BLE001 - the callables are the caller's, and may raise anything
        notes.append(f"{trouble}: {error or type(error).__name__}")
