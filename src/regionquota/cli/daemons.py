"""regionquota coordinator, regionquota migrate."""

from typing import Annotated

import typer

from regionquota.bootstrap.coordinator import run_coordinator
from regionquota.bootstrap.schema import Phase, migrate
from regionquota.cli.frame import ConfigOption, JsonOption, command, configuration, out, print_json


@command
async def coordinator(config: ConfigOption = None) -> None:
    """Run a coordinator. Several may run: each leads its part of the quotas, and takes over from one that ends."""
    await run_coordinator(configuration(config))


@command
async def migrate_(
    phase: Annotated[
        Phase | None, typer.Option(help="Only what belongs before, or after, the upgrade of the code. Default: both.")
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a region's database (postgres.dsn) to the schema of this version. Safe to repeat."""
    postgres = configuration(config).postgres
    phases = tuple(Phase) if phase is None else (phase,)
    applied = await migrate(postgres.dsn, password=postgres.secret(), phases=phases)
    names = [f"{one.version:04d}_{one.name} ({one.phase})" for one in applied]
    if json:
        print_json({"applied": names})
    else:
        out.print("applied " + ", ".join(names) if names else "nothing to do", highlight=False)
