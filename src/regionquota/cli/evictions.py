"""regionquota region evict|readmit|recover: what to do about a region, or an etcd, that is lost."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import Progress

from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.operator import Operator, operator
from regionquota.cli.frame import ConfigOption, JsonOption, command, configuration, err, out, print_json, print_table
from regionquota.cli.tenants import check_reason
from regionquota.core.quota import QuotaKey
from regionquota.evictions import Progress as Told
from regionquota.evictions import evict_region, readmit_region
from regionquota.recovery import (
    Waiting,
    await_statements,
    begin_recovery,
    end_recovery,
    evicted_before,
    rebuild_documents,
)

Name = Annotated[str, typer.Argument(metavar="REGION", help="Name of the region.")]


@command
async def evict(
    region: Name,
    attest: Annotated[
        str,
        typer.Option(metavar="TEXT", help="How you know that the region spends no more: this is what safety rests on."),
    ],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Take a region out that will not come back. What it owned stays counted as spent (retired).

    Its servers must be stopped, or cut off from everybody who reserves: etcd cannot see whether they are. Should they
    come back, they give up every slice before they admit anything.
    """
    check_reason("--attest", attest)
    async with operator(configuration(config)) as connected:
        with progress("documents") as told:
            done = await evict_region(
                connected.allocations, connected.directory, connected.histories, region, attest, SystemClock(), told
            )
    eviction = done.record.eviction
    assert eviction is not None
    if json:
        print_json(
            {"region": region, "eviction": eviction.number, "blind": eviction.blind, "retired": _plain(done.retired)}
        )
        return
    out.print(f"{region} is evicted ({eviction.attestation})", highlight=False, soft_wrap=True)
    if eviction.blind:
        out.print("etcd is to be recovered: what the region may own is counted then (regionquota region recover)")
    elif done.retired:
        _show("retired", {"retired": done.retired})


@command
async def readmit(
    region: Name,
    database_lost: Annotated[
        bool, typer.Option("--database-lost", help="It begins with a new database: nobody knows what it had in use.")
    ] = False,
    nothing_used: Annotated[
        bool, typer.Option("--nothing-used", help="You know from elsewhere that nothing of what it owned is in use.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Let an evicted region take part again. What it has in use, by its own database, is its own again; the rest of
    what was retired goes back to the pool.

    With --database-lost nobody knows: that of consumable quotas returns when the period ends, the rest stays retired.
    """
    async with operator(configuration(config)) as connected:
        with progress("documents") as told:
            done = await readmit_region(
                connected.allocations,
                connected.directory,
                connected.histories,
                region,
                SystemClock(),
                database_lost=database_lost,
                nothing_used=nothing_used,
                on_document=told,
            )
    columns = {"kept": done.kept, "freed": done.freed, "still retired": done.still_retired}
    if json:
        print_json({"region": region} | {name.replace(" ", "_"): _plain(units) for name, units in columns.items()})
        return
    out.print(f"{region} takes part again", highlight=False)
    _show("what had been retired", columns)


@command
async def recover(
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the regions.", min=0)
    ] = 60.0,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="A region that etcd may have forgotten (repeatable).")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where nobody has noticed yet that etcd went backwards.")
    ] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Rebuild all allocations from what the regions hold, after etcd was restored from an older snapshot.

    Every region must be in reach, or evicted. Regions go on serving from their slices meanwhile. It may be repeated.
    """
    settings = configuration(config)
    expected = [*(region or ()), *settings.deployment.regions]
    async with operator(settings) as connected:
        summary = await _recover(connected, expected, wait, anyway=anyway)
    if json:
        print_json(summary)
        return
    counts = f"{summary['documents']:,} documents, {summary['rewritten']:,} rewritten"
    out.print(f"recovered: history {summary['history']}, {counts}", highlight=False)
    if summary["over"]:
        out.print("more is held than the limit of these; nothing more is granted until it was given back:")
        print_table(("quota", "over"), summary["over"].items())


async def _recover(connected: Operator, expected: list[str], wait: float, *, anyway: bool) -> dict[str, Any]:
    history = await begin_recovery(connected.histories, "regionquota region recover", time.time(), anyway=anyway)
    said: list[object] = []
    evicted = await evicted_before(connected.directory)
    if evicted:
        err.print(
            f"evicted already, and not waited for: {', '.join(evicted)}. Should one have been readmitted after the "
            "snapshot was taken, evict it again first",
            highlight=False,
        )

    def tell(waiting: Waiting) -> None:
        if said != [*waiting.missing]:
            said[:] = waiting.missing
            if waiting.missing:
                err.print(
                    f"waiting for {', '.join(waiting.missing)} to say what they hold", style="dim", highlight=False
                )

    statements = await await_statements(
        connected.histories, connected.directory, history, expected, patience_s=wait, on_waiting=tell
    )
    with progress("documents") as told:
        documents, rewritten, wanted = await rebuild_documents(
            connected.allocations_in(history), connected.directory, statements, SystemClock(), told
        )
    over = await end_recovery(connected.histories, connected.directory, history, wanted, statements)
    return {
        "history": history.name,
        "regions": sorted(statements),
        "documents": documents,
        "rewritten": rewritten,
        "over": _plain(over),
    }


@contextmanager
def progress(what: str) -> Iterator[Told]:
    # Where there is no terminal, a bar that ends leaves an empty line behind.
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _plain(units: Mapping[QuotaKey, int]) -> dict[str, int]:
    return {str(key): amount for key, amount in sorted(units.items())}


def _show(title: str, columns: Mapping[str, Mapping[QuotaKey, int]]) -> None:
    keys = sorted({key for units in columns.values() for key in units})
    if keys:
        rows = ([str(key), *(units.get(key, 0) for units in columns.values())] for key in keys)
        print_table(("quota", *columns), rows, title)
