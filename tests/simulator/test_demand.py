import time
from pathlib import Path

import pytest
from tests.simulator.scenarios import scenario, work_of

from regionquota.core.policy import Priority
from regionquota.errors import InvalidRequest
from regionquota.simulator.demand import with_regions, workload
from regionquota.simulator.reading import checked
from regionquota.simulator.report import demand_by_bin

SHAPES = ("follow_the_sun", "bursts", "drift", "idle_then_jump", "clients", "flat")


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_seed_makes_the_same_demand_and_another_another(shape: str) -> None:
    first, same, other = (work_of(scenario(demand={"shape": shape}, seed=seed)) for seed in (1, 1, 2))
    assert first == same
    assert first.requests != other.requests


@pytest.mark.parametrize("shape", SHAPES)
def test_requests_are_in_order_and_within_the_scenario(shape: str) -> None:
    work = work_of(scenario(demand={"shape": shape}))
    times = [request.at for request in work.requests]
    assert times == sorted(times)
    assert 0 <= times[0]
    assert times[-1] < work.seconds == 600


def test_the_limit_is_a_multiple_of_the_mean_of_a_bin_or_as_said() -> None:
    work = work_of(scenario(quota={"limit_factor": 1.5}))
    assert round(1.5 * len(work.requests) / 20) == work.limit
    assert 7 == work_of(scenario(quota={"limit": 7})).limit


def test_floors_above_the_limit_are_refused() -> None:
    floors = {"eu": {"floor": 5}, "us": {"floor": 3}}
    with pytest.raises(InvalidRequest, match="the floors add up to 8, above the limit 7"):
        work_of(scenario(quota={"limit": 7, "regions": floors}))


def test_idle_then_jump_jumps_a_hundredfold() -> None:
    rows = demand_by_bin(work_of(scenario(demand={"shape": "idle_then_jump", "mean": 1000, "factor": 100, "bins": 6})))
    assert all(rows[bin_][bin_ // 2] > 50 * rows[bin_][(bin_ // 2 + 1) % 3] for bin_ in range(6))


def test_nobody_asks_in_a_region_that_is_down() -> None:
    down = {"what": "region_down", "region": "us", "at_s": 60, "until_s": 120}
    work = work_of(scenario(events=[down]))
    at = [request.at for request in work.requests if request.region == 1]
    assert at
    assert not [one for one in at if 60 <= one < 120]
    assert work.limit == work_of(scenario()).limit


def test_regions_are_the_columns_of_a_trace_unless_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("hour,CAL,New York\n0,2,3\n1,4,5\n")
    plain = {"name": "n", "shows": "s", "demand": {"trace": "t.csv", "bin_s": 60}}
    known = with_regions(checked(plain, "f"), tmp_path)
    assert ["cal", "new-york"] == list(known.regions)
    assert [[2, 3], [4, 5]] == demand_by_bin(workload(known, tmp_path))


def test_a_trace_of_too_many_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bin," + ",".join(f"r{number}" for number in range(17)) + "\n")
    plain = {"name": "n", "shows": "s", "demand": {"trace": "t.csv"}}
    with pytest.raises(InvalidRequest, match="17 columns of demand, at most 16"):
        with_regions(checked(plain, "f"), tmp_path)


def test_single_requests_reserve_the_most_and_use_what_they_used(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        "TIMESTAMP,Context,Generated\n2023-11-16 18:17:03.9799600,480,10\n2023-11-16 18:17:34.0319600,318,90\n"
    )
    work = work_of(scenario(demand={"shape": None, "requests": str(tmp_path / "r.csv"), "most": 50}))
    assert [(0, 530, 490), (1, 408, 408)] == [(one.region, one.units, one.used) for one in work.requests]
    assert [0.0, pytest.approx(30.052)] == [one.at for one in work.requests]
    assert 2 == work.bins


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "r.csv has no requests: give it at least one row below the header"),
        ("h\n", "r.csv has no requests"),
        ("1.5,1,1\n2.5,1,1\n", "r.csv: line 1 is a request already: put a header above it"),
        ("2023-11-16 18:17:03,1,1\n", "r.csv: line 1 is a request already"),
        ("h\nsoon,1,1\n", 'r.csv: line 2: a time in seconds or ISO 8601 is needed first, got "soon"'),
        ("h\n1.5,1\n", "r.csv: line 2: 2 cells, a time and two whole numbers are needed"),
        ("h\n1.5,1,x\n", 'r.csv: line 2: units must be whole numbers from 0 to 2,000,000, got "x"'),
        ("h\n\n1.5,-1,0\n", "r.csv: line 3: units must be"),
        ("h\n1.5,9999999999,0\n", "r.csv: line 2: units must be"),
        (f"h\n1,1,1\n{'9' * 400},1,1\n", "r.csv: line 3: a time"),
        ("h\nnan,1,1\n", "r.csv: line 2: a time"),
        ("h\n0,1,1\n9e15,1,1\n", "at most 100,000 are simulated: say demand.bins, or a longer demand.bin_s"),
    ],
)
def test_a_list_of_requests_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    wanted = scenario(demand={"shape": None, "bins": None, "requests": str(tmp_path / "r.csv")})
    with pytest.raises(InvalidRequest) as refused:
        work_of(wanted)
    assert says in str(refused.value)
    assert str(refused.value).startswith("demand.requests: ")


