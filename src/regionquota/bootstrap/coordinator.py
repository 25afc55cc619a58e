"""The coordinator daemon."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from regionquota.bootstrap.alerting import alerts_on
from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.connections import connect_etcd
from regionquota.bootstrap.history import watching_history
from regionquota.bootstrap.serving import first_of, instance_name, site, spare_collector, stop_signal, telemetry_of
from regionquota.config import Config
from regionquota.coordinator.carrying_out import Round
from regionquota.coordinator.coordinator import Coordinator, Tempo
from regionquota.coordinator.documents import Shelves
from regionquota.coordinator.history_watch import HistoryWatch
from regionquota.coordinator.urgent import Cries
from regionquota.core.groups import GROUPS, spans
from regionquota.core.history import Bond
from regionquota.core.rebalancing import Policy, with_pool
from regionquota.http.server import Probe, application
from regionquota.telemetry import Telemetry, observe_led

_log = structlog.get_logger(__name__)
MAX_BODY_BYTES = 65_536
WRITES_AT_ONCE = 32
"""Each waits for a round trip to etcd: one after the other, a round of thousands of changes would last minutes."""
RELIST_INTERVAL_S = 300.0
"""Between two full readings of etcd, a safety net under the watch."""
CRY_FRESH_S = 5.0
"""So long what a region cried is taken for newer than its last report."""


async def run_coordinator(config: Config) -> None:
    """Run until SIGTERM or SIGINT. etcd may be away at the start; the coordinator then waits."""
    stopping = stop_signal()
    running: list[Coordinator] = []
    async with telemetry_of(config) as telemetry:
        observe_led(telemetry.meter, lambda: sum(len(one.led.fences) for one in running))
        while not stopping.is_set():
            await _run_in_one_history(config, telemetry, stopping, running)


async def _run_in_one_history(
    config: Config, telemetry: Telemetry, stopping: asyncio.Event, running: list[Coordinator]
) -> None:
    """The coordinator is the only one in `running` from then on."""
    bond, ended = Bond(), asyncio.Event()
    async with (
        connect_etcd(config.etcd, bond) as etcd,
        alerts_on(etcd.marks, config.alerts, telemetry) as alerts,
    ):
        coordinator = Coordinator(
            instance_name(),
            etcd.allocations,
            etcd.directory,
            SystemClock(),
            policy_of(config),
            tempo_of(config),
            groups=GROUPS,
            writes_at_once=WRITES_AT_ONCE,
            on_round=_round_watcher(telemetry),
            alerts=alerts,
            documents=Shelves(etcd.allocations, relist_interval_s=RELIST_INTERVAL_S),
            cries=Cries(etcd.urgency, fresh_s=CRY_FRESH_S),
        )
        running[:] = [coordinator]
        watch = HistoryWatch(instance_name(), etcd.histories, bond, SystemClock(), ended.set)
        ready = _readiness(coordinator, watch, 3 * config.coordinator.leader_ttl_s)
        app = application((), telemetry, ready, title="regionquota coordinator", max_body_bytes=MAX_BODY_BYTES)
        try:
            async with (
                site(app, config.coordinator.host, config.coordinator.port, grace_s=1.0),
                watching_history(watch.step, telemetry, lambda: watch.trouble),
            ):
                coordinator.start()
                spare_collector()
                await first_of(stopping, ended)
                _log.info("stopping")
        finally:
            await coordinator.stop()


def tempo_of(config: Config) -> Tempo:
    section = config.coordinator
    return Tempo(section.interval_s, section.leader_ttl_s, section.freeze_after_s, section.urgent_pause_s)


def policy_of(config: Config) -> Policy:
    planner = config.planner
    policy = Policy(
        smallest_move_share=planner.smallest_move_share,
        idle_move_share=planner.idle_move_share,
        growth_rounds=planner.growth_rounds,
        variance=planner.variance,
    )
    return with_pool(policy, planner.pool_share, planner.smallest_pool_share, planner.largest_pool_share)


def _readiness(coordinator: Coordinator, watch: HistoryWatch, patience_s: float) -> Probe:
    """Ready means that etcd answers: a coordinator can do nothing without it."""

    async def ready() -> tuple[bool, dict[str, Any]]:
        heard = coordinator.heard_s_ago
        found: dict[str, Any] = {
            "leads_groups": spans(coordinator.led.fences),
            "etcd_heard_s_ago": None if heard is None else round(heard, 1),
        }
        if watch.trouble is not None:
            found["nothing_moves"] = watch.trouble
        return heard is not None and heard < patience_s, found

    return ready


def _round_watcher(telemetry: Telemetry) -> Callable[[Round, int], None]:
    instruments = telemetry.instruments

    def watch(done: Round, frozen: int) -> None:
        instruments.rounds.add(1, {"outcome": "changed" if done.granted or done.moves else "nothing to do"})
        instruments.frozen_regions.set(frozen)
        for key, why in done.failed:
            _log.error("a quota cannot be planned", quota=str(key), why=why)
        for key, move in done.moves:
            _log.info(
                "move requested", quota=str(key), source=move.source, target=move.target or "pool", units=move.amount
            )

    return watch
