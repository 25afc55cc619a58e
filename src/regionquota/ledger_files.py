"""Lines of the usage ledger as they leave the database: their fields, and files that are whole or not there."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from regionquota.core.quota import Region
from regionquota.ledger_ports import LedgerLine

ONE_DAY: Final = timedelta(days=1)


def fields_of(line: LedgerLine) -> dict[str, Any]:
    """In the order of the columns; `at` in RFC 3339, UTC, to the microsecond that the database keeps."""
    entry = line.entry
    return {
        "id": line.position.id,
        "at": datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "tenant_id": entry.key.tenant,
        "resource": entry.key.resource,
        "scope": entry.key.scope,
        "epoch": entry.epoch,
        "kind": entry.kind.value,
        "delta": entry.delta,
        "reservation_id": entry.reservation_id,
        "request_id": entry.request_id,
        "reason": entry.reason,
    }


def json_lines(region: Region, lines: Sequence[LedgerLine]) -> bytes:
    """One object a line, each saying its region."""
    return b"".join(msgspec.json.encode({"region": region, **fields_of(line)}) + b"\n" for line in lines)


def day_of(now: float) -> date:
    """The day in UTC; `now` in seconds since 1970."""
    return datetime.fromtimestamp(now, UTC).date()


def start_of_day(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` at the end, durably; after an error `path` is as it was.

    Raises `OSError`. Blocks while it makes things durable.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _make_rename_durable(path.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def _make_rename_durable(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
