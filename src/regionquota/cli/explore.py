"""regionquota explore."""

from pathlib import Path
from typing import Annotated

import typer

from regionquota.cli.frame import JsonOption, command, err, interrupt_at_once, out, print_json, print_table, say
from regionquota.errors import InvalidRequest
from regionquota.explorer import exhaustive
from regionquota.explorer.ablations import ABLATIONS, Missed, document, find, without
from regionquota.explorer.campaign import Options, Story, Tally, explore, story, tell
from regionquota.explorer.corpus import keep
from regionquota.explorer.run import script

EXAMPLES = (
    "Examples: regionquota explore --seconds 60 · regionquota explore --seed 4711 · "
    "regionquota explore --exhaustive · regionquota explore --ablate older-revision"
)


@command
async def explore_(
    runs: Annotated[int, typer.Option(min=1, max=10**9, help="Different interleavings to try.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=0.1, max=10**6, help="Stop after that long in any case.")] = 600.0,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes that explore.")] = 2,
    first_seed: Annotated[int, typer.Option(min=0, max=2**63, help="Begin with this seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63, help="Do one run again, in words, and shrink it if it fails.")
    ] = None,
    whole: Annotated[bool, typer.Option("--exhaustive", help="All interleavings of a small configuration.")] = False,
    ablate: Annotated[
        str | None, typer.Option(metavar="NAME|all", help="Take a safeguard out, and find what it is for.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --ablate all: write the table there.")
    ] = None,
    keep_in: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FILE", help="Add runs that find something to this list, which tests replay."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explore interleavings of the real agents, coordinators and callers, under faults, on stores in memory.

    Exit status 1 if anything was broken that must hold, or if nothing was where a safeguard is missing.
    """
    if (seed is not None) + whole + (ablate is not None) > 1:
        raise InvalidRequest("seed", "--seed, --exhaustive and --ablate exclude each other: choose one")
    if table is not None and ablate != "all":
        raise InvalidRequest("table", "--table goes with --ablate all: the table names every safeguard")
    interrupt_at_once()
    if ablate is not None:
        _ablate(ablate, table, keep_in, json=json)
    elif whole:
        _exhaust(json=json)
    elif seed is not None:
        _replay(seed, json=json)
    else:
        _explore(Options(runs, seconds, workers, first_seed), keep_in, json=json)


def _explore(options: Options, keep_in: Path | None, *, json: bool) -> None:
    tally = explore(options, lambda so_far: None if json else _say(so_far))
    found = story(script(tally.violations[0][0])) if tally.violations else None
    if not json:
        _say_what_happened(tally)
    if found is not None:
        _tell(tally.violations[0][0], found)
        if keep_in is not None:
            keep(keep_in, {found.said: found.script})
    if json:
        print_json(tally.plain())
    if found is not None:
        raise typer.Exit(1)


def _say_what_happened(tally: Tally) -> None:
    print_table(("fault", "times"), sorted(tally.faults.items()))
    print_table(("event", "times"), sorted(tally.deeds.items()))
    out.print(
        f"{tally.runs:,} different interleavings of {tally.steps_per_run:.1f} steps, "
        f"{tally.distinct_states:,} distinct states, {len(tally.violations):,} violations in {tally.seconds:.0f} s.",
        highlight=False,
    )


def _say(so_far: Tally) -> None:
    err.print(f"{so_far.seconds:6.0f} s  {so_far.runs:,} runs  {len(so_far.violations)} violations", highlight=False)


def _tell(seed: int, found: Story) -> None:
    say("violated", "bold red", found.said)
    err.print(f"shrunk to {found.steps} steps:", highlight=False)
    for line in found.lines:
        err.print(line, highlight=False, soft_wrap=True)
    err.print(f"replay: regionquota explore --seed {seed}", highlight=False, soft_wrap=True)


def _replay(seed: int, *, json: bool) -> None:
    wanted = script(seed)
    lines, violation = tell(wanted)
    if json:
        print_json({"seed": seed, "steps": lines, "violation": None if violation is None else str(violation)})
    else:
        for line in lines:
            out.print(line, highlight=False, soft_wrap=True)
        out.print("nothing is broken" if violation is None else f"violated {violation}", soft_wrap=True)
    if violation is not None:
        found = story(wanted)
        if found is not None:
            _tell(seed, found)
        raise typer.Exit(1)


def _exhaust(*, json: bool) -> None:
    done = exhaustive.explore(on_progress=lambda states: None if json else err.print(f"{states:,} states"))
    if json:
        print_json(done.plain())
    else:
        out.print(
            f"{done.states:,} states of {exhaustive.CONFIGURATION}, every step from each of them taken "
            f"({done.steps:,}), in {done.seconds:.0f} s: "
            + ("nothing is broken." if done.violation is None else f"violated {done.violation}"),
            highlight=False,
        )
    if done.violation is not None:
        for line in done.trace:
            err.print(line, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def _ablate(name: str, file: Path | None, keep_in: Path | None, *, json: bool) -> None:
    if name != "all" and name not in ABLATIONS:
        raise InvalidRequest("ablate", f'unknown safeguard "{name}": known are all, {", ".join(ABLATIONS)}')
    chosen = list(ABLATIONS.values()) if name == "all" else [ABLATIONS[name]]
    missed: list[Missed] = []
    unmissed: list[str] = []
    for one in chosen:
        found = find(one)
        if found is None:
            unmissed.append(one.name)
            continue
        missed.append(found)
        if json:
            print_json({"switch": one.name, "seed": found.seed, "invariant": found.invariant, "said": found.said})
        else:
            out.print(f"{one.name}: seed {found.seed}: {found.said}", highlight=False, soft_wrap=True)
    for nobody in unmissed:
        err.print(f"nobody misses {nobody}", highlight=False)
    if name != "all" and missed and not json:
        _tell_without(missed[0])
    if file is not None:
        file.write_text(document(missed))
    if keep_in is not None:
        keep(keep_in, {f"{one.ablation.name} is missed": script(one.seed) for one in missed})
    if unmissed:
        raise typer.Exit(1)


def _tell_without(missed: Missed) -> None:
    with without(missed.ablation):
        told = story(script(missed.seed))
    if told is not None:
        out.print(f"shrunk to {told.steps} steps, then {told.said}", highlight=False, soft_wrap=True)
        for line in told.lines:
            out.print(line, highlight=False, soft_wrap=True)
