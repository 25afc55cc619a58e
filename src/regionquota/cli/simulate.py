"""regionquota simulate."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final

import typer

from regionquota.cli.frame import (
    ConfigOption,
    JsonOption,
    ScopeOption,
    command,
    configuration,
    err,
    out,
    print_json,
    print_table,
    say,
    warn,
)
from regionquota.cli.policies import rules_in_words
from regionquota.cli.simulate_live import Wanted, look, refuse_idle
from regionquota.config import Config
from regionquota.core.quota import GLOBAL_SCOPE
from regionquota.errors import InvalidRequest
from regionquota.simulator.demand import Workload, with_regions, workload
from regionquota.simulator.events import in_words
from regionquota.simulator.live import Live, parse_duration, scaled_down, scenario_of, units_for_one
from regionquota.simulator.page import page
from regionquota.simulator.policies import ABOUT, WAITING
from regionquota.simulator.reading import otherwise, read_scenario
from regionquota.simulator.report import Figures, Report, report
from regionquota.simulator.scenario import POLICIES, Scenario
from regionquota.simulator.side_by_side import SideBySide

EXAMPLES: Final = (
    "Examples: regionquota simulate simulations/partition.toml --html partition.html · "
    "regionquota simulate simulations/trace_sun.toml --trace demand.csv --bins 300 --set quota.limit_factor=1.0 · "
    "regionquota simulate --from-live http://127.0.0.1:8080 --cut eu --for 1h · "
    "Fields of a scenario, and of --set: docs/scenarios.md"
)
FOR: Final = "1h"
_LEGEND: Final = (
    "admitted: units; % of oracle: what was admitted within the limit, of what one exact counter admits",
    "false denials: units that it admits and the policy denies; overshoot: the most by which a bin exceeded the limit",
    "moves: changes of an owner; writes: to etcd; both for 1,000 units admitted",
    "Jain's index: 1 if every region got the same part of its fair share",
)
_SAY_S: Final = 2.0


@command
async def simulate_(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO.toml", help="docs/scenarios.md has its fields, simulations/ examples."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"Only these: {', '.join(POLICIES)}. Repeat it for more.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Demand, in place of the scenario's: a column for the bin, one per region."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same report.")] = None,
    bins: Annotated[int | None, typer.Option(min=1, max=100_000, help="Only the first so many bins.")] = None,
    otherwise_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Otherwise than in the file: --set demand.bin_s=30. Repeat it for more.",
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with plots there.")] = None,
    from_live: Annotated[
        str | None, typer.Option(metavar="URL", help="Limits, slices and demand of what runs: a region's server.")
    ] = None,
    cut: Annotated[str | None, typer.Option(metavar="REGION", help="Live: what if this region is cut off ...")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help=f"... for so long: 90s, 30m, 1h. Default: {FOR}.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Live: whose quota. Default: the busiest that can be simulated.")
    ] = None,
    resource: Annotated[str | None, typer.Option(help="Live: of what. Default: as --tenant.")] = None,
    scope: ScopeOption = GLOBAL_SCOPE,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Play a scenario in virtual time, by this product and by other policies, side by side.

    Prints what each would have admitted, denied and moved; --html draws it, too.

    Exit status 1 if the product admitted more than the limit in any bin, 2 if the input is wrong.
    """
    live_only = {"--cut": cut, "--for": for_, "--tenant": tenant, "--resource": resource}
    _refuse_mixed(scenario, trace, from_live, [name for name, given in live_only.items() if given is not None])
    if html is not None:
        _check_writable(html)
    chosen = _chosen(policy or POLICIES)
    words = list(otherwise_ or [])
    words += [] if seed is None else [f"seed={seed}"]
    words += [] if bins is None else [f"demand.bins={bins}"]
    if from_live is not None:
        of_what = Wanted(from_live, tenant, resource, scope)
        wanted, work = await _live(configuration(config), of_what, cut, parse_duration(for_ or FOR), words)
    else:
        assert scenario is not None
        wanted, work = _from_file(scenario, words, None if trace is None else trace.resolve())
    _tell(await _play(wanted, work, chosen if policy else _chosen(wanted.policies)), html, json=json)


def _refuse_mixed(scenario: Path | None, trace: Path | None, url: str | None, live_only: Sequence[str]) -> None:
    if (scenario is None) == (url is None):
        raise InvalidRequest("scenario", "give either a scenario's file, SCENARIO.toml, or --from-live URL")
    if url is not None and trace is not None:
        raise InvalidRequest("trace", "--trace goes with a scenario's file: --from-live has the demand that it sees")
    if url is None and live_only:
        raise InvalidRequest("scenario", f"{live_only[0]} goes with --from-live: a file has [[events]]")


def _from_file(file: Path, words: Sequence[str], trace: Path | None) -> tuple[Scenario, Workload]:
    plain = read_scenario(file, words, trace)
    try:
        wanted = with_regions(plain, file.parent)
        return wanted, workload(wanted, file.parent)
    except InvalidRequest as error:
        raise InvalidRequest(error.field, f"{file}: {error}") from None


async def _live(
    config: Config, of_what: Wanted, cut: str | None, for_s: float, words: Sequence[str]
) -> tuple[Scenario, Workload]:
    def as_scenario(live: Live) -> tuple[Scenario, Sequence[str]]:
        plain, assumed = scenario_of(live, cut, for_s)
        return otherwise(plain, words, of_what.url), assumed

    live = await look(config, of_what, as_scenario)
    wanted, assumed = as_scenario(live)
    refuse_idle(live, wanted.demand.rates)
    if (each := units_for_one(live, for_s)) > 1:
        say("note:", "bold", scaled_down(live, each))
    return wanted, workload(wanted, Path(), assumed)


