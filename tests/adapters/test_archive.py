"""Days of the usage ledger as files: whole, or not there."""

import gzip
import json
from collections.abc import AsyncGenerator, Sequence
from datetime import date
from pathlib import Path

import pytest
from tests.core.builders import NOON, QUOTA

from regionquota.adapters.archive import DirectoryArchive
from regionquota.core.entries import Entry, EntryKind
from regionquota.ledger_files import whole_file
from regionquota.ledger_ports import LedgerLine, LedgerPosition

TODAY = date(2026, 6, 15)
NAME = "usage-ledger-eu-2026-06-15.jsonl.gz"


def line(number: int) -> LedgerLine:
    return LedgerLine(LedgerPosition(7, number), Entry(QUOTA, 0, EntryKind.ADJUST, number, NOON + 0.000001))


async def parts(*sizes: int, breaks: bool = False) -> AsyncGenerator[Sequence[LedgerLine], None]:
    for size in sizes:
        yield [line(n + 1) for n in range(size)]
    if breaks:
        raise ConnectionError("in the middle")


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(one) for one in gzip.decompress(path.read_bytes()).splitlines()]


async def test_each_line_is_an_object_that_says_all(tmp_path: Path) -> None:
    assert 1 == await DirectoryArchive(tmp_path, "eu").keep(TODAY, parts(1))
    assert [
        {
            "region": "eu",
            "id": 1,
            "at": "2026-06-15T12:00:00.000001Z",
            "tenant_id": "acme",
            "resource": "vcpu",
            "scope": "global",
            "epoch": 0,
            "kind": "adjust",
            "delta": 1,
            "reservation_id": None,
            "request_id": None,
            "reason": "",
        }
    ] == read(tmp_path / NAME)


async def test_all_parts_of_a_day_are_in_one_file(tmp_path: Path) -> None:
    assert 5 == await DirectoryArchive(tmp_path, "eu").keep(TODAY, parts(2, 3))
    assert 5 == len(read(tmp_path / NAME))


async def test_a_day_without_lines_is_an_empty_file(tmp_path: Path) -> None:
    assert 0 == await DirectoryArchive(tmp_path, "eu").keep(TODAY, parts())
    assert [] == read(tmp_path / NAME)


async def test_keeping_a_day_again_makes_the_same_file(tmp_path: Path) -> None:
    archive = DirectoryArchive(tmp_path, "eu")
    await archive.keep(TODAY, parts(2))
    before = (tmp_path / NAME).read_bytes()
    await archive.keep(TODAY, parts(2))
    assert before == (tmp_path / NAME).read_bytes()


async def test_what_breaks_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    archive = DirectoryArchive(tmp_path, "eu")
    await archive.keep(TODAY, parts(2))
    with pytest.raises(ConnectionError):
        await archive.keep(TODAY, parts(3, breaks=True))
    assert [NAME] == names(tmp_path)
    assert 2 == len(read(tmp_path / NAME))


async def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await DirectoryArchive(tmp_path / "gone", "eu").keep(TODAY, parts(1))


def test_a_file_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
    assert b"half" == path.read_bytes()
    assert ["file"] == names(tmp_path)
