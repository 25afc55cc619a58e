"""The region daemon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.postgres.cases import PostgresCaseStore
from regionquota.adapters.postgres.database import claim
from regionquota.adapters.postgres.demand_history import PostgresDemandHistory
from regionquota.adapters.postgres.slot import LockedSlot
from regionquota.adapters.postgres.standing import PostgresStandingStore
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.suspensions import PostgresSuspensionStore
from regionquota.adapters.postgres.transaction import Pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.connections import connect_etcd, connect_postgres, deadlines_of
from regionquota.bootstrap.history import watching_history
from regionquota.bootstrap.housekeeping import housekeeping
from regionquota.bootstrap.operations import known_suspensions, operations
from regionquota.bootstrap.reconciling import reconciler_of, reconciling
from regionquota.bootstrap.serving import first_of, instance_name, site, spare_collector, stop_signal, telemetry_of
from regionquota.config import Config, require_region
from regionquota.core.history import Bond
from regionquota.core.quota import QuotaKey
from regionquota.errors import StoreUnavailable, Unavailable
from regionquota.http.ledger_api import LedgerApi
from regionquota.http.quota_api import QuotaApi
from regionquota.http.reconcile_api import ReconcileApi
from regionquota.http.region_api import Bounds, RegionApi
from regionquota.http.routes import reconciliation_routes, routes
from regionquota.http.server import Probe, application
from regionquota.learning_ports import DemandHistory
from regionquota.ledger_ports import UsageLedger
from regionquota.loops import forever, stop
from regionquota.ports import Clock, RegionStore, Stored
from regionquota.reconciling_ports import CaseStore
from regionquota.region.agent import Agent, Pace
from regionquota.region.attendance import Attendance
from regionquota.region.budgets import Budgets
from regionquota.region.claims import Claims
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.group_commit import GroupCommit
from regionquota.region.history_watch import HistoryWatch
from regionquota.region.learning import MINUTE_S, Learning, nothing_foreseen
from regionquota.region.room import Room
from regionquota.region.service import RegionService
from regionquota.region.steps import Step
from regionquota.region.suspensions import Suspensions
from regionquota.region.sweeper import SweepOnDemand, sweep_all
from regionquota.region.trust import Trust
from regionquota.region.urgency import Urgency
from regionquota.telemetry import ResourceUnits, Telemetry, observe_synchronised, observe_units

_log = structlog.get_logger(__name__)
RESHARD_INTERVAL_S: Final = 1.0
TRUST_INTERVAL_S: Final = 0.5
"""How soon a Postgres that was restarted or replaced is noticed and compared with etcd."""


async def run_region(config: Config) -> None:
    """Serve until SIGTERM or SIGINT. Raises `ConfigError` or `StoreUnavailable` if it cannot begin."""
    require_region(config)
    stopping = stop_signal()
    async with telemetry_of(config) as telemetry:
        while not stopping.is_set():
            ended = asyncio.Event()
            async with region_server(config, telemetry, ended.set):
                spare_collector()
                await first_of(stopping, ended)
                why = "finishing what was accepted" if stopping.is_set() else "to begin anew in another history of etcd"
                _log.info(f"stopping: {why}", region=config.region.name)


@asynccontextmanager
async def region_server(
    config: Config, telemetry: Telemetry, on_ended: Callable[[], None] = lambda: None
) -> AsyncIterator[str]:
    """A region server in this event loop; yields its URL. `on_ended`: see `HistoryWatch`."""
    pool = await connect_postgres(config.postgres)
    bond = Bond()
    etcd = connect_etcd(config.etcd, bond)
    deadlines = deadlines_of(config.postgres)
    slot = LockedSlot(pool, deadlines)
    try:
        await claim(pool, config.region.name, deadlines)
        store = PostgresRegionStore(pool, config.region.name, deadlines, slot, bond)
        standings = PostgresStandingStore(pool, deadlines)
        watch = HistoryWatch(
            config.region.name, instance_name(), etcd.histories, standings, store, bond, SystemClock(), on_ended
        )
        suspensions = await known_suspensions(etcd.directory, PostgresSuspensionStore(pool, deadlines))
        ledger = PostgresUsageLedger(pool, deadlines)
        cases = PostgresCaseStore(pool, deadlines)
        history = PostgresDemandHistory(pool, deadlines)
        async with (
            housekeeping(config, telemetry, pool),
            watching_history(watch.step, telemetry, lambda: watch.trouble),
            _running(config, telemetry, store, etcd, suspensions, ledger, cases, history, watch) as url,
        ):
            yield url
    finally:
        await etcd.close()
        await slot.leave()
        await _close(pool)


async def _close(pool: Pool) -> None:
    try:
        async with asyncio.timeout(2.0):
            await pool.close()
    except TimeoutError:
        pool.terminate()


@asynccontextmanager
async def _running(
    config: Config,
    telemetry: Telemetry,
    store: RegionStore,
    etcd: EtcdClient,
    suspensions: Suspensions,
    ledger: UsageLedger,
    cases: CaseStore,
    history: DemandHistory,
    watch: HistoryWatch,
) -> AsyncIterator[str]:
    """Everything that works in a region, started in order and ended in reverse."""
    clock = SystemClock()
    me = config.region.name
    meter, room = DemandMeter(clock.now()), Room()
    learning = Learning(meter, history, clock) if config.agent.learn_demand else None

    def freed(key: QuotaKey, units: int) -> None:
        meter.freed(key, units)
        room.made(key)

    follower = Follower(
        me,
        etcd.allocations,
        store,
        clock,
        relist_interval_s=config.agent.relist_interval_s,
        on_step=_step_watcher(telemetry, meter, room, clock, me),
        on_backwards=etcd.seen.contradict,
    )
    attendance = Attendance(
        me,
        instance_name(),
        f"http://{config.region.host}:{config.region.port}",
        etcd.directory,
        store,
        follower,
        meter,
        clock,
        ttl_s=config.agent.liveness_ttl_s,
        foreseen=nothing_foreseen if learning is None else learning.foreseen,
    )
    urgency = Urgency(
        me,
        instance_name(),
        etcd.urgency,
        store,
        meter,
        clock,
        attendance.session,
        follower.owned,
        pause_s=config.agent.urgent_pause_s,
        lead_s=config.agent.urgent_lead_s,
    )
    claims = Claims(
        me,
        etcd.allocations,
        store,
        follower,
        clock,
        share=config.agent.claim_share,
        join_timeout_s=config.agent.join_timeout_s,
        allowed=attendance.may_claim,
        takes_part=attendance.takes_part,
        on_claim=lambda got: telemetry.instruments.claims.add(1, {"outcome": "served" if got else "empty"}),
        on_lack=urgency.run_short,
    )
    service_config = config.service
    commits = GroupCommit(
        store,
        clock,
        lanes=service_config.lanes,
        max_batch=service_config.max_batch,
        max_queue=service_config.max_queue,
        on_batch=telemetry.calls.committed,
    )
    service = RegionService(
        commits.put,
        store,
        etcd.allocations,
        etcd.directory,
        follower,
        claims,
        meter,
        clock,
        budgets=Budgets(me, follower.policy_of),
        overdue=SweepOnDemand(store, clock, config.sweeper.batch, freed),
        room=room,
        freed=freed,
        suspended=suspensions.why,
        low_water=config.agent.low_water,
    )
    bounds = Bounds(service_config.default_ttl_s, service_config.max_ttl_s, service_config.max_requests_per_batch)
    api = RegionApi(me, service, bounds)
    quotas = QuotaApi(me, service, follower, clock)
    trust = Trust(me, etcd.allocations, store, clock, watch.is_evicted)
    reconciler = reconciler_of(config, telemetry, store, cases, service, follower, clock)
    _show_units(telemetry, me, attendance, follower, clock)
    app = application(
        (
            *routes(api, quotas, LedgerApi(me, ledger, follower)),
            *reconciliation_routes(ReconcileApi(reconciler, cases)),
        ),
        telemetry,
        _readiness(store, follower, clock, watch),
        title=f"regionquota region {me}",
        max_body_bytes=service_config.max_body_bytes,
        on_stop=room.close,
    )
    pace = Pace(
        attend=config.agent.liveness_ttl_s / 3,
        report=config.agent.report_interval_s,
        settle=config.agent.settle_interval_s,
    )
    agent = Agent(follower, claims, attendance, pace, urgency)
    await _compare_at_once(trust)
    sweeping = asyncio.create_task(
        forever("sweep", _sweeper(store, clock, config.sweeper.batch, freed, telemetry), config.sweeper.interval_s)
    )
    trusting = asyncio.create_task(forever("compare Postgres with etcd", trust.step, TRUST_INTERVAL_S))
    sharding = asyncio.create_task(forever("rebalance shards", _resharder(store, service, clock), RESHARD_INTERVAL_S))
    beside = [sweeping, sharding, trusting]
    if learning is not None:
        beside.append(asyncio.create_task(forever("learn demand", learning.step, MINUTE_S)))
    commits.start()
    agent.start()
    try:
        async with (
            operations(config, telemetry, store, service, suspensions, clock),
            reconciling(config, telemetry, reconciler, cases, clock),
            site(app, config.region.host, config.region.port, service_config.shutdown_grace_s) as url,
        ):
            yield url
        await _finish(commits, service_config.shutdown_grace_s)
    finally:
        await commits.abandon()
        await agent.stop()
        await stop(beside)


async def _finish(commits: GroupCommit, grace_s: float) -> None:
    """A Postgres that hangs must not keep the process from ending, or from beginning anew."""
    try:
        async with asyncio.timeout(grace_s):
            await commits.stop()
    except TimeoutError:
        _log.warning("not all that was accepted could be finished", waited_s=grace_s)


async def _compare_at_once(trust: Trust) -> None:
    """Where etcd does not answer the loop goes on trying; a Postgres that is trusted already needs none."""
    try:
        await trust.step()
    except Unavailable as error:
        _log.warning("serving begins without admission", error=str(error))


def _sweeper(
    store: RegionStore, clock: Clock, batch: int, freed: Callable[[QuotaKey, int], None], telemetry: Telemetry
) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        ended, lag = await sweep_all(store, clock, batch, freed)
        telemetry.instruments.sweeper_lag_seconds.set(lag)
        if ended:
            _log.debug("holds expired", count=ended, oldest_late_s=round(lag, 3))

    return step


def _resharder(store: RegionStore, service: RegionService, clock: Clock) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        found = await store.rebalance_shards(clock.now())
        for holding in found.spread:
            service.watch_headroom(holding)
        for one in found.done:
            say = _log.debug if one.shards == one.before else _log.info
            say("a counter was laid out anew", quota=str(one.key), before=one.before, shards=one.shards)

    return step


def _readiness(store: RegionStore, follower: Follower, clock: Clock, watch: HistoryWatch) -> Probe:
    """Ready means that reserves can be served: Postgres answers, and is trusted. etcd may be away for any time."""

    async def ready() -> tuple[bool, dict[str, Any]]:
        heard = round(clock.now() - follower.heard_at, 1) if follower.heard_at else None
        found: dict[str, Any] = {"etcd_heard_s_ago": heard, "synchronised_revision": follower.synchronised}
        if watch.trouble is not None:
            found["nothing_moves"] = watch.trouble
        try:
            is_trusted = (await store.incarnation()).is_trusted
        except StoreUnavailable as error:
            return False, {**found, "postgres": str(error)}
        if not is_trusted:
            return False, {**found, "postgres": "was restarted or replaced, and not compared with etcd yet"}
        return True, {**found, "postgres": "answers"}

    return ready


def _step_watcher(
    telemetry: Telemetry, meter: DemandMeter, room: Room, clock: Clock, me: str
) -> Callable[[Stored, Step], None]:
    def watch(stored: Stored, step: Step) -> None:
        meter.touch(stored.key)
        room.made(stored.key)
        if not step.gave or stored.allocation is None:
            return
        for move in stored.allocation.moves_from(me):
            telemetry.instruments.transfer_seconds.record(max(0.0, clock.now() - move.requested_at))
        _log.info("headroom handed over", region=me, quota=str(stored.key), units=step.gave, revision=step.revision)

    return watch


def _show_units(telemetry: Telemetry, me: str, attendance: Attendance, follower: Follower, clock: Clock) -> None:
    def units() -> Iterable[ResourceUnits]:
        return [
            ResourceUnits(resource, *parts, *follower.pools.of(resource))
            for resource, parts in attendance.sums.totals.items()
        ]

    observe_units(telemetry.meter, me, units)
    observe_synchronised(telemetry.meter, me, lambda: clock.now() - follower.heard_at if follower.heard_at else None)
