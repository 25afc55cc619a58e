"""`replay`: puts a quota under the demand of a trace and reports what the regions made of it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from rich.console import Console

from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.replay.calls import CallError, RegionCalls, open_session
from regionquota.replay.faults import breaking
from regionquota.replay.lane import Lane
from regionquota.replay.load import Load
from regionquota.replay.observer import Observer, Sights
from regionquota.replay.plan import Faults, ReplayPlan, Targets
from regionquota.replay.progress import progress
from regionquota.replay.report import Report


async def replay(
    plan: ReplayPlan,
    targets: Targets,
    sights: Sights,
    *,
    faults: Faults | None = None,
    console: Console | None = None,
) -> Report:
    """Run it to the end, give everything back, and report. `console` None: silent.

    A cancellation (Ctrl-C under `asyncio.run`) ends the demand, not the call: it still gives back and returns a
    partial report. A second one ends it at once. Raises `Unavailable` if etcd or every region server is away at the
    start, `InvalidRequest` if the plan does not fit the targets.
    """
    for region in plan.trace.regions:
        if region not in targets.urls:
            raise InvalidRequest("trace", f"no URL for region {region}: known are {', '.join(targets.urls)}")
    if faults is None and (plan.partitions or plan.etcd_outages):
        raise InvalidRequest("partition", "nothing here can cut off a region or stop etcd: replay against `dev`")
    run = _Run(plan, targets, sights, faults, console, asyncio.Event())
    running = asyncio.create_task(run.to_the_end())
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or running.done():
            raise
        task.uncancel()
        run.interrupted.set()
        return await running


@dataclass(frozen=True, slots=True)
class _Run:
    plan: ReplayPlan
    targets: Targets
    sights: Sights
    faults: Faults | None
    console: Console | None
    interrupted: asyncio.Event

    async def to_the_end(self) -> Report:
        plan = self.plan
        notes = list(plan.trace.notes)
        async with (
            _collecting_seldom(),
            Observer(plan.quota, self.sights) as observer,
            open_session(plan.connections + 1, plan.call_timeout_s, dict(self.targets.headers)) as session,
        ):
            calls = {
                region: RegionCalls(session, self.targets.urls[region], plan.quota) for region in plan.trace.regions
            }
            await _set_limit(calls, plan.quota_limit)
            load = Load(plan.trace.regions, held_s=plan.bin_s)
            lanes = [Lane(plan, region, calls[region], load) for region in plan.trace.regions]
            begun = monotonic()
            async with progress(self.console, plan, begun, load, observer), asyncio.TaskGroup() as group:
                for lane in lanes:
                    lane.start(group, begun)
                async with breaking(plan, self.faults, begun, notes):
                    await self._demand(lanes, begun)
                    elapsed = monotonic() - begun
                partial = self.interrupted.is_set()
                await asyncio.gather(*(lane.close(plan.closing_s, interrupted=partial) for lane in lanes))
            observed = await observer.finish(plan.closing_s)
        figures = load.figures(plan.quota_limit)
        return Report(str(plan.quota), partial, elapsed, plan.quota_limit, figures, observed, (*notes, *observed.notes))

    async def _demand(self, lanes: Sequence[Lane], begun: float) -> None:
        """Until all have arrived and the last bin is over, or until interrupted."""
        async with asyncio.TaskGroup() as group:
            arriving = [group.create_task(lane.arrive(begun)) for lane in lanes]
            arriving.append(group.create_task(asyncio.sleep(self.plan.duration_s)))
            interrupting = group.create_task(_cancel_when(self.interrupted, arriving))
            await asyncio.wait(arriving)
            interrupting.cancel()


@asynccontextmanager
async def _collecting_seldom() -> AsyncIterator[None]:
    """Calls leave dozens of short-lived objects each; at the usual thresholds, collecting takes a fifth of the time."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


async def _cancel_when(event: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
    await event.wait()
    for task in tasks:
        task.cancel()


async def _set_limit(calls: dict[Region, RegionCalls], limit: int) -> None:
    troubles = []
    for region, server in calls.items():
        try:
            await server.set_limit(limit)
        except CallError as error:
            troubles.append(f"{region}: {error}")
        else:
            return
    raise Unavailable(f"no region server took the quota: {'; '.join(troubles)}")
