"""Demand per bin and region, read from a CSV: a header, then one row per bin; the first column names the bin."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest

MAX_BINS: Final = 100_000
MAX_UNITS: Final = 2_000_000
"""Bounds on what one replay keeps in memory: some 30 bytes a unit."""


@dataclass(frozen=True, slots=True)
class Trace:
    """In bin `b`, `demand[b][i]` units are asked for in `regions[i]`. `notes` say what was made of the input."""

    regions: tuple[Region, ...]
    demand: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.demand:
            raise InvalidRequest("trace", "the trace has no bins: give it at least one row of demand below the header")
        if len(self.demand) > MAX_BINS:
            raise InvalidRequest("trace", f"the trace has more than {MAX_BINS} bins: replay a part of it")
        if self.units > MAX_UNITS:
            raise InvalidRequest(
                "trace",
                f"demand is {self.units:,} units, at most {MAX_UNITS:,} are played: fewer bins, or a lower scale",
            )

    @property
    def units(self) -> int:
        return sum(map(sum, self.demand))

    @property
    def mean(self) -> float:
        """Units per bin, over all regions."""
        return self.units / len(self.demand)


def read_trace(
    path: Path,
    regions: Sequence[Region],
    *,
    scale: float = 1.0,
    skip: int = 0,
    most: int | None = None,
    called: Callable[[str], str] = str,
) -> Trace:
    """Bins `skip` to `skip + most` of a file; `called` says what a column is called.

    Raises `InvalidRequest` that names the file, the line and the column.
    """
    with _opened(path) as lines:
        return parse_trace(lines, regions, scale=scale, skip=skip, most=most, called=called)


def read_columns(path: Path) -> Sequence[str]:
    """What the header calls each column of demand. Raises `InvalidRequest`."""
    with _opened(path) as lines:
        return _columns(_header(_rows(lines)))


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            try:
                yield lines
            except InvalidRequest as error:
                raise InvalidRequest(error.field, f"{path}: {error}") from None
    except OSError as error:
        raise InvalidRequest("trace", f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest("trace", f"{path} is not UTF-8 text") from error


def parse_trace(
    lines: Iterable[str],
    regions: Sequence[Region],
    *,
    scale: float = 1.0,
    skip: int = 0,
    most: int | None = None,
    called: Callable[[str], str] = str,
) -> Trace:
    if not (math.isfinite(scale) and scale > 0):
        raise InvalidRequest("scale", f"scale must be a number above 0, got {scale}")
    rows = _rows(lines)
    columns = [called(column) for column in _columns(_header(rows))]
    places, notes = _place(columns, regions)
    last = min(MAX_BINS + 1, MAX_BINS + 1 if most is None else most) + skip
    taken = list(islice(rows, skip, last))
    if skip and not taken:
        raise InvalidRequest("trace", f"the trace has no bins beyond the {skip:,} that are skipped: skip fewer")
    demand = tuple(_bin(row, columns, places, regions, scale) for row in taken)
    return Trace(tuple(regions), demand, (*notes, *_out_of_order(taken)))


_Row = tuple[int, list[str]]


def _rows(lines: Iterable[str]) -> Iterator[_Row]:
    """Rows that are not blank, with the line that each ends on."""
    reader = csv.reader(lines)
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except csv.Error as error:
        raise InvalidRequest("trace", f"line {reader.line_num}: {error}") from error


def _header(rows: Iterator[_Row]) -> list[str]:
    header = next(rows, None)
    if header is None:
        raise InvalidRequest("trace", "the trace is empty: it needs a header and one row per bin")
    return header[1]


def _columns(header: Sequence[str]) -> list[str]:
    if len(header) > 1 and place_in_time(header[0]) is not None and all(map(_is_number, header[1:])):
        raise InvalidRequest("trace", "line 1 is demand already: put a header above it, as in bin,eu,us,ap")
    columns = [cell.strip() for cell in header[1:]]
    if not columns:
        raise InvalidRequest("trace", "line 1: a bin column and at least one column of demand are needed, by commas")
    for at, column in enumerate(columns):
        if not column:
            raise InvalidRequest("trace", f"line 1: column {at + 2} has no name: name it, or take it out")
        if column in columns[:at]:
            raise InvalidRequest("trace", f"line 1: column {column} appears twice")
    return columns


def _place(columns: Sequence[str], regions: Sequence[Region]) -> tuple[Mapping[str, Region], tuple[str, ...]]:
    """Whose demand each column is: by name, then in order, then what is left over is folded round robin."""
    places = {column: column for column in columns if column in regions}
    strangers = [column for column in columns if column not in regions]
    free = [region for region in regions if region not in columns]
    in_order = dict(zip(strangers, free, strict=False))
    folded = {column: regions[at % len(regions)] for at, column in enumerate(strangers[len(free) :])}
    idle = free[len(strangers) :]
    notes = []
    if in_order:
        notes.append(f"columns that name no region were taken in order: {_pairs(in_order)}")
    if folded:
        notes.append(f"more columns than regions, so these were added to others: {_pairs(folded)}")
    if idle:
        notes.append(f"the trace has no column for {', '.join(idle)}: no demand there")
    return places | in_order | folded, tuple(notes)


def _pairs(places: Mapping[str, Region]) -> str:
    return ", ".join(f"{column} as {region}" for column, region in places.items())


def _bin(
    row: _Row, columns: Sequence[str], places: Mapping[str, Region], regions: Sequence[Region], scale: float
) -> tuple[int, ...]:
    line, cells = row
    if len(cells) != len(columns) + 1:
        raise InvalidRequest("trace", f"line {line}: {len(cells)} cells, but the header has {len(columns) + 1}")
    demand = dict.fromkeys(regions, 0)
    for column, cell in zip(columns, cells[1:], strict=True):
        demand[places[column]] += round(_number(cell, line, column) * scale)
    return tuple(demand.values())


def _out_of_order(rows: Sequence[_Row]) -> Sequence[str]:
    """Newest first, perhaps. Hours of the day begin again every morning: it need not be wrong."""
    for (_, before), (line, row) in pairwise(rows):
        earlier, later = place_in_time(before[0]), place_in_time(row[0])
        if earlier is not None and later is not None and earlier > later:
            what = f"line {line}: bin {row[0].strip()} comes after {before[0].strip()}"
            return (f"{what}: rows are taken in the order in which they stand",)
    return ()


def place_in_time(cell: str) -> float | None:
    """Of what names a bin, if that is a number or a time. Times without a zone are UTC, wherever they are read."""
    text = cell.strip()
    if _is_number(text):
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _number(cell: str, line: int, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_UNITS:
        wanted = f"demand must be a number from 0 to {MAX_UNITS:,}"
        raise InvalidRequest("trace", f'line {line}, column {column}: {wanted}, got "{cell}"')
    return value
