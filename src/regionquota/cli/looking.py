"""regionquota transfers, regionquota audit."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from regionquota.audit import Finding, Verdict, audit
from regionquota.bootstrap.operator import operator, region_databases
from regionquota.cli.frame import ConfigOption, JsonOption, command, configuration, out, print_json, print_table
from regionquota.http.decoding import write_time
from regionquota.transfers import Transfer, TransferReader

POLL_S = 0.5


@command
async def transfers(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=100_000, help="How many to show.")] = 50,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show how slices changed: who gave, who received, and how long it took.

    A line is one change of one region's slice:

    - slice: its size since then; change: by how much that is more or less.
    - to: of a decrease, for whom the units are: a region, or the pool.
    - took: of an increase by units of another region, the time since that one let go of them. "-": they are the pool's,
      or it is not known.
    """
    async with region_databases(configuration(config)) as opened:
        reader = TransferReader(opened.stores)
        found = list(await reader.following())[-last:]
        if not follow:
            _show_all(found, json=json)
            return
        while True:
            for one in found:
                _show_line(one, json=json)
            await asyncio.sleep(POLL_S)
            found = list(await reader.following())


@command
async def check(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Check invariants A and B, and every counter against its ledgers. Exit status 1 at any difference."""
    async with operator(configuration(config), databases=True) as connected:
        findings: list[Finding] = [one async for one in audit(connected.allocations, connected.stores)]
    wrong = [one for one in findings if one.verdict is not Verdict.HOLDS]
    if json:
        print_json({"ok": not wrong, "findings": findings})
    else:
        print_table(
            ("check", "region", "checked", "verdict"),
            ((one.check, one.region or "all", one.checked, one.verdict.value) for one in findings),
        )
        if wrong:
            violated = next((one for one in wrong if one.verdict is Verdict.VIOLATED), None)
            said = (
                f"could not be checked: {wrong[0].difference}"
                if violated is None
                else f"first difference: {violated.difference}"
            )
            out.print(said, highlight=False, soft_wrap=True)
        else:
            out.print("no difference", highlight=False)
    if wrong:
        raise typer.Exit(1)


def _show_all(found: Sequence[Transfer], *, json: bool) -> None:
    if json:
        print_json([_describe(one) for one in found])
        return
    print_table(
        ("time (UTC)", "quota", "region", "slice", "change", "to", "took"),
        (
            (
                write_time(one.at)[5:19].replace("T", " "),
                str(one.key),
                one.region,
                one.after,
                f"{one.after - one.before:+,}",
                ", ".join(one.towards),
                None if one.took is None else f"{one.took * 1000:.0f} ms",
            )
            for one in found
        ),
    )


def _show_line(one: Transfer, *, json: bool) -> None:
    if json:
        print_json(_describe(one))
        return
    towards = f" to {', '.join(one.towards)}" if one.towards else ""
    took = "" if one.took is None else f", {one.took * 1000:.0f} ms after the donor's decrease"
    change = f"{one.before:,} -> {one.after:,} ({one.after - one.before:+,}){towards}{took}"
    out.print(f"{write_time(one.at)}  {one.key}  {one.region}  {change}", highlight=False, soft_wrap=True)


def _describe(one: Transfer) -> dict[str, Any]:
    return {
        "at": write_time(one.at),
        "tenant_id": one.key.tenant,
        "resource": one.key.resource,
        "scope": one.key.scope,
        "region": one.region,
        "before": one.before,
        "after": one.after,
        "revision": one.revision,
        "to": list(one.towards),
        "took_s": one.took,
    }
