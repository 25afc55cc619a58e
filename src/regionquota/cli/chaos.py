"""regionquota chaos."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from regionquota.chaos.run import COUNTED, Result, run
from regionquota.chaos.scenarios import SCENARIOS, Scenario
from regionquota.cli.frame import JsonOption, command, err, interrupt_at_sigterm, out, print_json, print_table
from regionquota.embedded import die_with_parent
from regionquota.errors import InvalidRequest
from regionquota.telemetry import configure_logging

EXAMPLES: Final = (
    "Examples: regionquota chaos --list · regionquota chaos --scenario region-killed --seconds 60 · "
    "regionquota chaos --json --keep /var/tmp/chaos"
)
SHOWN_FINDINGS: Final = 20


@command
async def chaos(
    scenario: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this one. May be repeated.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, max=3600, help="How long faults last in each. Default: the scenario's own.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="What callers ask for; faults come when they come.")] = 1,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Leave the logs of scenarios with findings there.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say what there is, and do nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Break real servers, Postgres, etcd and the network under load, and prove what callers were told.

    Takes about nine minutes. Starts what it needs, over loopback only, and leaves nothing behind.
    Exit status 1 at any finding.
    """
    if listed:
        _list(json=json)
        return
    die_with_parent()
    interrupt_at_sigterm()
    configure_logging("auto", "error")
    results: list[Result] = []
    for one in _chosen(scenario):
        err.print(f"{one.name} …", highlight=False)
        results.append(await run(one, seconds=seconds, seed=seed, keep=keep))
        _say(results[-1])
    if json:
        print_json(_plain(results))
    else:
        _show(results)
    if not all(result.ok for result in results):
        raise typer.Exit(1)


def _chosen(names: Sequence[str] | None) -> Sequence[Scenario]:
    for name in names or ():
        if name not in SCENARIOS:
            raise InvalidRequest("scenario", f'unknown scenario "{name}": known are {", ".join(SCENARIOS)}')
    return [SCENARIOS[name] for name in names or SCENARIOS]


def _list(*, json: bool) -> None:
    if json:
        print_json({"scenarios": [{"name": one.name, "shows": one.shows} for one in SCENARIOS.values()]})
    else:
        print_table(("scenario", "shows"), ((one.name, one.shows) for one in SCENARIOS.values()), prose=["shows"])


def _say(result: Result) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in result.faults.items()) or "nothing broken"
    verdict = Text("nothing found") if result.ok else Text(f"{len(result.findings)} findings", "bold red")
    counts = f"; {result.operations:,} operations, {result.repeats:,} repeats, {faults}, {result.seconds:.0f} s"
    err.print(Text.assemble("  ", verdict, counts), highlight=False, soft_wrap=True)
    for note in result.notes:
        err.print(f"  {note}", highlight=False, soft_wrap=True)
    for finding in result.findings[:SHOWN_FINDINGS]:
        err.print(f"  {finding}", highlight=False, soft_wrap=True)
    if result.error is not None:
        err.print(f"  could not be carried out: {result.error}", highlight=False, soft_wrap=True)


def _show(results: Sequence[Result]) -> None:
    print_table(
        ("scenario", "operations", "acknowledged", "unknown", "faults", *COUNTED, "seconds", "verdict"),
        [
            (
                result.name,
                result.operations,
                result.acknowledged,
                result.unknown,
                sum(result.faults.values()),
                *(result.counts.get(name, 0) for name in COUNTED),
                round(result.seconds),
                "ok" if result.ok else "findings" if result.error is None else "not done",
            )
            for result in results
        ],
    )
    total = _totals(results)
    out.print(
        f"{total['acknowledged']:,} of {total['operations']:,} operations were acknowledged under {total['faults']:,} "
        f"faults: {total['lost']:,} lost, {total['doubled']:,} doubled, {total['overshoot']:,} times beyond a limit.",
        highlight=False,
    )


def _totals(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "operations": sum(result.operations for result in results),
        "acknowledged": sum(result.acknowledged for result in results),
        "unknown": sum(result.unknown for result in results),
        "faults": sum(sum(result.faults.values()) for result in results),
        **{name: sum(result.counts.get(name, 0) for result in results) for name in COUNTED},
        "findings": sum(len(result.findings) for result in results),
        "not_done": sum(result.error is not None for result in results),
        "seconds": round(sum(result.seconds for result in results), 1),
    }


def _plain(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "ok": all(result.ok for result in results),
        **_totals(results),
        "scenarios": [result.plain() for result in results],
    }