def test_requests_of_which_nobody_asks_for_anything_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("h\n1.5,0,0\n")
    with pytest.raises(InvalidRequest, match="nobody asks for anything"):
        work_of(scenario(demand={"shape": None, "requests": str(tmp_path / "r.csv")}))


def test_requests_are_put_in_order_and_times_mean_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.csv").write_text(
        "t,a,b\r\n2026-03-29 03:00:00,2,0\r\n2026-03-29T03:00:01+02:00,1,0\r\n2026-03-29 01:30:00,3,0\r\n",
        encoding="utf-8-sig",
        newline="",
    )
    monkeypatch.setenv("TZ", "Europe/Berlin")  # in which the clocks go forward between these
    time.tzset()
    try:
        demand = {"shape": None, "bins": None, "bin_s": 3600, "requests": str(tmp_path / "r.csv")}
        work = work_of(scenario(demand=demand))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [(0.0, 1), (1799.0, 3), (7199.0, 2)] == [(one.at, one.units) for one in work.requests]
    assert 2 == work.bins


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "t.csv: the trace is empty"),
        ("bin,eu,us,ap\n", "t.csv: the trace has no bins"),
        ("0,1,2,3\n1,2,3,4\n", "t.csv: line 1 is demand already"),
        ("bin,eu,us,ap\n0,1,2\n", "t.csv: line 2: 3 cells, but the header has 4"),
        ("bin,eu,us,ap\n0,1,2,nan\n", "t.csv: line 2, column ap: demand must be a number from 0"),
        ("bin,eu,us,ap,total\n0,1,1,1,3\n", "t.csv: column total is no region here: known are eu, us, ap; name it in"),
        ("bin,eu,us,app\n0,1,1,1\n", "t.csv: column app is no region here: did you mean ap?"),
        ("bin,a,b,c,d\n0,1,1,1,3\n", "has 4 columns of demand, but there are 3 regions: name its columns in [regions]"),
        ("bin,EU,eu\n0,1,1\n", 'line 1: columns "EU" and "eu" are both region eu: rename one'),
    ],
)
def test_a_trace_that_does_not_fit_is_refused_by_its_name(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidRequest) as refused:
        work_of(scenario(demand={"shape": None, "bins": None, "trace": str(tmp_path / "t.csv")}))
    assert says in str(refused.value)
    assert str(refused.value).startswith("demand.trace: ")


