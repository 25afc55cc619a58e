"""A daemon's frame: logs, traces, signals, the HTTP site, and an orderly end."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from regionquota.config import Config
from regionquota.errors import ConfigError
from regionquota.telemetry import Telemetry, configure_logging, configure_metrics, configure_tracing, tracing

_log = structlog.get_logger(__name__)
TRACE_FLUSH_S = 2.0


@asynccontextmanager
async def telemetry_of(config: Config) -> AsyncIterator[Telemetry]:
    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    configure_tracing(config.telemetry.otlp_endpoint, config.telemetry.service_name)
    telemetry = configure_metrics(config.telemetry.service_name)
    try:
        yield telemetry
    finally:
        telemetry.shutdown()
        await asyncio.to_thread(tracing.stop, TRACE_FLUSH_S)


def spare_collector() -> None:
    """To be called once everything runs. Python's collector of cycles would stop the loop for tens of milliseconds to
    look through what stays for good; calls and rounds leave hardly any cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 50, 100)  # the youngest are looked through in some 2 ms


def stop_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


async def first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


def instance_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


@asynccontextmanager
async def site(app: web.Application, host: str, port: int, grace_s: float) -> AsyncIterator[str]:
    """Serve `app`; yields its URL. At the end requests under way have `grace_s` seconds to finish."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace_s)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, reuse_address=True).start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        address = runner.addresses[0]
        url = f"http://{host}:{address[1]}"
        _log.info("listening", url=url)
        yield url
    finally:
        await runner.cleanup()
