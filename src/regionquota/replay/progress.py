"""What people see while a replay runs: a bar on a terminal, a line now and then elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regionquota.replay.load import Load
from regionquota.replay.observer import Observer
from regionquota.replay.plan import ReplayPlan

BAR_S: Final = 0.25
LINE_S: Final = 5.0


@asynccontextmanager
async def progress(
    console: Console | None, plan: ReplayPlan, begun: float, load: Load, observer: Observer
) -> AsyncIterator[None]:
    """`console` None: silent."""
    if console is None:
        yield
        return
    describe = _describer(plan, load, observer)
    show = _show_bar if console.is_terminal else _print_lines
    task = asyncio.create_task(show(console, plan, begun, describe))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _describer(plan: ReplayPlan, load: Load, observer: Observer) -> Callable[[], str]:
    """Each call tells the rates since the call before."""
    last = (monotonic(), load.admitted, load.denied)

    def describe() -> str:
        nonlocal last
        now = (monotonic(), load.admitted, load.denied)
        seconds = max(now[0] - last[0], 0.001)
        admitted, denied = (now[1] - last[1]) / seconds, (now[2] - last[2]) / seconds
        last = now
        frozen = ", ".join(sorted(observer.frozen or ())) or "none"
        slices = f"slices {observer.slices_sum:,} of {plan.quota_limit:,}"
        return f"{admitted:,.0f} admitted/s, {denied:,.0f} denied/s, {slices}, frozen: {frozen}"

    return describe


def _bins_done(plan: ReplayPlan, begun: float) -> int:
    return min(int((monotonic() - begun) / plan.bin_s), len(plan.trace.demand))


async def _show_bar(console: Console, plan: ReplayPlan, begun: float, describe: Callable[[], str]) -> None:
    columns = (
        TextColumn("bin"),
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=len(plan.trace.demand))
        while True:
            bar.update(task, completed=_bins_done(plan, begun), description=describe(), refresh=True)
            await asyncio.sleep(BAR_S)


async def _print_lines(console: Console, plan: ReplayPlan, begun: float, describe: Callable[[], str]) -> None:
    while True:
        await asyncio.sleep(LINE_S)
        done = f"bin {_bins_done(plan, begun)} of {len(plan.trace.demand)}"
        console.print(f"{monotonic() - begun:.0f} s, {done}: {describe()}", highlight=False, soft_wrap=True)
