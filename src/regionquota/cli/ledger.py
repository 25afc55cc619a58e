"""regionquota ledger: the usage ledger for billing and for people."""

import asyncio
import csv
import io
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import IO, Annotated, Final, TypeAlias

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regionquota.bootstrap.operator import region_databases
from regionquota.cli.frame import ConfigOption, JsonOption, command, configuration, err, print_json, print_table
from regionquota.config import Config, require_deployment
from regionquota.core.entries import EntryKind
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import InvalidRequest, RegionQuotaError
from regionquota.http.decoding import check_identifier
from regionquota.ledger_files import ONE_DAY, fields_of, json_lines, start_of_day, whole_file
from regionquota.ledger_ports import LedgerLine, UsageLedger

app = typer.Typer(no_args_is_help=True, help="Look at the usage ledger and export it.")

MAX_DAYS: Final = 3660
"""Of one export."""
CLOSING_S: Final = 60.0
"""So long after its end a day may still be written to by a transaction that began in it."""
QUIET_S: Final = 1.0
"""What takes longer shows how far it is."""
SAY_AGAIN_S: Final = 5.0
"""Between two words on progress where there is no terminal."""

Group: TypeAlias = tuple[QuotaKey, int, EntryKind]
RegionOption = Annotated[str | None, typer.Option("--region", help="Only this region's. Default: all regions.")]


LINE_COLUMNS: Final = (
    "region", "id", "at", "tenant_id", "resource", "scope", "epoch", "kind", "delta", "reservation_id", "request_id",
    "reason",
)  # fmt: skip
SUM_COLUMNS: Final = ("tenant_id", "resource", "scope", "epoch", "kind", "lines", "delta")
DAY_FORMATS: Final = ["%Y-%m-%d"]


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


@app.command("list", epilog="Example: regionquota ledger list acme --resource vcpu -n 20")
@command
async def list_(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    resource: Annotated[str | None, typer.Option(help="Only this resource's.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only this scope's.")] = None,
    region: RegionOption = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=100_000, help="How many to show.")] = 50,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest lines of a tenant's usage ledger, the newest at the end."""
    for field, value in (("tenant", tenant), ("resource", resource), ("scope", scope)):
        if value is not None:
            check_identifier(field, value)
    found: list[tuple[Region, LedgerLine]] = []
    async with region_databases(_only(configuration(config), region)) as opened:
        for name, ledger in opened.ledgers.items():
            lines = await ledger.last(tenant, last, resource=resource, scope=scope)
            found += [(name, line) for line in lines]
    found = sorted(found, key=lambda one: one[1].entry.at)[-last:]
    if as_json:
        print_json([{"region": name, **fields_of(line)} for name, line in found])
        return
    columns = ("at", "region", "resource", "scope", "epoch", "kind", "delta", "request_id", "reason")
    described = ({"region": name} | fields_of(line) for name, line in found)
    print_table(columns, ([line[column] for column in columns] for line in described), prose=["reason"])


