"""The reconciler of a region daemon: one loop per source of truth."""

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from regionquota.adapters.truth.http_source import HttpTruthSource
from regionquota.adapters.truth.sql_source import SqlTruthSource
from regionquota.config import Config, TruthConfig
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reconciling import Verdict
from regionquota.loops import forever, stop
from regionquota.ports import Clock, RegionStore
from regionquota.reconciling_ports import CaseStore, TruthSource
from regionquota.region.budgets import Budgets
from regionquota.region.counts import Done, Report, Source, State
from regionquota.region.follower import Follower
from regionquota.region.reconciler import Reconciler
from regionquota.region.service import RegionService
from regionquota.telemetry import Telemetry, observe_reconciled

_log = structlog.get_logger(__name__)


def reconciler_of(
    config: Config,
    telemetry: Telemetry,
    store: RegionStore,
    cases: CaseStore,
    service: RegionService,
    follower: Follower,
    clock: Clock,
) -> Reconciler:
    def kind_of(key: QuotaKey) -> Kind | None:
        stored = follower.known(key)
        return None if stored is None or stored.allocation is None else stored.allocation.kind

    chosen = config.reconcile
    return Reconciler(
        [_source(name, source, chosen.timeout_s) for name, source in chosen.sources.items()],
        store,
        cases,
        service.adjust,
        clock,
        above=Budgets(config.region.name, follower.policy_of).above,
        kind_of=kind_of,
        new_id=lambda: str(uuid.uuid4()),
        holder=f"{socket.gethostname()}-{os.getpid()}",
        settle_s=chosen.settle_s,
        after_close_s=chosen.after_close_s,
        on_report=_shower(telemetry),
    )


def _source(name: str, source: TruthConfig, timeout_s: float) -> Source:
    truth: TruthSource
    if source.kind == "http":
        assert source.url is not None
        truth = HttpTruthSource(source.url, deadline_s=timeout_s)
    else:
        assert source.dsn is not None
        assert source.query is not None
        truth = SqlTruthSource(name, source.dsn, source.query, deadline_s=timeout_s, secret=source.secret)
    return Source(name, truth, source.resources, Kind(source.counts), source.apply, source.floor)


@asynccontextmanager
async def reconciling(
    config: Config, telemetry: Telemetry, reconciler: Reconciler, cases: CaseStore, clock: Clock
) -> AsyncIterator[None]:
    """Goes on until the block is left."""
    compared: dict[str, float] = {}
    observe_reconciled(telemetry.meter, lambda: {source: clock.now() - at for source, at in compared.items()})

    async def look() -> None:
        compared.update(await cases.successes())
        telemetry.instruments.reconcile_cases.set(await cases.open_count())

    tasks = [
        asyncio.create_task(forever(f"reconcile {name}", _stepper(reconciler, name, look, clock), source.interval_s))
        for name, source in config.reconcile.sources.items()
    ]
    try:
        yield
    finally:
        await stop(tasks)


def _stepper(
    reconciler: Reconciler, name: str, look: Callable[[], Awaitable[None]], clock: Clock
) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        report = await reconciler.run(name)
        if report.state is State.WAITING and report.compare_at is not None:
            await asyncio.sleep(max(0.0, report.compare_at - clock.now()))
            await reconciler.run(name)
        await look()

    return step


def _shower(telemetry: Telemetry) -> Callable[[Report], None]:
    instruments = telemetry.instruments

    def show(report: Report) -> None:
        for finding in report.findings:
            judgement = finding.judgement
            instruments.reconcile_findings.add(1, {"source": report.source, "verdict": judgement.verdict.value})
            if finding.done is Done.ADJUSTED:
                instruments.reconcile_adjustments.add(1, {"source": report.source})
            if judgement.verdict is Verdict.UNSETTLED:
                continue  # nothing is known to be wrong
            _log.info(
                "a source of truth does not agree",
                source=report.source,
                quota=str(finding.key),
                truth=finding.truth,
                counted=judgement.counted,
                verdict=judgement.verdict.value,
                done=finding.done.value,
                dry_run=report.dry_run,
            )

    return show
