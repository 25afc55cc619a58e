"""A CSV of single requests: a header, then a time, units known beforehand, and units used on top, in any order."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

from regionquota.errors import InvalidRequest
from regionquota.replay.trace import MAX_UNITS, place_in_time
from regionquota.simulator.scenario import MAX_REQUESTS

Row = tuple[float, int, int]


def read_requests(path: Path) -> list[Row]:
    """By time, in seconds. Raises `InvalidRequest` that names the file and the line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            found = list(islice(_rows(lines), MAX_REQUESTS + 1))
    except OSError as error:
        raise InvalidRequest("demand", f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidRequest("demand", f"{path} is not CSV in UTF-8: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest("demand", f"{path}: {error}") from None
    if not found:
        raise InvalidRequest("demand", f"{path} has no requests: give it at least one row below the header")
    if len(found) > MAX_REQUESTS:
        raise InvalidRequest("demand", f"{path} has more than {MAX_REQUESTS:,} requests: take a part of it")
    return sorted(found, key=lambda row: row[0])


def _rows(lines: TextIO) -> Iterator[Row]:
    reader = csv.reader(lines)
    header = next(reader, None)
    if header is not None and place_in_time(header[0] if header else "") is not None:
        raise InvalidRequest("demand", "line 1 is a request already: put a header above it, as in time,known,used")
    for row in reader:
        if any(cell.strip() for cell in row):
            yield _parse(row, reader.line_num)


def _parse(row: Sequence[str], line: int) -> Row:
    if len(row) < 3:
        raise InvalidRequest(
            "demand", f"line {line}: {len(row)} cells, a time and two whole numbers are needed, by commas"
        )
    at = place_in_time(row[0])
    if at is None:
        raise InvalidRequest("demand", f'line {line}: a time in seconds or ISO 8601 is needed first, got "{row[0]}"')
    return at, _units(row[1], line), _units(row[2], line)


def _units(cell: str, line: int) -> int:
    try:
        units = int(cell)
    except ValueError:
        units = -1
    if not 0 <= units <= MAX_UNITS:
        raise InvalidRequest(
            "demand", f'line {line}: units must be whole numbers from 0 to {MAX_UNITS:,}, got "{cell.strip()}"'
        )
    return units
