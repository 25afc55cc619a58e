import io
import json
import logging
import re
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from regionquota import telemetry
from regionquota.telemetry import (
    ResourceUnits,
    Tracing,
    configure_logging,
    configure_metrics,
    configure_tracing,
    observe_led,
    observe_synchronised,
    observe_units,
)

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where log lines go; logging is put back as it was afterwards."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    levels = {name: logging.getLogger(name).level for name in telemetry.NOISY}
    # pytest's own handlers would be closed by a new configuration.
    root.handlers[:] = []
    yield io.StringIO()
    root.handlers[:], root.level = before
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    tracing = Tracing()
    yield tracing
    tracing.stop(timeout_s=1)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# -- logs --


def test_json_lines_carry_event_level_logger_and_a_utc_time(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    structlog.get_logger("regionquota.agent").info("joined", region="eu")
    (line,) = lines(stream)
    when = datetime.fromisoformat(str(line.pop("timestamp")))
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=1)
    assert {"event": "joined", "level": "info", "logger": "regionquota.agent", "region": "eu"} == line


def test_lines_of_libraries_go_through_the_same_renderer(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    logging.getLogger("grpc._channel").warning("connection to %s lost", "etcd")
    logging.getLogger("aiohttp.access").info("GET /healthz")
    assert [("connection to etcd lost", "warning")] == [(line["event"], line["level"]) for line in lines(stream)]


def test_python_warnings_become_lines(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = lines(stream)
    assert ("py.warnings", "warning") == (line["logger"], line["level"])


def test_auto_writes_json_where_there_is_no_terminal(stream: io.StringIO) -> None:
    configure_logging("auto", "info", stream)
    structlog.get_logger().info("here")
    assert "here" == lines(stream)[0]["event"]


def test_auto_writes_for_people_on_a_terminal(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "isatty", lambda: True)
    configure_logging("auto", "info", stream)
    structlog.get_logger().info("here")
    assert not stream.getvalue().startswith("{")
    assert "here" in stream.getvalue()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_an_exception_is_logged_with_its_traceback_but_without_local_variables(
    stream: io.StringIO, log_format: telemetry.LogFormat
) -> None:
    configure_logging(log_format, "info", stream)
    password = "hu" + "sh"
    try:
        int(password[:1])
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "Traceback" in stream.getvalue()
    assert "hush" not in stream.getvalue()


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    configure_logging("json", "warning", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("any").info("quiet")
    assert "" == stream.getvalue()


def test_a_line_inside_a_span_names_its_trace(stream: io.StringIO, tracing: Tracing) -> None:
    configure_logging("json", "info", stream)
    tracing.start(InMemorySpanExporter(), "test")
    with tracing.span("reserve", {"traceparent": TRACEPARENT}):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")
    assert [TRACE_ID, None] == [line.get("trace_id") for line in lines(stream)]


# -- metrics --


def scrape(metrics: telemetry.Telemetry) -> dict[str, float]:
    body, content_type = metrics.render_metrics()
    assert content_type.startswith("text/plain")
    samples = (line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_instruments_appear_under_the_names_the_dashboards_use() -> None:
    metrics = configure_metrics("test")
    instruments = metrics.instruments
    metrics.calls.answered("reserve", "granted", 0.0004)
    metrics.calls.answered("reserve", "granted", 0.0006)
    metrics.calls.committed(7)
    instruments.sweeper_lag_seconds.set(0.5)
    instruments.unknown_reservations.set(3)
    instruments.unknown_age_seconds.set(90.5)
    instruments.claims.add(1, {"outcome": "granted"})
    instruments.transfer_seconds.record(0.2)
    instruments.frozen_regions.set(1)
    instruments.rounds.add(1, {"outcome": "planned"})
    shown = {
        'regionquota_calls_total{operation="reserve",outcome="granted"}': 2,
        'regionquota_call_seconds_bucket{le="0.0005",operation="reserve"}': 1,
        'regionquota_call_seconds_bucket{le="5.0",operation="reserve"}': 2,
        'regionquota_batch_size_bucket{le="5.0"}': 0,
        'regionquota_batch_size_bucket{le="10.0"}': 1,
        "regionquota_sweeper_lag_seconds": 0.5,
        "regionquota_unknown_reservations": 3,
        "regionquota_unknown_age_seconds": 90.5,
        'regionquota_claims_total{outcome="granted"}': 1,
        'regionquota_transfer_seconds_bucket{le="0.25"}': 1,
        "regionquota_frozen_regions": 1,
        'regionquota_rounds_total{outcome="planned"}': 1,
    }
    assert shown == {name: value for name, value in scrape(metrics).items() if name in shown}
    metrics.shutdown()


def test_units_are_read_anew_at_each_scrape_and_vanish_with_their_resource() -> None:
    metrics = configure_metrics("test")
    units = [ResourceUnits("vcpu", slice=300, used=120, reserved=30, pool=40), ResourceUnits("gpu", 3, 0, 1, 0)]
    observe_units(metrics.meter, "eu", lambda: units)
    before = scrape(metrics)
    for name, value in {"slice": 300, "used": 120, "reserved": 30, "pool": 40}.items():
        assert value == before[f'regionquota_{name}_units{{region="eu",resource="vcpu"}}']
    assert 3 == before['regionquota_slice_units{region="eu",resource="gpu"}']
    del units[1]
    assert not [name for name in scrape(metrics) if "gpu" in name]


def test_the_age_of_the_last_contact_is_shown_once_there_was_one() -> None:
    metrics = configure_metrics("test")
    age: list[float | None] = [None]
    observe_synchronised(metrics.meter, "eu", lambda: age[0])
    name = 'regionquota_agent_synchronised_seconds{region="eu"}'
    assert name not in scrape(metrics)
    age[0] = 1.5
    assert 1.5 == scrape(metrics)[name]


def test_the_groups_that_are_led_are_read_anew_at_each_scrape() -> None:
    metrics = configure_metrics("test")
    led = [5]
    observe_led(metrics.meter, lambda: led[0])
    assert 5 == scrape(metrics)["regionquota_groups_led"]
    led[0] = 0
    assert 0 == scrape(metrics)["regionquota_groups_led"]


def test_two_services_in_one_process_count_apart() -> None:
    eu, us = configure_metrics("eu"), configure_metrics("us")
    eu.instruments.frozen_regions.set(2)
    assert "regionquota_frozen_regions" not in scrape(us)


# -- traces --


def test_a_span_continues_the_callers_trace_and_hands_it_on(tracing: Tracing) -> None:
    exporter = InMemorySpanExporter()
    tracing.start(exporter, "test")
    with tracing.span("reserve", {"traceparent": TRACEPARENT}):
        sent = tracing.headers()
    tracing.stop(timeout_s=1)
    (finished,) = exporter.get_finished_spans()
    assert "reserve" == finished.name
    assert re.fullmatch(f"00-{TRACE_ID}-[0-9a-f]{{16}}-01", sent["traceparent"])


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10_000])
def test_a_malformed_header_starts_a_new_trace(tracing: Tracing, header: str) -> None:
    tracing.start(InMemorySpanExporter(), "test")
    with tracing.span("reserve", {"traceparent": header}) as span:
        assert span.get_span_context().is_valid


def test_tracing_that_is_off_makes_no_spans_and_no_headers() -> None:
    configure_tracing(None, "test")
    with telemetry.span("reserve", {"traceparent": TRACEPARENT}) as span, telemetry.span("inner"):
        assert trace.INVALID_SPAN is span
        assert {} == telemetry.tracing.headers()


def test_a_collector_that_is_down_does_not_delay_the_end(stream: io.StringIO) -> None:
    configure_logging("json", "info", stream)
    configure_tracing("http://127.0.0.1:9", "test")
    with telemetry.span("reserve"):
        pass
    began = time.monotonic()
    telemetry.tracing.stop(timeout_s=0.2)
    assert time.monotonic() - began < 1


def test_a_collector_that_hangs_does_not_delay_spans_or_the_end(tracing: Tracing) -> None:
    release = threading.Event()

    class Hanging(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            release.wait(5)
            return SpanExportResult.SUCCESS

    tracing.start(Hanging(), "test")
    began = time.monotonic()
    for _ in range(3000):  # more than the queue holds
        with tracing.span("reserve"):
            pass
    tracing.stop(timeout_s=0.1)
    assert time.monotonic() - began < 2
    release.set()
