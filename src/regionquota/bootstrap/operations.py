"""What goes on in a region server on behalf of operators: who is suspended, and what became of unknown work."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from regionquota.adapters.executor import HttpExecutor
from regionquota.config import Config
from regionquota.errors import Unavailable
from regionquota.loops import forever, stop
from regionquota.ports import Clock, Directory, RegionStore, SuspensionStore
from regionquota.region.resolver import Resolver
from regionquota.region.service import RegionService
from regionquota.region.suspensions import Suspensions
from regionquota.telemetry import Telemetry


async def known_suspensions(directory: Directory, store: SuspensionStore) -> Suspensions:
    """As etcd says, or while it does not answer as the region's database remembers. Raises `StoreUnavailable`."""
    suspensions = Suspensions(directory, store)
    await suspensions.recall()
    with suppress(Unavailable):
        await suspensions.follow()
    return suspensions


@asynccontextmanager
async def operations(
    config: Config,
    telemetry: Telemetry,
    store: RegionStore,
    service: RegionService,
    suspensions: Suspensions,
    clock: Clock,
) -> AsyncIterator[None]:
    """Goes on until the block is left."""
    pace = config.agent.report_interval_s
    work: list[tuple[str, Callable[[], Awaitable[object]], float]] = [
        ("follow suspensions", suspensions.follow, pace),
        ("watch unknown work", _backlog_watcher(store, telemetry, clock), pace),
    ]
    async with AsyncExitStack() as entered:
        chosen = config.resolver
        if chosen.url is not None:
            executor = await entered.enter_async_context(HttpExecutor(chosen.url, timeout_s=chosen.timeout_s))
            resolver = Resolver(store, executor, service.commit, service.release, batch=chosen.batch)
            work.append(("resolve unknown work", resolver.resolve, chosen.interval_s))
        tasks = [asyncio.create_task(forever(*one)) for one in work]
        try:
            yield
        finally:
            await stop(tasks)


def _backlog_watcher(store: RegionStore, telemetry: Telemetry, clock: Clock) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        backlog = await store.unknown_backlog()
        telemetry.instruments.unknown_reservations.set(backlog.count)
        age = 0.0 if backlog.oldest is None else max(0.0, clock.now() - backlog.oldest)
        telemetry.instruments.unknown_age_seconds.set(age)

    return step
