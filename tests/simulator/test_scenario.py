from pathlib import Path
from typing import Any

import msgspec
import pytest

from regionquota.errors import InvalidRequest
from regionquota.simulator.scenario import (
    CoordinatorPart,
    DemandPart,
    EventPart,
    QuotaPart,
    RegionPart,
    RulesPart,
    Scenario,
    checked,
    read_scenario,
)

GOOD: dict[str, Any] = {
    "name": "n",
    "shows": "s",
    "regions": {"eu": {}, "us": {}},
    "demand": {"shape": "flat"},
}
FILES = sorted((Path(__file__).parents[2] / "simulations").glob("*.toml"))


def event(**parts: Any) -> dict[str, Any]:
    return {"what": "partition", "region": "eu", "at_s": 10, "until_s": 20, **parts}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": None}, "$.name"),
        ({"typo": 1}, "typo"),
        ({"regions": {}}, "regions is missing"),
        ({"regions": {"EU": {}}}, "$.regions"),
        ({"regions": {f"r{number}": {} for number in range(17)}}, "$.regions"),
        ({"regions": {"eu": {"weight": -1}}}, "weight"),
        ({"regions": {"eu": {"round_trip_s": float("nan")}}}, "round_trip_s"),
        ({"demand": {}}, "demand takes one of trace, requests, shape and rates"),
        ({"demand": {"shape": "flat", "trace": "x.csv"}}, "demand takes one of"),
        ({"demand": {"shape": "square"}}, "$.demand.shape"),
        ({"demand": {"shape": "flat", "bins": 0}}, "$.demand.bins"),
        ({"demand": {"shape": "flat", "bin_s": 0}}, "$.demand.bin_s"),
        ({"demand": {"shape": "flat", "mean": float("inf")}}, "$.demand.mean"),
        ({"demand": {"shape": "flat", "low": 1.5}}, "$.demand.low"),
        (
            {"demand": {"shape": "flat", "low": 0.6, "high": 0.5}},
            "demand.low of eu must not be above 1",
        ),
        (
            {"demand": {"shape": "flat", "low": {"us": 0.6}, "high": {"us": 0.5}}},
            "low of us must not be above 1",
        ),
        ({"demand": {"shape": "flat", "high": {"ap": 0.6}}}, "demand.high names ap, which is no region here"),
        ({"quota": {"low_fill_percent": 101}}, "$.quota.low_fill_percent"),
        ({"quota": {"normal_fill_percent": 50}}, "quota.low_fill_percent must not be above quota.normal_fill_percent"),
        ({"quota": {"limit": -1}}, "$.quota.limit"),
        ({"quota": {"regions": {"mars": {"floor": 1}}}}, "quota.regions names mars, which is no region here"),
        ({"quota": {"regions": {"eu": {"flor": 1}}}}, "flor"),
        ({"quota": {"regions": {"eu": {"weight": -1}}}}, "$.quota.regions"),
        (
            {"quota": {"regions": {"eu": {"floor": 2, "cap": 1}}}},
            "quota.regions.eu: the floor must not be above the cap",
        ),
        ({"policies": []}, "$.policies"),
        ({"policies": ["best"]}, "$.policies"),
        ({"seed": -1}, "$.seed"),
        ({"wait_s": -1}, "$.wait_s"),
        ({"coordinator": {"low_water": 2}}, "$.coordinator.low_water"),
        ({"events": [event(region="mars")]}, 'events[0]: region must be one of eu, us, got "mars"'),
        ({"events": [event(region=None)]}, "events[0]: region must be one of eu, us"),
        ({"events": [event(until_s=10)]}, "events[0]: until_s must be later than at_s, 10"),
        ({"events": [event(what="flood")]}, "$.events[0].what"),
        ({"events": [event(what="coordinator_down")]}, "events[0]: coordinator_down takes no region"),
        ({"events": [event(), event(what="region_down", at_s=15)]}, "events[0] and events[1] overlap"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked({**GOOD, **change}, "file.toml")
    assert says in str(refused.value)
    assert "file.toml" in str(refused.value)


def test_events_of_other_regions_or_later_do_not_overlap() -> None:
    events = [event(), event(region="us"), event(at_s=20, until_s=30), {"what": "coordinator_down", "at_s": 0}]
    assert 4 == len(checked({**GOOD, "events": events}, "f").events)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*none\.toml"):
        read_scenario(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InvalidRequest, match=r"bad\.toml is not TOML"):
        read_scenario(tmp_path / "bad.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=r"bytes\.toml is not TOML"):
        read_scenario(tmp_path / "bytes.toml")


def test_single_fields_are_said_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nshape = "flat"\n')
    changed = read_scenario(file, ["quota.limit=7", "name=other", "demand.bin_s = 30"])
    assert (7, "other", 30.0) == (changed.quota.limit, changed.name, changed.demand.bin_s)
    for word, says in (
        ("quota.limit", "--set takes FIELD=VALUE"),
        ("name.first=1", "name has no fields"),
        ("demand.shape=round", r"\$\.demand\.shape"),
        ("=1", "unknown field"),
    ):
        with pytest.raises(InvalidRequest, match=says):
            read_scenario(file, [word])


def test_a_trace_goes_before_a_shape(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nshape = "flat"\n')
    demand = read_scenario(file, trace=Path("/t.csv")).demand
    assert ("/t.csv", None) == (demand.trace, demand.shape)
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nrequests = "r.csv"\n')
    assert "/t.csv" == read_scenario(file, trace=Path("/t.csv")).demand.requests


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_scenario_of_the_gallery_says_what_it_shows(file: Path) -> None:
    known = read_scenario(file)
    assert known.shows.endswith(".")
    assert len({read_scenario(other).name for other in FILES}) == len(FILES)


@pytest.mark.parametrize(
    ("part", "before"),
    [
        (DemandPart, "demand."),
        (QuotaPart, "quota."),
        (CoordinatorPart, "coordinator."),
        (RegionPart, "regions.NAME."),
        (RulesPart, "quota.regions.NAME."),
        (EventPart, ""),
        (Scenario, ""),
    ],
)
def test_every_field_is_told_in_the_documentation(part: type[msgspec.Struct], before: str) -> None:
    told = (Path(__file__).parents[2] / "docs/scenarios.md").read_text()
    nested = ("regions", "demand", "quota", "coordinator", "rates", "slices")
    for name in msgspec.structs.fields(part):
        words = (f"`{before}{name.name}`", f"`.{name.name}`", f"`{name.name}`")
        assert name.name in nested or any(word in told for word in words), name.name
