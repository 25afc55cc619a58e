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
        ("h\n", "has 0 requests"),
        ("h\nsoon,1,1\n", "line 2"),
        ("h\n1.5,1\n", "line 2"),
        ("h\n1.5,1,x\n", "line 2"),
        ("h\n1.5,-1,0\n", "line 2"),
        ("h\n1.5,0,0\n", "nobody asks for anything"),
    ],
)
def test_a_list_of_requests_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InvalidRequest, match=says):
        work_of(scenario(demand={"shape": None, "requests": str(tmp_path / "r.csv")}))


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
