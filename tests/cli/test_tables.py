"""Tables on terminals of several widths, and where there is none."""

import io

import pytest
from rich.console import Console

from regionquota.cli.frame import print_table

ID = "0197d3a0-0000-7000-8000-000000000000"
WHY = "somebody who works at night found twelve of them in the inventory"
COLUMNS = ("id", "region", "amount", "held\nsince", "why")
ROWS = [(ID, "eu", 1_500, "12:00", WHY), (ID[::-1], "us", None, "12:01", "日本語")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, width: int, sink: io.StringIO, rows: list[tuple[object, ...]]) -> list[str]:
    monkeypatch.setattr("regionquota.cli.frame.out", Console(file=sink, width=width, color_system=None))
    print_table(COLUMNS, rows, prose=["why"])
    return [line.rstrip() for line in sink.getvalue().splitlines()]


@pytest.mark.parametrize("width", [1000, 140, 130, 110, 100, 96, 90, 80, 60, 40, 20])
def test_an_id_is_never_broken(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    said = "\n".join(shown(monkeypatch, width, Terminal(), [*ROWS]))
    assert ID in said
    assert ID[::-1] in said
    assert "1,500" in said
    assert all(word in said for word in WHY.split())


@pytest.mark.parametrize("width", [140, 110, 100, 90])
def test_a_table_is_no_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    assert max(map(len, shown(monkeypatch, width, Terminal(), [*ROWS]))) <= width


def test_prose_gives_way_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 110, Terminal(), [*ROWS])
    (row,) = (line for line in lines if ID in line)
    assert row.startswith(f"│ {ID} │ eu     │  1,500 │ 12:00 │ somebody who works at")


def test_then_the_lines_of_the_table_do(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 86, Terminal(), [*ROWS])
    (row,) = (line for line in lines if ID in line)
    assert row.startswith(f"{ID}  eu       1,500  12:00  somebody who works")


def test_in_the_end_cells_stand_one_below_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 40, Terminal(), [*ROWS])
    assert [
        f"id          {ID}",
        "region      eu",
        "amount      1,500",
        "held since  12:00",
        f"why         {WHY}",
    ] == lines[:5]
    assert ["", f"id          {ID[::-1]}", "region      us", "amount      -"] == lines[5:9]


def test_there_also_nothing_is_said_to_be_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["id, region, amount, held since, why: none"] == shown(monkeypatch, 20, Terminal(), [])


def test_two_columns_stand_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Terminal()
    monkeypatch.setattr("regionquota.cli.frame.out", Console(file=sink, width=20, color_system=None))
    print_table(("quota", "over"), [("acme/vcpu/global", 12_000), ("acme/calls/global", 3)], "more is held")
    expected = "more is held\nquota              over\nacme/vcpu/global   12,000\nacme/calls/global  3\n"
    assert expected == sink.getvalue()


def test_without_a_terminal_each_row_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80, io.StringIO(), [*ROWS])
    (row,) = (line for line in lines if ID in line)
    assert f"│ {ID} │ eu     │  1,500 │ 12:00 │ {WHY} │" == row
