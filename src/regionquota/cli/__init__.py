"""The command line: one module per group of commands, `frame` for what they share."""

from importlib.metadata import version
from typing import Annotated

import typer

from regionquota.cli import (
    bench,
    chaos,
    daemons,
    dev,
    explaining,
    explore,
    glossary,
    jump,
    ledger,
    looking,
    quotas,
    reconcile,
    regions,
    replaying,
    reservations,
    simulate,
    tenants,
)
from regionquota.cli.frame import out

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Global quotas, enforced by regional slices that always sum to the limit.",
    epilog="Begin with: regionquota demo · regionquota dev",
)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(version("regionquota"), highlight=False)
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    pass


app.command("demo", epilog="Example: regionquota demo --bins 40")(replaying.demo)
app.command("bench", epilog="Example: regionquota bench --seconds 10 --json")(bench.bench)
app.command("jump", epilog=jump.EXAMPLES)(jump.jump)
app.command("explore", epilog=explore.EXAMPLES)(explore.explore_)
app.command("simulate", epilog=simulate.EXAMPLES)(simulate.simulate_)
app.command("chaos", epilog=chaos.EXAMPLES)(chaos.chaos)
app.command("dev", epilog=dev.EXAMPLES)(dev.dev)
app.add_typer(regions.app, name="region")
app.command("coordinator", epilog="Example: regionquota coordinator --config config/coordinator.toml")(
    daemons.coordinator
)
app.command("migrate", epilog="Example: regionquota migrate --config config/region.toml")(daemons.migrate_)
app.add_typer(quotas.app, name="quota")
app.add_typer(reconcile.app, name="reconcile")
app.add_typer(reservations.app, name="reservation")
app.add_typer(tenants.app, name="tenant")
app.add_typer(ledger.app, name="ledger")
app.command("transfers", epilog="Example: regionquota transfers --follow")(looking.transfers)
app.command("explain", epilog=glossary.epilog())(explaining.why)
app.command("audit", epilog="Example: regionquota audit --json")(looking.check)
app.command(
    "replay", epilog="Example: regionquota replay TRACE.csv --bins 300 --limit-factor 1.5 --partition ap:20s-40s"
)(replaying.replay_)
