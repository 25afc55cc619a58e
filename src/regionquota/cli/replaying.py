"""regionquota replay, regionquota demo."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import aiohttp
import typer
from rich.console import Console

from regionquota.bootstrap.operator import operator
from regionquota.cli.dev import QUICK, RegionsOption, deployment
from regionquota.cli.frame import (
    ConfigOption,
    JsonOption,
    command,
    configuration,
    out,
    print_json,
    print_table,
)
from regionquota.config import Config, load, require_deployment
from regionquota.dev import Options
from regionquota.dev.layout import DEFAULT_REGIONS, check_regions
from regionquota.embedded import die_with_parent, scratch_directory
from regionquota.errors import InvalidRequest, RegionQuotaError, Unavailable
from regionquota.exit_status import INTERRUPTED
from regionquota.replay import (
    Faults,
    ReplayPlan,
    Report,
    Sights,
    Targets,
    Trace,
    follow_the_sun,
    parse_partition,
    parse_window,
    read_trace,
    replay,
)

SHORTEST_BIN_S: Final = 0.5
COMFORTABLE_RATE: Final = 400
"""Units a second that two cores serve with everything on them, this client included."""
DEMO_BINS: Final = 96
MEAN_UNITS: Final = 40.0
"""Units per bin and region of a generated day."""

BinsOption = Annotated[int | None, typer.Option("--bins", min=1, max=100_000, help="How many bins to replay.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed makes the same demand.")]
BinSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--bin-seconds",
        min=0.05,
        max=3600,
        help=f"How long a bin lasts here. Default: {SHORTEST_BIN_S:g}, or longer, up to {COMFORTABLE_RATE} units/s.",
    ),
]
FactorOption = Annotated[
    float, typer.Option("--limit-factor", min=0, max=1000, help="The limit, as a multiple of the mean demand per bin.")
]
PATIENCE_S: Final = 30.0
"""Units that the servers or this machine are too slow for wait so long before they are given up as late."""
SHORTEST_DEMO_S: Final = 12.0
"""Time for a sign of life to run out, a region to be frozen, to come back and to thaw."""


@command
async def replay_(
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="TRACE.csv", help="Columns: bin, then one per region. Without it a day is generated."),
    ] = None,
    bins: BinsOption = None,
    skip: Annotated[int, typer.Option(min=0, help="Bins of the file to leave out at its start.")] = 0,
    scale: Annotated[float, typer.Option(min=0.001, max=1000, help="Multiplies the demand.")] = 1.0,
    bin_seconds: BinSecondsOption = None,
    limit_factor: FactorOption = 1.5,
    limit: Annotated[int | None, typer.Option(min=0, help="The limit itself, instead of --limit-factor.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option(help="Cut a region off from etcd, such as ap:20s-40s. May be repeated.")
    ] = None,
    etcd_outage: Annotated[list[str] | None, typer.Option(help="Stop etcd, such as 20s-50s. May be repeated.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Afterwards the same again with the coordinator stopped; print both.")
    ] = False,
    seed: SeedOption = 1,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Drive running region servers with real or generated demand, and check every promise meanwhile.

    Ctrl-C gives back what is held and reports so far; a second one ends it at once; exit status 130 then.
    Exit status 1 if the limit was passed, or an invariant did not hold or could not be checked.
    """
    settings = configuration(config)
    require_deployment(settings)
    regions = tuple(settings.deployment.regions)
    demand = _demand(trace, regions, bins=bins, skip=skip, scale=scale, seed=seed)
    plan = ReplayPlan(
        demand,
        bin_s=_bin_seconds(demand, bin_seconds),
        patience_s=PATIENCE_S,
        limit=limit,
        limit_factor=limit_factor,
        seed=seed,
        partitions=[parse_partition(text, regions) for text in partition or ()],
        etcd_outages=[parse_window(text) for text in etcd_outage or ()],
    )
    reports = [await _run(settings, plan, json=json)]
    if compare and not reports[0].partial:
        reports.append(await _run_without_coordinator(settings, plan, json=json))
    _print(reports, json=json)
    _say_if_interrupted(reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


@command
async def demo(
    bins: BinsOption = None,
    regions: RegionsOption = DEFAULT_REGIONS,
    bin_seconds: BinSecondsOption = None,
    limit_factor: FactorOption = 1.5,
    seed: SeedOption = 1,
    json: JsonOption = False,
) -> None:
    """The main job, start to end: a deployment of its own, a day of demand, a partition, and the proof.

    Exit status 0 only if the limit was never passed, both invariants held at every revision, and the partition was
    seen: a region was frozen, thawed again, and headroom moved.
    """
    die_with_parent()
    names = tuple(regions.split(","))
    check_regions(names)
    demand = follow_the_sun(names, bins=bins or DEMO_BINS, mean=MEAN_UNITS, seed=seed)
    plan = ReplayPlan(
        demand,
        bin_s=_bin_seconds(demand, bin_seconds),
        patience_s=PATIENCE_S,
        limit_factor=limit_factor,
        seed=seed,
    )
    if plan.duration_s < SHORTEST_DEMO_S:
        least = math.ceil(SHORTEST_DEMO_S / plan.bin_s)
        raise InvalidRequest("bins", f"a partition takes a while: give the demo at least --bins {least}")
    cut = f"{names[-1]}:{plan.duration_s * 0.3:.1f}s-{plan.duration_s * 0.65:.1f}s"
    plan = replace(plan, partitions=[parse_partition(cut, names)])
    with scratch_directory() as data_dir:
        options = Options(data_dir, names, QUICK)
        say = (lambda _: None) if json else (lambda text: out.print(f"{text} …", highlight=False))
        async with deployment(options, say) as stack:
            if not json:
                out.print(f"{', '.join(names)} share one limit; {cut.replace(':', ' is cut off from etcd at ')}")
            report = await _run(load(stack.deployment_file, {}), plan, json=json)
    _print([report], json=json)
    _say_if_interrupted([report])
    _expect(report, names)


def _say_if_interrupted(reports: Sequence[Report]) -> None:
    """To the shell: whoever goes on only after exit status 0 does not go on after Ctrl-C."""
    if any(report.partial for report in reports):
        raise typer.Exit(INTERRUPTED)


def _expect(report: Report, names: Sequence[str]) -> None:
    """A demonstration in which nothing happened demonstrates nothing."""
    seen = report.observed
    missing = [
        what
        for what, happened in (
            ("the limit was passed, or an invariant was not seen to hold", report.ok),
            (f"{names[-1]} was not frozen", sum(seen.freezes.values()) > 0),
            (f"{names[-1]} did not thaw", sum(seen.thaws.values()) > 0),
            ("no headroom moved between regions", seen.movement.hand_overs > 0 or len(names) == 1),
        )
        if not happened
    ]
    if missing:
        raise RegionQuotaError("; ".join(missing))


def _bin_seconds(demand: Trace, asked: float | None) -> float:
    return asked or max(SHORTEST_BIN_S, round(demand.mean / COMFORTABLE_RATE, 2))


def _demand(
    file: Path | None, regions: Sequence[str], *, bins: int | None, skip: int, scale: float, seed: int
) -> Trace:
    if file is None:
        return follow_the_sun(regions, bins=bins or DEMO_BINS, mean=MEAN_UNITS * scale, seed=seed)
    return read_trace(file, regions, scale=scale, skip=skip, most=bins)


async def _run(config: Config, plan: ReplayPlan, *, json: bool) -> Report:
    urls = {name: region.url for name, region in config.deployment.regions.items()}
    console: Console | None = None if json else out
    async with operator(config, databases=True) as connected:
        sights = Sights(connected.allocations, connected.directory, connected.stores, connected.history)
        control = config.deployment.proxies_url
        faults = None if control is None else _Control(control).faults()
        return await replay(plan, Targets(urls), sights, faults=faults, console=console)


async def _run_without_coordinator(config: Config, plan: ReplayPlan, *, json: bool) -> Report:
    if config.deployment.proxies_url is None:
        raise RegionQuotaError("--compare stops the coordinator, which only regionquota dev allows")
    control = _Control(config.deployment.proxies_url)
    if not json:
        out.print("the same demand and the same faults again, with the coordinator stopped")
    await control.post("/coordinator/stop")
    try:
        return await _run(config, replace(plan, run=f"{plan.run}-alone"), json=json)
    finally:
        await control.post("/coordinator/start")


def _print(reports: Sequence[Report], *, json: bool) -> None:
    if json:
        described: list[dict[str, Any]] = [report.to_json() for report in reports]
        print_json(described[0] if len(described) == 1 else {**described[0], "without_coordinator": described[1]})
        return
    for report in reports:
        safe = "the limit was never passed and both invariants held" if report.ok else "NOT everything held"
        out.print(f"{safe}; {report.admitted_of_oracle} % of what one exact counter admits was admitted")
        out.print(report)
    if len(reports) > 1:
        with_, without = reports
        print_table(
            ("", "with coordinator", "coordinator stopped"),
            (
                ("admitted", with_.admitted, without.admitted),
                ("% of one exact counter", with_.admitted_of_oracle, without.admitted_of_oracle),
                ("false denials", with_.false_denials, without.false_denials),
                ("overshoot", with_.overshoot, without.overshoot),
            ),
        )


@dataclass(frozen=True, slots=True)
class _Control:
    """The endpoint of `regionquota dev` that breaks and mends."""

    url: str

    async def post(self, path: str) -> None:
        timeout = aiohttp.ClientTimeout(total=30)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(f"{self.url}{path}") as answer,
            ):
                if answer.status != 200:
                    raise RegionQuotaError(f"{self.url}{path} answered {answer.status}: {await answer.text()}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"{self.url}{path} does not answer: {error or type(error).__name__}") from error

    def faults(self) -> Faults:
        return Faults(
            cut=lambda region: self.post(f"/proxies/{region}/cut"),
            heal=lambda region: self.post(f"/proxies/{region}/heal"),
            stop_etcd=lambda: self.post("/etcd/stop"),
            start_etcd=lambda: self.post("/etcd/start"),
        )
