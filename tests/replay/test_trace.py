import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.errors import InvalidRequest
from regionquota.replay.trace import MAX_UNITS, Trace, parse_trace, read_trace

REGIONS = ("eu", "us", "ap")


def lines(text: str) -> io.StringIO:
    return io.StringIO(text, newline="")


def test_columns_are_matched_by_name_whatever_their_order() -> None:
    trace = parse_trace(lines("bin,ap,eu,us\n0,1,2,3\n1,4,5,6\n"), REGIONS)
    assert ((2, 3, 1), (5, 6, 4)) == trace.demand
    assert () == trace.notes


def test_unknown_names_are_taken_in_order_and_the_surplus_is_folded() -> None:
    trace = parse_trace(lines("bin5min,us_west,us_east,eu_west,ap_ne\n0,107,111,45,48\n"), REGIONS)
    assert ((155, 111, 45),) == trace.demand
    assert (
        "columns that name no region were taken in order: us_west as eu, us_east as us, eu_west as ap",
        "more columns than regions, so these were added to others: ap_ne as eu",
    ) == trace.notes


def test_a_named_column_keeps_its_region_while_strangers_fill_the_rest() -> None:
    trace = parse_trace(lines("bin,x,eu,y\n0,1,2,3\n"), REGIONS)
    assert ((2, 1, 3),) == trace.demand


def test_a_region_without_a_column_has_no_demand_and_the_trace_says_so() -> None:
    trace = parse_trace(lines("bin,eu\n0,7\n"), REGIONS)
    assert ((7, 0, 0),) == trace.demand
    assert ("the trace has no column for us, ap: no demand there",) == trace.notes


def test_floats_are_scaled_then_rounded() -> None:
    assert ((3, 5, 0),) == parse_trace(lines("b,eu,us,ap\n0,1.3,2.4,0.2\n"), REGIONS, scale=2).demand


def test_blank_lines_are_nothing_and_a_part_can_be_chosen() -> None:
    text = "b,eu\n0,1\n\n1,2\n2,3\n3,4\n"
    assert ((2,), (3,)) == parse_trace(lines(text), ("eu",), skip=1, most=2).demand


def test_what_is_not_replayed_is_not_read() -> None:
    assert ((1,),) == parse_trace(lines("b,eu\n0,1\n1,rubbish\n"), ("eu",), most=1).demand


@pytest.mark.parametrize("cell", ["-1", "", "many", "nan", "inf", "1e300"])
def test_a_bad_cell_is_refused_with_its_line_and_column(cell: str) -> None:
    with pytest.raises(InvalidRequest, match=r"line 3, column us: demand must be a number") as refused:
        parse_trace(lines(f"b,eu,us\n0,1,1\n1,1,{cell}\n"), REGIONS)
    assert f'got "{cell}"' in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the trace is empty"),
        ("\n\n", "the trace is empty"),
        ("bin,eu\n", "no bins"),
        ("bin\n0\n", "line 1: a bin column and at least one"),
        ("bin,eu,eu\n0,1,1\n", "line 1: column eu appears twice"),
        ("bin,eu,\n0,1,1\n", "line 1: column 3 has no name"),
        ("0,107,111,45\n1,81,125,79\n", "line 1 is demand already: put a header above it, as in bin,eu,us,ap"),
        ("2019-01-01 00:00:00,107\n", "line 1 is demand already: put a header above it"),
        ("bin,eu,us\n0,1\n", "line 2: 2 cells, but the header has 3"),
        ("bin,eu\n0,1,2\n", "line 2: 3 cells, but the header has 2"),
        (f"bin,eu\n0,{MAX_UNITS}\n1,{MAX_UNITS}\n", "fewer bins, or a lower scale"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_trace(lines(text), REGIONS)


def test_a_bin_that_comes_after_a_later_one_is_told_of_once() -> None:
    by_time = parse_trace(lines("utc,eu\n2019-01-01 01:00,1\n2019-01-01 00:00Z,2\n2018-12-31 23:00,3\n"), ("eu",))
    assert (
        "line 3: bin 2019-01-01 00:00Z comes after 2019-01-01 01:00: rows are taken in the order in which they stand",
    ) == by_time.notes
    assert ((1,), (2,), (3,)) == by_time.demand
    assert () == parse_trace(lines("bin,eu\n9,1\n10,2\n"), ("eu",)).notes
    assert 1 == len(parse_trace(lines("bin,eu\n10,1\n9,2\n"), ("eu",)).notes)
    assert () == parse_trace(lines("bin,eu\nmon,1\nfri,2\n"), ("eu",)).notes


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "the trace is empty"), ("b,eu\n0,x\n", "line 2, column eu"), ("b,eu\n", "no bins"), ("b\n", "line 1")],
)
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=rf"trace\.csv: .*{message}"):
        read_trace(path, ("eu",))


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_a_senseless_scale_is_refused(scale: float) -> None:
    with pytest.raises(InvalidRequest, match="scale must be a number above 0"):
        parse_trace(lines("b,eu\n0,1\n"), REGIONS, scale=scale)


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("b,eu\r\n0,3\r\n", encoding="utf-8-sig")
    assert ((3,),) == read_trace(path, ("eu",)).demand


def test_a_file_that_cannot_be_read_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*: No such file"):
        read_trace(tmp_path / "none.csv", REGIONS)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="is not UTF-8 text"):
        read_trace(binary, REGIONS)


def test_the_mean_is_per_bin_over_all_regions() -> None:
    assert 4.5 == Trace(("eu", "us"), ((1, 2), (2, 4))).mean


@given(
    columns=st.lists(st.sampled_from(["eu", "us", "ap", "a", "b", "c", "d", "e"]), min_size=1, unique=True),
    rows=st.lists(st.lists(st.integers(0, 50), min_size=8, max_size=8), min_size=1, max_size=5),
)
def test_no_demand_is_lost_or_made_up(columns: list[str], rows: list[list[int]]) -> None:
    text = io.StringIO(newline="")
    used = [row[: len(columns)] for row in rows]
    csv.writer(text).writerows([["bin", *columns], *([at, *row] for at, row in enumerate(used))])
    trace = parse_trace(lines(text.getvalue()), REGIONS)
    assert [sum(row) for row in used] == [sum(demand) for demand in trace.demand]
