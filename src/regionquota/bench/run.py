"""One run: a server of each kind, the yardstick and the product in turns, and what came out."""

import asyncio
import itertools
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec

from regionquota.bench.backlog import hold, sweep_rate
from regionquota.bench.caller import Caller
from regionquota.bench.load import Measured, Unit, at_rate, expect, saturate
from regionquota.bench.pgbench import pgbench, pgbench_at_rate
from regionquota.bench.tenants import HOT, create_counters, prepare_wal
from regionquota.config import Config
from regionquota.dev import Options as DevOptions
from regionquota.dev import Stack

SETTINGS: Final = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
)
POSTGRES: Final = {"shared_buffers": "512MB"}
"""Beside what the embedded one is given anyway: room for a million holds and their indexes."""
HEAT_S: Final = 2.5
SETTLE_S: Final = 12.0
BATCH: Final = 100
_RESERVE: Final = b"/v1/reservations"
_BATCH: Final = b"/v1/reservations/batch"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` of each measurement, `rounds` of all of them; ratios are medians over the rounds."""

    seconds: int = 4
    rounds: int = 3
    tenants: int = 10_000
    servers: int = 2
    connections: int = 256
    batch_connections: int = 8
    open_holds: int = 1_000_000
    pgbench_clients: int = 16
    seed: int = 1


@dataclass(slots=True)
class Result:
    """`rates` are reserves per second, per round; `latencies_ms` percentiles by load."""

    options: Options
    settings: Mapping[str, str] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    latencies_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    expirations_per_second: float = 0.0
    open_holds_ratio: float = 0.0
    """How much longer a reserve takes beside a million open holds."""

    def ratio(self, ours: str, yardstick: str) -> float:
        pairs = zip(self.rates[ours], self.rates[yardstick], strict=True)
        return statistics.median(one / other for one, other in pairs)

    def rate(self, name: str) -> float:
        return statistics.median(self.rates[name])

    def ratios(self) -> dict[str, float]:
        return {
            "hot_ratio": self.ratio("hot", "pgbench_hot"),
            "spread_ratio": self.ratio("spread", "pgbench_spread"),
            "batch_ratio": self.ratio("batch", "pgbench_spread"),
        }

    def plain(self) -> dict[str, Any]:
        rounded = {name: round(ratio, 2) for name, ratio in self.ratios().items()}
        return {
            **rounded,
            "p99_ms_half_load": round(self.latencies_ms["half_load"]["p99"], 2),
            "pgbench_p99_ms_half_load": round(self.latencies_ms["pgbench_half_load"]["p99"], 2),
            "expirations_per_second": round(self.expirations_per_second),
            "open_holds_ratio": round(self.open_holds_ratio, 2),
            "per_second": {name: round(self.rate(name)) for name in self.rates},
            "latency_ms": self.latencies_ms,
            "settings": dict(self.settings),
            "seconds": self.options.seconds,
            "rounds": self.options.rounds,
            "tenants": self.options.tenants,
            "servers": self.options.servers,
            "connections": self.options.connections,
            "pgbench_clients": self.options.pgbench_clients,
        }


class Bench:
    """`say` hears what is under way."""

    def __init__(self, options: Options, base: Config, scratch: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._base = base
        self._scratch = scratch
        self._say = say
        self._names = itertools.count()
        self._result = Result(options)
        self._run = f"{os.getpid()}-{time.time_ns():x}"

    async def run(self) -> Result:
        """Raises `RegionQuotaError` if a server does not start or answers anything but what was asked for."""
        options = self._options
        stack = Stack(
            DevOptions(self._scratch / "data", ("here",), self._base, servers=options.servers, settings=POSTGRES)
        )
        async with stack.running(self._say):
            dsn = stack.dsns["here"]
            self._result.settings = await _settings(dsn)
            self._say(f"making {options.tenants:,} tenants")
            await prepare_wal(dsn)
            await create_counters(dsn, "here", options.tenants)
            async with _connections(stack.servers["here"], options.connections) as callers:
                for number in range(1, options.rounds + 1):
                    self._say(f"round {number} of {options.rounds}")
                    await self._measure(dsn, callers)
                self._say("latency at half of saturation")
                await self._latencies(dsn, callers)
                await self._beside_open_holds(dsn, callers)
            self._say("one sweeper")
            batch = self._base.sweeper.batch
            self._result.expirations_per_second = await sweep_rate(dsn, options.tenants, batch)
        return self._result

    async def _measure(self, dsn: str, callers: Sequence[Caller]) -> None:
        options = self._options
        few = callers[: options.batch_connections]
        await self._yardstick("pgbench_hot", dsn, 1)
        await self._heat(callers)
        await self._saturated("hot", callers, self._reserve(1))
        await self._yardstick("pgbench_spread", dsn, options.tenants)
        await self._saturated("spread", callers, self._reserve(options.tenants))
        await self._saturated("batch", few, self._reserve_batch(options.tenants))
        await self._heat(callers)
        await self._saturated("hot_reserve_commit", callers, self._reserve_and_commit(1))
        await self._saturated("spread_reserve_commit", callers, self._reserve_and_commit(options.tenants))

    async def _heat(self, callers: Sequence[Caller]) -> None:
        """Until the servers have found that one row is not enough for the hot counter."""
        await saturate(callers, self._reserve(1), HEAT_S)

    async def _yardstick(self, name: str, dsn: str, tenants: int) -> None:
        options = self._options
        rate = await pgbench(
            dsn, self._scratch, tenants=tenants, clients=options.pgbench_clients, seconds=options.seconds
        )
        self._note(name, rate)

    async def _saturated(self, name: str, callers: Sequence[Caller], unit: Unit) -> None:
        measured = await saturate(callers, unit, self._options.seconds)
        self._note(name, measured.per_second)
        self._result.latencies_ms[f"{name}_saturated"] = _percentiles(measured)

    async def _latencies(self, dsn: str, callers: Sequence[Caller]) -> None:
        """The published figure is that of many tenants; a hot counter's stands beside it, and what this machine does
        with pgbench alone, at half of pgbench's own saturation.
        """
        options = self._options
        seconds = 2 * options.seconds
        control = await pgbench_at_rate(
            dsn,
            self._scratch,
            tenants=options.tenants,
            clients=options.pgbench_clients,
            seconds=seconds,
            per_second=self._result.rate("pgbench_spread") / 2,
        )
        self._result.latencies_ms["pgbench_half_load"] = _percentiles(control)
        for name, load, tenants in (("hot_half_load", "hot", 1), ("half_load", "spread", self._options.tenants)):
            rate = self._result.rate(load) / 2
            if tenants == 1:
                await self._heat(callers)
            measured = await at_rate(callers, self._reserve(tenants), rate, seconds, self._options.seed)
            self._result.latencies_ms[name] = _percentiles(measured)

    async def _beside_open_holds(self, dsn: str, callers: Sequence[Caller]) -> None:
        options = self._options
        unit = self._reserve(options.tenants)
        before = await saturate(callers, unit, options.seconds)
        self._say(f"making {options.open_holds:,} open holds")
        await hold(dsn, options.open_holds, options.tenants, timedelta(days=1))
        # A million rows made in a moment occupy disk and memory for a while; and every remembered counter has changed.
        self._say("letting Postgres come to rest")
        await saturate(callers, unit, SETTLE_S)
        beside = await saturate(callers, unit, options.seconds)
        self._result.open_holds_ratio = before.per_second / beside.per_second

    def _note(self, name: str, rate: float) -> None:
        self._result.rates.setdefault(name, []).append(rate)
        self._say(f"  {name}: {rate:,.0f}/s")

    def _body(self, tenants: int, caller: Caller) -> bytes:
        """Of a tenant that belongs to the caller's server: it remembers the counters of those whom it serves."""
        number = next(self._names)
        tenant = HOT if tenants == 1 else f"tenant-{self._tenant(number, tenants, caller.server)}"
        request = f"{self._run}-{number}"
        return (
            f'{{"request_id":"{request}","tenant_id":"{tenant}","resource":"unit","amount":1,"ttl_s":86400}}'
        ).encode()

    def _tenant(self, number: int, tenants: int, server: int) -> int:
        """One of 1 .. `tenants`, all that belong to `server` in turns."""
        servers = self._options.servers
        mine = (tenants - server + servers - 1) // servers
        return server + 1 + servers * (number % mine)

    def _reserve(self, tenants: int) -> Unit:
        async def unit(caller: Caller) -> int:
            status, body = await caller.post(_RESERVE, self._body(tenants, caller))
            expect(status, 201, body)
            return 1

        return unit

    def _reserve_batch(self, tenants: int) -> Unit:
        async def unit(caller: Caller) -> int:
            wanted = b",".join(self._body(tenants, caller) for _ in range(BATCH))
            status, body = await caller.post(_BATCH, b'{"reservations":[' + wanted + b"]}")
            expect(status, 207, body)
            granted = body.count(b'"status":201')
            expect(granted, BATCH, body)
            return granted

        return unit

    def _reserve_and_commit(self, tenants: int) -> Unit:
        async def unit(caller: Caller) -> int:
            status, body = await caller.post(_RESERVE, self._body(tenants, caller))
            expect(status, 201, body)
            name = msgspec.json.decode(body)["reservation_id"]
            status, body = await caller.post(f"/v1/reservations/{name}/commit".encode(), b"{}")
            expect(status, 200, body)
            return 1

        return unit


def _percentiles(measured: Measured) -> dict[str, float]:
    return {f"p{percent:g}": round(measured.percentile_ms(percent), 3) for percent in (50, 90, 99, 99.9)} | {
        "per_second": round(measured.per_second)
    }


async def _settings(dsn: str) -> Mapping[str, str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {name: await connection.fetchval("SELECT current_setting($1)", name) for name in SETTINGS}
    finally:
        await connection.close()


@asynccontextmanager
async def _connections(urls: Sequence[str], count: int) -> AsyncIterator[Sequence[Caller]]:
    """`count` connections, to each of the servers in turns."""
    servers = [url.removeprefix("http://") for url in urls]
    places = [number % len(servers) for number in range(count)]
    callers = await asyncio.gather(*(Caller.connect(servers[place], place) for place in places))
    try:
        yield callers
    finally:
        for caller in callers:
            caller.close()
