"""Plays the scenarios of a directory, and tells of them in a document with a plot for each.

`python -m regionquota.simulator.gallery simulations docs/simulations.md`
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regionquota.errors import InvalidRequest
from regionquota.simulator.charts import summary_chart
from regionquota.simulator.demand import with_regions, workload
from regionquota.simulator.page import stylesheet
from regionquota.simulator.reading import read_scenario
from regionquota.simulator.report import Report, by_priority, report
from regionquota.simulator.scenario import POLICIES
from regionquota.simulator.side_by_side import SideBySide

_INTRODUCTION: Final = """# Simulations

Each story is a file in `simulations/`, played by `regionquota simulate FILE --html page.html`: in virtual time, by the
product's own region servers, coordinator and planner as they are shipped, on stores in memory; beside it the same
demand by other policies. `make simulate` plays them all and writes this document.

Percentages are of what one exact counter for the whole world admits. *Leases* are capacity leases in proportion to
demand, as Doorman describes them; *pull* is what bounded counters do; both are our own implementations. In the plots
each colour is the slice of one region, the dashed line the limit; red is what was denied while there was room
elsewhere, grey what was denied because there was none; what is shaded is described in the text.

A [jump](#jump) is measured live, too: `make jump` starts three regions, a coordinator and etcd 100 ms from all of them,
and lets one region need half of a limit at once that another owns and does not use, fifty times
([benchmarks/](../benchmarks/README.md)).

"""
_ORDER: Final = ("static", "periodic", "ours", "leases", "pull")


def gallery(directory: Path, document: Path) -> None:
    """Plots lie beside the document, in a directory of its name. What needs a trace that is not there is not told."""
    plots = document.with_suffix("")
    plots.mkdir(exist_ok=True)
    told: list[tuple[str, Report]] = []
    for file in sorted(directory.glob("*.toml")):
        try:
            told.append((file.stem, _played(file)))
        except InvalidRequest as error:
            sys.stderr.write(f"left out: {error}\n")
            continue
        sys.stderr.write(f"{file.stem} was played\n")
    for name, found in told:
        (plots / f"{name}.svg").write_text(_standing_alone(found), encoding="utf-8")
    stories = "".join(_story(*one, plots.name) for one in told)
    document.write_text(_INTRODUCTION + _table(told) + stories, encoding="utf-8")


def _played(file: Path) -> Report:
    scenario = with_regions(read_scenario(file), file.parent)
    work = workload(scenario, file.parent)
    chosen = [name for name in POLICIES if name in scenario.policies]
    return report(scenario, work, asyncio.run(SideBySide(scenario, work).play(chosen)), chosen)


def _standing_alone(found: Report) -> str:
    drawn = summary_chart(found.work, found.outcomes["ours"], found.oracle)
    head, mark, rest = drawn.partition(">")
    return f"{head}{mark}<style>{stylesheet('plots')}</style>{rest}\n"


def _table(told: Sequence[tuple[str, Report]]) -> str:
    heads = (
        *(f"{name} %" for name in _ORDER),
        "overshoot: ours",
        "leases",
        "moves per 1,000: ours",
        "etcd writes per 1,000",
    )
    rows = [f"| scenario | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, found in told:
        ours, leases = found.figures["ours"], found.figures.get("leases")
        shares = (
            f"{100 * found.figures[one].admitted_of_oracle:.2f}" if one in found.figures else "-" for one in _ORDER
        )
        over = "-" if leases is None else f"{leases.overshoot:,}"
        cells = (
            *shares,
            f"{ours.overshoot:,}",
            over,
            f"{ours.moves_per_1000:,.1f}",
            f"{ours.etcd_writes_per_1000:,.0f}",
        )
        rows.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _story(name: str, found: Report, plots: str) -> str:
    scenario, work, ours = found.scenario, found.work, found.figures["ours"]
    used = (
        ""
        if ours.capacity_used is None
        else f", {100 * ours.capacity_used:.2f} % of the limit used where it is asked for"
    )
    waits = ""
    if ours.waits and ours.waits["count"]:
        waits = (
            f" {ours.waits['count']:,} callers waited: half of them {ours.waits['p50_ms']:g} ms, 99 % at most "
            f"{ours.waits['p99_ms']:g} ms, nobody longer than {ours.waits['max_ms']:g} ms."
        )
    events = "; ".join(
        f"{'' if one.region < 0 else work.regions[one.region] + ' '}{one.what.replace('_', ' ')} at {one.begin:g} s"
        + (f", weight {one.weight}" if one.what == "weight" else f" for {one.seconds:g} s")
        for one in work.happenings
    )
    return (
        f"\n## {name}\n\n{scenario.shows}\n\n"
        f"{len(work.regions)} regions, {work.bins:,} bins of {work.bin_s:g} s, {len(work.requests):,} requests, limit "
        f"{work.limit:,}{'; ' + events if events else ''}. Ours: {100 * ours.admitted_of_oracle:.2f} %{used}, "
        f"{ours.false_denials:,} false denials, overshoot {ours.overshoot}.{waits}{_priorities(found)}\n\n"
        f"![slices and denials of {name}]({plots}/{name}.svg)\n"
    )


def _priorities(found: Report) -> str:
    """What part of each priority was admitted, beside the oracle's, where there are several."""
    told = found.figures["ours"].by_priority
    if told is None:
        return ""
    best = by_priority(found.oracle) or {}
    parts = [f"{name} {_admitted(units)} % (oracle {_admitted(best[name])} %)" for name, units in told.items()]
    return f" Admitted of what was asked for at each priority: {', '.join(parts)}."


def _admitted(units: Mapping[str, int]) -> str:
    return f"{100 * units['admitted'] / max(1, units['admitted'] + units['denied']):.1f}"


if __name__ == "__main__":
    gallery(Path(sys.argv[1]), Path(sys.argv[2]))
