"""Alerts on usage, as the configuration wants them: a line of the log, a metric, and a webhook if there is one."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from regionquota.adapters.webhook import Webhook
from regionquota.alert_ports import MarkStore
from regionquota.config import AlertsConfig
from regionquota.coordinator.alerts import Alerts, Crossing
from regionquota.core.periods import period_end
from regionquota.http.decoding import write_time
from regionquota.telemetry import Telemetry

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def alerts_on(marks: MarkStore, config: AlertsConfig, telemetry: Telemetry) -> AsyncIterator[Alerts | None]:
    """None where no threshold is configured."""
    if not config.thresholds:
        yield None
    elif config.webhook_url is None:
        yield Alerts(marks, config.thresholds, _teller(telemetry, None))
    else:
        sent = telemetry.instruments.alerts_sent
        async with Webhook(
            config.webhook_url, timeout_s=config.timeout_s, done=lambda outcome: sent.add(1, {"outcome": outcome})
        ) as webhook:
            yield Alerts(marks, config.thresholds, _teller(telemetry, webhook))


def _teller(telemetry: Telemetry, webhook: Webhook | None) -> Callable[[Crossing], None]:
    def tell(crossing: Crossing) -> None:
        event = event_of(crossing)
        _log.warning("usage crossed a threshold", **event)
        labels = {"resource": crossing.key.resource, "threshold": str(crossing.mark.threshold)}
        telemetry.instruments.usage_crossings.add(1, labels)
        if webhook is not None:
            webhook.send(event["alert_id"], {"event": "usage_crossed", **event})

    return tell


def event_of(crossing: Crossing) -> dict[str, Any]:
    """`alert_id` is that of the crossing, however often it arrives."""
    key, mark, allocation = crossing.key, crossing.mark, crossing.allocation
    name = f"{key.tenant}\n{key.resource}\n{key.scope}\n{mark.epoch}\n{mark.threshold}\n{mark.at}"
    end = period_end(allocation.kind, mark.epoch, allocation.policy.calendar)
    return {
        "alert_id": hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
        "tenant_id": key.tenant,
        "resource": key.resource,
        "scope": key.scope,
        "threshold_percent": mark.threshold,
        "used": crossing.used,
        "limit": allocation.limit,
        "period_end": None if end is None else write_time(end.timestamp()),
        "at": write_time(mark.at),
    }
