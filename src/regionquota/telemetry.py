"""Logs, metrics and traces: structlog and OpenTelemetry, set up once by each daemon.

Nothing here may hurt the service: a collector that is down costs dropped spans and a line in the log, and tracing
that is off costs one look at a variable per call.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TextIO

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation
from opentelemetry.metrics import _Gauge as Gauge  # the API's synchronous gauge has no public name yet
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from regionquota.call_metrics import CallMetrics

LogFormat = Literal["auto", "console", "json"]

# Libraries that tell of every connection at info: only what goes wrong there is of interest.
NOISY: Final = ("aiohttp", "asyncio", "asyncpg", "etcd3aio", "grpc", "opentelemetry", "urllib3")

TRANSFER_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

EXPORT_TIMEOUT_S: Final = 5.0


# -- logs --


def configure_logging(log_format: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Route structlog and the standard library through one renderer, to standard error unless told otherwise.

    The last call wins.
    """
    stream = stream or sys.stderr
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    renderers: list[structlog.types.Processor] = (
        # The default would print every local variable, secrets too.
        [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(capture=True)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # One line for each malformed header would let any caller fill the log.
    logging.getLogger("opentelemetry.trace.propagation").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Loggers are made at import, before this call: a cached one would keep the old set-up.
        cache_logger_on_first_use=False,
    )


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
    return event


# -- metrics --


@dataclass(frozen=True, slots=True)
class Instruments:
    """Labels are few and bounded: operations, outcomes, resources; never tenants."""

    sweeper_lag_seconds: Gauge
    unknown_reservations: Gauge
    unknown_age_seconds: Gauge
    claims: Counter  # outcome
    transfer_seconds: Histogram
    frozen_regions: Gauge
    etcd_halted: Gauge
    rounds: Counter  # outcome
    usage_crossings: Counter  # resource, threshold
    alerts_sent: Counter  # outcome
    partitions_ahead_days: Gauge  # table
    homeless_rows: Gauge  # table
    reconcile_findings: Counter  # source, verdict
    reconcile_adjustments: Counter  # source
    reconcile_cases: Gauge

    @classmethod
    def create(cls, meter: Meter) -> Self:
        def seconds(name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                f"regionquota_{name}_seconds", "s", description, explicit_bucket_boundaries_advisory=buckets
            )

        return cls(
            sweeper_lag_seconds=meter.create_gauge(
                "regionquota_sweeper_lag_seconds", "s", "How long ago the oldest unswept reservation expired"
            ),
            unknown_reservations=meter.create_gauge(
                "regionquota_unknown_reservations", "", "Started work of unknown outcome; it keeps its capacity"
            ),
            unknown_age_seconds=meter.create_gauge(
                "regionquota_unknown_age_seconds", "s", "How long ago the oldest of them should have ended"
            ),
            claims=meter.create_counter("regionquota_claims", "", "Claims from the pool"),
            transfer_seconds=seconds("transfer", "Time from planning a move to its receipt", TRANSFER_BUCKETS),
            etcd_halted=meter.create_gauge(
                "regionquota_etcd_halted",
                "",
                "1 while nothing moves because etcd went backwards, or is being recovered",
            ),
            frozen_regions=meter.create_gauge("regionquota_frozen_regions", "", "Regions frozen now"),
            rounds=meter.create_counter("regionquota_rounds", "", "Planning rounds"),
            usage_crossings=meter.create_counter(
                "regionquota_usage_crossings", "", "Thresholds that the usage of a quota has crossed"
            ),
            alerts_sent=meter.create_counter("regionquota_alerts_sent", "", "Alerts posted to the webhook"),
            partitions_ahead_days=meter.create_gauge(
                "regionquota_partitions_ahead_days", "", "Days to come for which a table has partitions"
            ),
            homeless_rows=meter.create_gauge(
                "regionquota_default_partition_rows", "", "Rows that have no partition of their own, up to a bound"
            ),
            reconcile_findings=meter.create_counter(
                "regionquota_reconcile_findings", "", "Quotas that a source of truth did not agree with"
            ),
            reconcile_adjustments=meter.create_counter(
                "regionquota_reconcile_adjustments", "", "Balances put right by a source of truth"
            ),
            reconcile_cases=meter.create_gauge(
                "regionquota_reconcile_open_cases", "", "Differences that wait for a person's decision"
            ),
        )


@dataclass(frozen=True, slots=True)
class ResourceUnits:
    """Sums over all tenants of one resource; `pool` as this region last saw it, so take max, not sum, over regions."""

    resource: str
    slice: int
    used: int
    reserved: int
    pool: int


def observe_units(meter: Meter, region: str, read: Callable[[], Iterable[ResourceUnits]]) -> None:
    """Show slice, used, reserved and pool units. `read` runs at each scrape, on the scraping thread: no I/O in it."""

    def watch(name: str, description: str, pick: Callable[[ResourceUnits], int]) -> None:
        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            for units in read():
                yield Observation(pick(units), {"region": region, "resource": units.resource})

        meter.create_observable_gauge(f"regionquota_{name}_units", [observe], "", description)

    watch("slice", "Units this region may grant", lambda units: units.slice)
    watch("used", "Units in use", lambda units: units.used)
    watch("reserved", "Units promised to reservations", lambda units: units.reserved)
    watch("pool", "Units that no region owns, as this region last saw them", lambda units: units.pool)


def observe_synchronised(meter: Meter, region: str, read_age: Callable[[], float | None]) -> None:
    """Show the seconds since the agent last heard from etcd; `read_age` gives None before the first contact."""

    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        age = read_age()
        if age is not None:
            yield Observation(age, {"region": region})

    meter.create_observable_gauge(
        "regionquota_agent_synchronised_seconds", [observe], "s", "Time since the agent last heard from etcd"
    )


def observe_reconciled(meter: Meter, read_ages: Callable[[], Mapping[str, float]]) -> None:
    """Show, by source, the seconds since it was last compared to the end, by any server of the region."""

    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        for source, age in read_ages().items():
            yield Observation(age, {"source": source})

    meter.create_observable_gauge(
        "regionquota_reconcile_age_seconds", [observe], "s", "Time since a source of truth was last compared"
    )


def observe_led(meter: Meter, read: Callable[[], int]) -> None:
    """Show how many groups of buckets this coordinator leads."""

    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        yield Observation(read())

    meter.create_observable_gauge("regionquota_groups_led", [observe], "", "Groups of quotas this coordinator leads")


class Telemetry:
    """One process's metrics and where `/metrics` reads them; several may live side by side, as in tests."""

    def __init__(self, provider: MeterProvider, registry: CollectorRegistry) -> None:
        self._provider = provider
        self._registry = registry
        self.meter = provider.get_meter("regionquota")
        self.instruments = Instruments.create(self.meter)
        self.calls = CallMetrics(registry)

    def render_metrics(self) -> tuple[bytes, str]:
        """The body of `/metrics` and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def shutdown(self) -> None:
        self._provider.shutdown()


def configure_metrics(service_name: str) -> Telemetry:
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    provider = MeterProvider([reader], Resource.create({"service.name": service_name}), shutdown_on_exit=False)
    return Telemetry(provider, registry)


# -- traces --


class Tracing:
    """Spans, off until `start`. A process needs one: `tracing`."""

    _OFF: Final = nullcontext(trace.INVALID_SPAN)

    def __init__(self) -> None:
        self._provider: TracerProvider | None = None
        self._tracer: trace.Tracer | None = None
        self._propagator = TraceContextTextMapPropagator()

    def start(self, exporter: SpanExporter, service_name: str) -> None:
        """What to sample follows OTEL_TRACES_SAMPLER, as in every SDK; the default is every trace."""
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service_name}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("regionquota")

    def span(
        self, name: str, headers: Mapping[str, str] | None = None, kind: trace.SpanKind = trace.SpanKind.SERVER
    ) -> AbstractContextManager[trace.Span]:
        """A span around a block; a child of the caller's where W3C `headers` carry one, else of the current span."""
        if self._tracer is None:
            return self._OFF
        parent = None if headers is None else self._propagator.extract(headers)
        return self._tracer.start_as_current_span(name, parent, kind)

    def headers(self) -> dict[str, str]:
        """The W3C headers that make a call we send a child of the current span."""
        carrier: dict[str, str] = {}
        if self._tracer is not None:
            self._propagator.inject(carrier)
        return carrier

    def stop(self, timeout_s: float) -> None:
        """Send what is waiting, for at most `timeout_s`. Blocks: not for the event loop's thread."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is None:
            return
        # The SDK itself would wait up to 30 s for a collector that does not answer.
        flushing = threading.Thread(target=provider.shutdown, name="trace-flush", daemon=True)
        flushing.start()
        flushing.join(timeout_s)


tracing: Final = Tracing()
span: Final = tracing.span


def configure_tracing(endpoint: str | None, service_name: str) -> None:
    """Send spans to the collector at `endpoint` (OTLP over HTTP, without /v1/traces); None leaves tracing off."""
    if endpoint is not None:
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
        tracing.start(exporter, service_name)
