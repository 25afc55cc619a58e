"""regionquota dev: the whole deployment on this machine."""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from regionquota.bootstrap.serving import stop_signal
from regionquota.cli.frame import command, interrupt_at_sigterm, out, print_json, print_table
from regionquota.config import FILE_VARIABLE, AgentConfig, Config, CoordinatorConfig, DeployedRegion, load
from regionquota.dev import Layout, Options, Stack, default_data_dir
from regionquota.dev.layout import DEFAULT_REGIONS, MAX_RTT_MS
from regionquota.embedded import die_with_parent
from regionquota.errors import ConfigError, RegionQuotaError
from regionquota.telemetry import configure_logging

# A deployment to look at and to break: it should answer within seconds, not within a round of 10 s.
QUICK: Final = replace(
    Config(),
    agent=AgentConfig(liveness_ttl_s=3, report_interval_s=0.5, settle_interval_s=0.2, relist_interval_s=15.0),
    coordinator=CoordinatorConfig(interval_s=1.0, leader_ttl_s=3),
)

EXAMPLES: Final = (
    "Examples: regionquota dev --regions eu,us --data-dir /var/tmp/quota · regionquota dev --etcd-rtt-ms 100"
)

RegionsOption = Annotated[str, typer.Option("--regions", help="Names of the regions, separated by commas.")]
EtcdRttOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_RTT_MS,
        help="Milliseconds that a round trip to etcd takes longer, from each region and the coordinator: as if they "
        "were far apart.",
    ),
]


@command
async def dev(
    regions: RegionsOption = DEFAULT_REGIONS,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data, ports and logs are kept over restarts. Default: .regionquota here.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Settings for the daemons. An etcd (etcd.endpoints) or a region's Postgres (deployment.regions) "
            "named there is used instead of an embedded one.",
        ),
    ] = None,
    etcd: Annotated[str | None, typer.Option(help="Use this etcd: host:port, several separated by commas.")] = None,
    interval: Annotated[
        float | None, typer.Option(min=0.05, max=3600, help="Seconds between planning rounds. Default: 1.")
    ] = None,
    etcd_rtt_ms: EtcdRttOption = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
) -> None:
    """Start Postgres and etcd, a region server per region and a coordinator, here, until Ctrl-C.

    Exit status 130 if that comes before all is up.
    """
    die_with_parent()
    base, named, endpoints = settings_of(config, etcd, interval)
    options = Options(
        data_dir or default_data_dir(),
        tuple(regions.split(",")),
        base,
        postgres=named,
        etcd=endpoints,
        etcd_rtt_ms=etcd_rtt_ms,
    )
    interrupt_at_sigterm()
    async with deployment(options, _say(json=json)) as stack:
        stopping = stop_signal()  # until here, Ctrl-C ends the start
        if json:
            print_json({"addresses": stack.addresses(), "config": str(stack.deployment_file)})
        else:
            print_table(("what", "where"), stack.addresses().items())
            out.print(f"data and logs: {stack.deployment_file.parent}", highlight=False, soft_wrap=True)
            out.print("Ctrl-C ends it; try, in another terminal:", highlight=False)
            for line in commands_to_try(stack.deployment_file):
                out.print(f"  {line}", highlight=False, soft_wrap=True)
        await _until(stopping, stack)
    if not json:
        out.print("stopped, nothing is left running")


def commands_to_try(deployment_file: Path) -> Sequence[str]:
    """Wherever they are pasted."""
    config = f"--config {shlex.quote(str(deployment_file))}"
    return [
        f"regionquota quota set acme vcpu 500 {config}",
        f"regionquota region list {config}",
        f"regionquota replay {config}",
    ]


@asynccontextmanager
async def deployment(options: Options, say: Callable[[str], None]) -> AsyncIterator[Stack]:
    """A running stack, alone on its data directory."""
    configure_logging("auto", "warning")
    stack = Stack(options)
    with Layout(options.data_dir).alone():
        async with stack.running(say):
            yield stack


def _say(*, json: bool) -> Callable[[str], None]:
    return (lambda _: None) if json else (lambda text: out.print(f"{text} …", highlight=False))


async def _until(stopping: asyncio.Event, stack: Stack) -> None:
    """Raises `RegionQuotaError` if something could not be kept running."""
    stop = asyncio.create_task(stopping.wait())
    failed = asyncio.ensure_future(stack.failed)
    await asyncio.wait((stop, failed), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if failed.done():
        raise RegionQuotaError(failed.result())
    failed.cancel()


def settings_of(
    file: Path | None, etcd: str | None, interval: float | None
) -> tuple[Config, dict[str, DeployedRegion], Sequence[str]]:
    """The daemons' settings; without a file those that answer quickly. Then what was named instead of embedded ones."""
    # $REGIONQUOTA_CONFIG names the deployment that commands ask: whoever tries something out here is not to join it.
    given = load(file, {name: value for name, value in os.environ.items() if name != FILE_VARIABLE})
    base = given if file is not None else replace(given, agent=QUICK.agent, coordinator=QUICK.coordinator)
    if interval is not None:
        base = replace(base, coordinator=replace(base.coordinator, interval_s=interval))
    named = {name: region for name, region in given.deployment.regions.items() if region.dsn is not None}
    if etcd is not None:
        endpoints: Sequence[str] = tuple(part.strip() for part in etcd.split(","))
    else:
        endpoints = () if given.etcd.endpoints == Config().etcd.endpoints else given.etcd.endpoints
    for endpoint in endpoints:
        if not endpoint.rpartition(":")[2].isdigit():
            raise ConfigError(f"--etcd takes host:port, got {endpoint!r}")
    return base, named, endpoints