def test_columns_are_regions_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bin,US,EU\n0,2,3\n")
    work = work_of(scenario(demand={"shape": None, "bins": None, "trace": str(tmp_path / "t.csv")}))
    assert ([[3, 2, 0]], ("the trace has no column for ap: no demand there",)) == (demand_by_bin(work), work.notes)


def test_a_trace_is_played_to_its_end_unless_bins_are_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bin,eu\n" + "0,1\n" * 300)
    demand = {"shape": None, "bins": None, "trace": str(tmp_path / "t.csv")}
    assert 300 == work_of(scenario(demand=demand)).bins
    assert 7 == work_of(scenario(demand={**demand, "bins": 7})).bins
    longer = work_of(scenario(demand={**demand, "bins": 900}))
    assert 300 == longer.bins
    assert "demand.bins is 900, but the file has 300 only: so many are played" in longer.warnings
    with pytest.raises(InvalidRequest, match="no bins beyond the 300 that are skipped"):
        work_of(scenario(demand={**demand, "skip": 300}))
    assert 288 == work_of(scenario(demand={"bins": None})).bins


def test_a_limit_of_nothing_is_told() -> None:
    with pytest.raises(InvalidRequest, match="the limit comes to 0 units for each bin: raise quota"):
        work_of(scenario(quota={"limit_factor": 1e-6}))
    assert ("the limit is 0 units: everything is denied, by every policy",) == work_of(
        scenario(quota={"limit": 0})
    ).warnings


def test_what_changes_nothing_is_warned_of() -> None:
    events = [
        {"what": "partition", "region": "eu", "at_s": 500, "until_s": 9999},
        {"what": "coordinator_down", "at_s": 600},
    ]
    work = work_of(scenario(demand={"clients": 7, "scale": 2, "days": 3}, events=events))
    assert (
        "demand.clients changes nothing: it goes with clients, and this demand is follow_the_sun",
        "events[1] (coordinator_down) begins at 600 s, but the scenario ends at 600 s: it changes nothing",
    ) == work.warnings
    assert [("partition", 500, 600)] == [(one.what, one.begin, one.end) for one in work.happenings]


def test_names_in_a_scenario_without_regions_are_those_of_the_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("hour,CAL,NY\n0,2,3\n")
    plain = {"name": "n", "shows": "s", "demand": {"trace": "t.csv"}}
    event = {"what": "partition", "at_s": 0}
    known = with_regions(checked({**plain, "events": [{**event, "region": "cal"}]}, "f"), tmp_path)
    assert 0 == workload(known, tmp_path).happenings[0].region
    with pytest.raises(InvalidRequest, match=r'are the regions: events\[0\]: unknown region "call"'):
        with_regions(checked({**plain, "events": [{**event, "region": "call"}]}, "f"), tmp_path)


def test_too_many_requests_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="units"):
        work_of(scenario(demand={"mean": 1e6}))


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    for field in ("trace", "requests"):
        with pytest.raises(InvalidRequest, match=r"none\.csv"):
            work_of(scenario(demand={"shape": None, field: str(tmp_path / "none.csv")}))


def test_priorities_are_drawn_in_their_shares_and_change_nothing_else() -> None:
    plain = work_of(scenario(demand={"mean": 200}))
    work = work_of(scenario(demand={"mean": 200, "high": 0.1, "low": {"us": 0.5, "ap": 0.9}}))
    assert [(one.at, one.region) for one in plain.requests] == [(one.at, one.region) for one in work.requests]
    assert {Priority.NORMAL} == {one.priority for one in plain.requests}
    for region, shares in enumerate([(0.1, 0.0), (0.1, 0.5), (0.1, 0.9)]):
        asked = [one.priority for one in work.requests if one.region == region]
        for priority, share in zip((Priority.HIGH, Priority.LOW), shares, strict=True):
            assert abs(asked.count(priority) / len(asked) - share) < 0.03
