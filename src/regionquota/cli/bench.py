"""regionquota bench."""

from dataclasses import replace
from typing import Annotated

import typer

from regionquota.bench import Bench, Options, Result
from regionquota.cli.frame import JsonOption, command, err, out, print_json, print_table
from regionquota.config import Config
from regionquota.embedded import die_with_parent, scratch_directory
from regionquota.telemetry import configure_logging

_ROWS = (
    ("one hot counter, single calls", "hot", "pgbench_hot", "hot_ratio"),
    ("{tenants} tenants, single calls", "spread", "pgbench_spread", "spread_ratio"),
    ("{tenants} tenants, batches of 100", "batch", "pgbench_spread", "batch_ratio"),
)


@command
async def bench(
    seconds: Annotated[int, typer.Option(min=1, max=600, help="Of each measurement.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Of all measurements; ratios are medians.")] = 3,
    tenants: Annotated[int, typer.Option(min=1, max=1_000_000, help="For the loads that are spread.")] = 10_000,
    servers: Annotated[
        int, typer.Option(min=1, max=16, help="Region servers; calls of a tenant go to one of them.")
    ] = 2,
    connections: Annotated[int, typer.Option(min=1, max=1000, help="Connections that call the servers.")] = 256,
    open_holds: Annotated[int, typer.Option(min=0, max=10_000_000, help="To measure reserves beside.")] = 1_000_000,
    json: JsonOption = False,
) -> None:
    """Measure durable reserves over HTTP beside pgbench, on one Postgres, in one run. About four minutes.

    Starts what it needs, calls it over loopback only, and leaves nothing behind.
    """
    die_with_parent()
    configure_logging("auto", "warning")
    options = Options(
        seconds=seconds,
        rounds=rounds,
        tenants=tenants,
        servers=servers,
        connections=connections,
        open_holds=open_holds,
    )
    base = Config()
    base = replace(base, telemetry=replace(base.telemetry, log_level="warning"))
    with scratch_directory() as directory:
        result = await Bench(options, base, directory, lambda line: err.print(line, highlight=False)).run()
    if json:
        print_json(result.plain())
    else:
        _show(result)


def _show(result: Result) -> None:
    ratios = result.ratios()
    rows = [
        (
            text.format(tenants=f"{result.options.tenants:,}"),
            round(result.rate(ours)),
            round(result.rate(yardstick)),
            f"{ratios[ratio]:.2f}",
        )
        for text, ours, yardstick, ratio in _ROWS
    ]
    print_table(("durable reserves over HTTP", "per second", "pgbench", "ratio"), rows)
    commits = [(name, round(result.rate(name))) for name in ("hot_reserve_commit", "spread_reserve_commit")]
    print_table(("reserve and commit, two calls", "pairs per second"), commits)
    out.print(
        f"One sweeper ends {result.expirations_per_second:,.0f} holds a second.\n"
        f"Beside {result.options.open_holds:,} open holds a reserve takes {result.open_holds_ratio:.2f} times as long.",
        highlight=False,
    )
    columns = ("p50", "p90", "p99", "p99.9", "per_second")
    print_table(
        ("latency, ms", *columns),
        [(name, *(found[column] for column in columns)) for name, found in result.latencies_ms.items()],
    )
    settings = ", ".join(f"{name} = {value}" for name, value in result.settings.items())
    out.print(
        f"{result.options.servers} region servers, each tenant calls one of them; pgbench has "
        f"{result.options.pgbench_clients} clients and makes one transaction per reserve. Postgres: {settings}.\n"
        f"The load generator, the servers and Postgres share this machine; compare ratios, not figures.",
        highlight=False,
    )
