"""regionquota jump."""

from typing import Annotated, Final

import typer

from regionquota.bench.jump import ALLOWANCE_MS, IDLE, JUMP, LIMIT, NEEDY, ROUND_TRIPS, JumpOptions, JumpResult, Jumps
from regionquota.cli.frame import JsonOption, command, err, out, print_json, print_table
from regionquota.config import Config
from regionquota.dev.layout import MAX_RTT_MS
from regionquota.embedded import die_with_parent, scratch_directory
from regionquota.http.bodies import MAX_WAIT_MS
from regionquota.telemetry import configure_logging

EXAMPLES: Final = "Examples: regionquota jump · regionquota jump --jumps 20 --etcd-rtt-ms 50 --json"


@command
async def jump(
    jumps: Annotated[int, typer.Option(min=1, max=500, help="How many, each of a quota of its own.")] = 50,
    etcd_rtt_ms: Annotated[
        int, typer.Option(min=0, max=MAX_RTT_MS, help="A round trip from each region and the coordinator to etcd.")
    ] = 100,
    wait_ms: Annotated[
        int, typer.Option(min=1, max=MAX_WAIT_MS, help="How long a caller waits before it is denied.")
    ] = 5000,
    json: JsonOption = False,
) -> None:
    """Measure how long demand waits that jumps in one region while another owns nearly everything, and is idle.

    Starts a deployment of three regions with etcd far away, and leaves nothing behind. About two minutes.
    """
    die_with_parent()
    configure_logging("auto", "warning")
    options = JumpOptions(jumps, etcd_rtt_ms, wait_ms)
    with scratch_directory() as directory:
        found = await Jumps(options, Config(), directory, lambda line: err.print(f"{line} …", highlight=False)).run()
    if json:
        print_json(found.plain())
    else:
        _show(found)


def _show(found: JumpResult) -> None:
    options, told = found.options, found.plain()
    print_table(("from first need to served, ms", *told["served_ms"]), [("", *told["served_ms"].values())])
    out.print(
        f"{JUMP} of a limit of {LIMIT}, needed in {NEEDY} at once while {IDLE} owns nearly all and is idle; {NEEDY} is "
        f"served by the pool and by what {IDLE} hands over.\n"
        f"A round trip to etcd takes {options.rtt_ms} ms from everywhere. Within {ROUND_TRIPS} round trips and "
        f"{ALLOWANCE_MS} ms, {options.bound_ms} ms, were {found.within} of {options.jumps}; "
        f"{found.denied} waited {options.wait_ms} ms in vain.",
        highlight=False,
    )