async def _play(scenario: Scenario, work: Workload, chosen: Sequence[str]) -> Report:
    for warning in work.warnings:
        warn(warning)
    outcomes = await SideBySide(scenario, work, _Progress(work.bins)).play(chosen)
    return report(scenario, work, outcomes, chosen)


def _tell(found: Report, html: Path | None, *, json: bool) -> None:
    if html is not None:
        _write(html, page(found))
    if json:
        print_json(found.plain())
    else:
        _print(found)
    if not found.is_safe:
        raise typer.Exit(1)


def _chosen(policies: Sequence[str]) -> Sequence[str]:
    for name in policies:
        if name not in POLICIES:
            raise InvalidRequest("policy", f'unknown policy "{name}": known are {", ".join(POLICIES)}')
    return [name for name in POLICIES if name in policies]


def _check_writable(file: Path) -> None:
    """Before minutes of playing, not after them."""
    directory = file.absolute().parent
    if file.is_dir() or not directory.is_dir() or not os.access(file if file.exists() else directory, os.W_OK):
        raise InvalidRequest("html", f"cannot write {file}: name a file in a directory that exists and may be written")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest("html", f"cannot write {file}: {error.strerror}") from error


class _Progress:
    """On standard error, every few seconds."""

    def __init__(self, bins: int) -> None:
        self._bins = bins
        self._said_at = monotonic()

    def __call__(self, done: Mapping[str, int]) -> None:
        if not done or monotonic() - self._said_at < _SAY_S:
            return
        self._said_at = monotonic()
        told = ", ".join(f"{name} {min(count, self._bins):,}" for name, count in sorted(done.items()))
        err.print(f"of {self._bins:,} bins: {told}", highlight=False)


def _print(found: Report) -> None:
    scenario, work = found.scenario, found.work
    out.print(f"{scenario.name}: {scenario.shows}", style="bold", highlight=False)
    units = sum(request.used for request in work.requests)
    out.print(
        f"{len(work.requests):,} requests for {units:,} units in {work.bins:,} bins of {work.bin_s:g} s, "
        f"{len(work.regions)} regions, limit {work.limit:,} units per bin, seed {scenario.seed}",
        highlight=False,
    )
    if work.happenings:
        out.print("; ".join(in_words(one, work.regions) for one in work.happenings), highlight=False)
    for note in work.notes:
        out.print(note, style="dim", highlight=False)
    columns = (
        "policy", "admitted", "% of\noracle", "false\ndenials", "over-\nshoot",
        "moves\n/1,000", "writes\n/1,000", "Jain's\nindex",
    )  # fmt: skip
    print_table(columns, [_row(name, figures) for name, figures in found.figures.items()])
    priorities = [
        (name, priority, units["admitted"], units["denied"], _denied_most(units))
        for name, figures in found.figures.items()
        for priority, units in (figures.by_priority or {}).items()
    ]
    if priorities:
        print_table(("policy", "priority", "admitted", "denied", "denied most, % of asked there"), priorities)
    if scenario.quota.regions:
        _print_regions(found)
    for name, figures in found.figures.items():
        if figures.waits and figures.waits["count"]:
            waits = figures.waits
            out.print(
                f"{name}: {waits['count']:,} waited and were served: half within {waits['p50_ms']:g} ms, 90 % within "
                f"{waits['p90_ms']:g} ms, 99 % within {waits['p99_ms']:g} ms, all within {waits['max_ms']:g} ms",
                highlight=False,
            )
    for line in _LEGEND:
        out.print(line, style="dim", highlight=False)
    if scenario.wait_s:
        out.print(WAITING, style="dim", highlight=False)
    for name in found.figures:
        out.print(f"{name}: {ABOUT[name]}", style="dim", highlight=False)


def _print_regions(found: Report) -> None:
    """What rules for regions are there for. They are of this product; other policies know none."""
    rules = {
        name: rules_in_words(weight=one.weight, floor=one.floor, cap=one.cap)
        for name, one in found.scenario.quota.regions.items()
    }
    print_table(
        ("policy", "region", "rules", "admitted", "denied", "admitted\nper bin"),
        [
            (
                name, region, rules.get(region, "-"), admitted, figures.denied_by_region[region],
                round(admitted / found.work.bins, 1),
            )
            for name, figures in found.figures.items()
            for region, admitted in figures.admitted_by_region.items()
        ],
    )  # fmt: skip
    out.print("rules bind periodic and ours; the other policies know none", style="dim", highlight=False)


def _denied_most(units: Mapping[str, Any]) -> str:
    """The region in which most of what was asked for at a priority was denied."""
    denied, admitted = units["denied_by_region"], units["admitted_by_region"]
    part = {name: 100 * denied[name] / max(1, denied[name] + admitted[name]) for name in denied}
    worst = max(sorted(part), key=lambda name: part[name])
    return f"{worst} {part[worst]:.1f}"


def _row(name: str, figures: Figures) -> Sequence[object]:
    return (
        name,
        figures.admitted,
        round(100 * figures.admitted_of_oracle, 2),
        figures.false_denials,
        figures.overshoot,
        figures.moves_per_1000,
        figures.etcd_writes_per_1000,
        round(figures.jain, 4),
    )