@app.command(epilog="Example: regionquota ledger export --from 2026-11-01 --to 2026-12-01 --output november.csv")
@command
async def export(
    first: Annotated[datetime, typer.Option("--from", formats=DAY_FORMATS, help="The first day (UTC).")],
    end: Annotated[
        datetime,
        typer.Option("--to", formats=DAY_FORMATS, help="The day after the last one (UTC); today at the latest."),
    ],
    region: RegionOption = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How lines are written.")] = Format.CSV,
    summary: Annotated[
        bool, typer.Option("--summary", help="Sums by tenant, resource, scope, epoch and kind, over the regions.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replaced when all is written. Default: standard output.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write whole days of the usage ledger, for billing.

    Only days that are over: a day that is still written to would be exported otherwise tomorrow.
    """
    days = _days(first.date(), end.date(), datetime.now(UTC))
    if tenant is not None:
        check_identifier("tenant", tenant)
    async with region_databases(_only(configuration(config), region)) as opened:
        await _check_kept(opened.ledgers, days[0])
        progress = _Progress(len(days) * len(opened.ledgers))
        with _writing(output) as file, progress:
            if summary:
                file.write(_sums(form, await _summary(opened.ledgers, days, tenant, progress)))
                return
            if form is Format.CSV:
                file.write(_csv([LINE_COLUMNS]))
            async for name, lines in _lines(opened.ledgers, days, tenant, progress):
                file.write(json_lines(name, lines) if form is Format.JSONL else _csv(_rows(name, lines)))


def _days(first: date, end: date, now: datetime) -> Sequence[date]:
    if first >= end:
        raise InvalidRequest("to", f"--to must be after --from ({first}): it is the day after the last one, got {end}")
    if (end - first).days > MAX_DAYS:
        raise InvalidRequest("from", f"one export covers at most {MAX_DAYS} days, got {(end - first).days}")
    if end > now.date():
        raise InvalidRequest(
            "to",
            f"--to must not be after {now.date()}, the day that is under way (UTC), got {end}: "
            "more is still written to it, so the same export would say something else tomorrow",
        )
    if now - start_of_day(end) < timedelta(seconds=CLOSING_S):
        raise InvalidRequest(
            "to", f"{end - ONE_DAY} has ended just now and may still be written to: try again in {CLOSING_S:.0f} s"
        )
    return [first + n * ONE_DAY for n in range((end - first).days)]


def _only(config: Config, region: str | None) -> Config:
    """One region's export must not wait for another one's database."""
    require_deployment(config)
    regions = config.deployment.regions
    if region is None:
        return config
    if region not in regions:
        raise InvalidRequest("--region", f'--region: unknown region "{region}": known are {", ".join(sorted(regions))}')
    return replace(config, deployment=replace(config.deployment, regions={region: regions[region]}))


async def _check_kept(ledgers: Mapping[Region, UsageLedger], first: date) -> None:
    """An export that lacks days must not look like one of days without usage."""
    for name, ledger in ledgers.items():
        since = await ledger.kept_since()
        if since is not None and first < since:
            raise RegionQuotaError(
                f"{name} keeps the ledger since {since}, what was before is in its archive (ledger.archive_directory): "
                f"begin with --from {since}"
            )


async def _lines(
    ledgers: Mapping[Region, UsageLedger], days: Sequence[date], tenant: str | None, progress: "_Progress"
) -> AsyncIterator[tuple[Region, Sequence[LedgerLine]]]:
    for name, ledger in ledgers.items():
        for day in days:
            async with aclosing(ledger.day(day, tenant)) as parts:
                async for lines in parts:
                    yield name, lines
                    progress.advance(lines=len(lines))
            progress.advance(days=1)


async def _summary(
    ledgers: Mapping[Region, UsageLedger], days: Sequence[date], tenant: str | None, progress: "_Progress"
) -> Mapping[Group, tuple[int, int]]:
    """Lines and their sum."""
    sums: dict[Group, tuple[int, int]] = {}
    for ledger in ledgers.values():
        for day in days:
            for one in await ledger.sums(day, tenant):
                group = (one.key, one.epoch, one.kind)
                lines, delta = sums.get(group, (0, 0))
                sums[group] = (lines + one.lines, delta + one.delta)
                progress.advance(lines=one.lines)
            progress.advance(days=1)
    return sums


def _sums(form: Format, sums: Mapping[Group, tuple[int, int]]) -> bytes:
    rows = [
        (key.tenant, key.resource, key.scope, epoch, kind.value, lines, delta)
        for (key, epoch, kind), (lines, delta) in sorted(sums.items())
    ]
    if form is Format.CSV:
        return _csv([SUM_COLUMNS, *rows])
    # Not msgspec, which knows no integers beyond 64 bits; a sum may pass them.
    named = (dict(zip(SUM_COLUMNS, row, strict=True)) for row in rows)
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in named).encode()


def _rows(region: Region, lines: Sequence[LedgerLine]) -> Iterator[Sequence[object]]:
    for line in lines:
        fields = {"region": region} | fields_of(line)
        yield [fields[column] for column in LINE_COLUMNS]


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    """RFC 4180 but for the line ends; what is null is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


@contextmanager
def _writing(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with whole_file(output) as file:
            yield file
    except OSError as error:
        raise RegionQuotaError(f"cannot write {output}: {error.strerror}; it is as it was before") from error


class _Progress:
    """On standard error: a bar on a terminal, a line now and then elsewhere, nothing for what is soon done."""

    def __init__(self, days: int) -> None:
        columns = (TextColumn("day"), MofNCompleteColumn(), BarColumn(24), TimeElapsedColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[lines]:,} lines"), console=err, transient=True)
        self._task = self._bar.add_task("", total=days, lines=0)
        self._days, self._all_days, self._lines = 0, days, 0
        self._say_at = monotonic() + SAY_AGAIN_S

    def __enter__(self) -> None:
        if err.is_terminal:
            self._showing = asyncio.get_running_loop().call_later(QUIET_S, self._bar.start)

    def __exit__(self, *_: object) -> None:
        if err.is_terminal:
            self._showing.cancel()
            self._bar.stop()

    def advance(self, *, days: int = 0, lines: int = 0) -> None:
        self._days += days
        self._lines += lines
        self._bar.update(self._task, completed=self._days, lines=self._lines)
        if not err.is_terminal and monotonic() >= self._say_at:
            self._say_at = monotonic() + SAY_AGAIN_S
            err.print(f"{self._days} of {self._all_days} days, {self._lines:,} lines", highlight=False)
