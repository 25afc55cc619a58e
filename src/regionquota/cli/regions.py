"""regionquota region … (the operators' half; the daemon is `regionquota region --config FILE`)."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from regionquota import regions
from regionquota.bootstrap.operator import operator
from regionquota.bootstrap.region import run_region
from regionquota.cli import evictions
from regionquota.cli.frame import (
    NEGATIVE_NUMBERS,
    ConfigOption,
    JsonOption,
    command,
    configuration,
    out,
    print_json,
    print_table,
)
from regionquota.cli.tenants import check_reason
from regionquota.core.groups import GROUPS, Leadership, spans
from regionquota.core.quota import MAX_WEIGHT
from regionquota.http.decoding import write_time
from regionquota.ports import RegionRecord, RegionStatus

app = typer.Typer(
    help="Run a region server (regionquota region --config FILE), or weigh, drain, freeze, thaw and evict regions.",
    invoke_without_command=True,
    epilog="Examples: regionquota region --config config/region.toml · regionquota region weight eu 200",
)

Region = Annotated[str, typer.Argument(help="Name of the region.")]


@app.callback()
def serve(context: typer.Context, config: ConfigOption = None) -> None:
    """Run a region server, or (with a command) look at and steer regions."""
    if context.invoked_subcommand is None:
        _serve(config)


@command
async def _serve(config: ConfigOption) -> None:
    await run_region(configuration(config))


@app.command("list", epilog="Example: regionquota region list --json")
@command
async def list_(config: ConfigOption = None, json: JsonOption = False) -> None:
    """List regions: weight, state, how many servers show signs of life, how many quotas it has a slice of.

    And coordinators, with the groups of quotas (0 to 15) that each of them leads.
    """
    async with operator(configuration(config)) as connected:
        records = await connected.directory.regions()
        servers = Counter(presence.region for presence in await connected.directory.present())
        leadership = await connected.directory.leadership()
        _, documents = await connected.allocations.list()
    quotas: Counter[str] = Counter()
    for stored in documents:
        if stored.allocation is not None:
            quotas.update(stored.allocation.slices.keys())
    found = [
        _describe(stored.record) | {"servers": servers[name], "quotas": quotas[name]}
        for name, stored in sorted(records.items())
    ]
    if json:
        print_json({"coordinators": _led(leadership), "regions": found})
        return
    print_table(
        ("region", "weight", "state", "servers", "quotas"),
        ((one["region"], one["weight"], _state(one), one["servers"], one["quotas"]) for one in found),
        prose=["state"],
    )
    for line in who_leads(leadership):
        out.print(line, highlight=False, soft_wrap=True)


def who_leads(leadership: Leadership) -> Iterator[str]:
    if leadership.undivided is not None:
        yield f"coordinator {leadership.undivided} of an older release leads everything"
        return
    for name, groups in _led(leadership).items():
        yield f"coordinator {name}: {f'groups {spans(groups)}' if groups else 'stands by'}"
    vacant = [group for group in range(GROUPS) if group not in leadership.leaders]
    if vacant:
        yield f"nobody leads groups {spans(vacant)}"


def _led(leadership: Leadership) -> dict[str, list[int]]:
    """Which groups of buckets each coordinator leads."""
    led: dict[str, list[int]] = {name: [] for name in sorted(leadership.present)}
    for group, leader in sorted(leadership.leaders.items()):
        led.setdefault(leader.name, []).append(group)
    if leadership.undivided is not None:
        led[leadership.undivided] = list(range(GROUPS))
    return led


@app.command(context_settings=NEGATIVE_NUMBERS, epilog="Example: regionquota region weight eu 200")
@command
async def weight(
    region: Region,
    value: Annotated[int, typer.Argument(metavar="WEIGHT", help=f"0 to {MAX_WEIGHT}; 100 is usual.")],
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Set a region's part of what nobody needs; in force from the next round on."""
    async with operator(configuration(config)) as connected:
        show(await regions.set_weight(connected.directory, region, value), json=json)


@app.command(epilog="Example: regionquota region drain eu · regionquota region drain eu --undo")
@command
async def drain(
    region: Region,
    undo: Annotated[bool, typer.Option("--undo", help="Let the region take part again.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Move everything elsewhere that a region does not use; what it uses follows as it is given back."""
    async with operator(configuration(config)) as connected:
        show(await regions.drain(connected.directory, region, back=undo), json=json)


@app.command(epilog='Example: regionquota region freeze ap --why "network work"')
@command
async def freeze(
    region: Region,
    why: Annotated[str, typer.Option(help="For whoever looks at it at night.")] = "by hand",
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Keep a region's allocation as it is until it is thawed; it goes on serving from its slices."""
    check_reason("--why", why)
    async with operator(configuration(config)) as connected:
        show(await regions.freeze(connected.directory, region, why, time.time()), json=json)


@app.command(epilog="Example: regionquota region thaw ap")
@command
async def thaw(region: Region, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Take a freeze back. A region that does not answer is frozen again by the next round."""
    async with operator(configuration(config)) as connected:
        show(await regions.thaw(connected.directory, region), json=json)


app.command(epilog='Example: regionquota region evict ap --attest "powered off, ticket 4711"')(evictions.evict)
app.command(epilog="Example: regionquota region readmit ap · regionquota region readmit ap --database-lost")(
    evictions.readmit
)
app.command(epilog="Example: regionquota region recover --wait 120")(evictions.recover)


def _describe(record: RegionRecord) -> dict[str, Any]:
    frozen, eviction = record.frozen, record.eviction
    return {
        "region": record.name,
        "weight": record.weight,
        "status": record.status.value,
        "frozen": None
        if frozen is None
        else {"since": write_time(frozen.since), "by": frozen.by.value, "why": frozen.why},
        "eviction": None
        if eviction is None
        else {"number": eviction.number, "at": write_time(eviction.at), "attestation": eviction.attestation},
    }


def _state(one: dict[str, Any]) -> str:
    frozen, eviction = one["frozen"], one["eviction"]
    if one["status"] == RegionStatus.EVICTED:
        return f"evicted {eviction['at']}: {eviction['attestation']}"
    if frozen is None:
        return str(one["status"])
    draining = "draining, " if one["status"] == RegionStatus.DRAINING else ""
    return f"{draining}frozen since {frozen['since']} by {frozen['by']}: {frozen['why']}"


def show(record: RegionRecord, *, json: bool) -> None:
    described = _describe(record)
    if json:
        print_json(described)
    else:
        said = f"{record.name}: weight {record.weight:,}, {_state(described)}"
        out.print(said, highlight=False, soft_wrap=True)
