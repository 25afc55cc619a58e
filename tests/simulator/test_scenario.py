from pathlib import Path
from typing import Any

import msgspec
import pytest

from regionquota.errors import InvalidRequest
from regionquota.simulator.reading import checked, read_scenario
from regionquota.simulator.scenario import (
    CoordinatorPart,
    DemandPart,
    EventPart,
    QuotaPart,
    RegionPart,
    RulesPart,
    Scenario,
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
        ({"name": None}, "name takes a text of 1 to 1,000 characters, got null"),
        ({"typo": 1}, "file.toml: unknown field typo: known are name, shows, demand, regions"),
        ({"regions": {}}, "regions is missing"),
        ({"regions": {"EU": {}}}, 'a name in regions takes 1 to 63 characters of a-z, 0-9, - and _, got "EU"'),
        ({"regions": {f"r{number}": {} for number in range(17)}}, "regions takes a table of at most 16 regions"),
        ({"regions": {"eu": {"weight": -1}}}, "regions.eu.weight takes an integer from 0 to 10000000, got -1"),
        ({"regions": {"eu": {"round_trip_s": float("nan")}}}, "eu.round_trip_s takes a number from 0 to 60, got NaN"),
        ({"demand": {}}, "demand takes one of trace, requests, shape and rates, got none"),
        ({"demand": {"shape": "flat", "trace": "x.csv"}}, "demand takes one of"),
        (
            {"demand": {"shape": "square"}},
            'takes one of "follow_the_sun", "bursts", "drift", "idle_then_jump", "clients", "flat", got "square"',
        ),
        ({"demand": {"shap": "flat"}}, "unknown field demand.shap: did you mean shape?"),
        ({"demand": None}, "demand takes a table, got null"),
        ({"demand": {"trace": "a\0b"}}, "demand.trace takes the path of a CSV"),
        ({"demand": {"shape": "flat", "skip": 10**30}}, "demand.skip takes an integer from 0 to 1000000000"),
        ({"demand": {"shape": "flat", "bins": 0}}, "demand.bins"),
        ({"demand": {"shape": "flat", "bin_s": 0}}, "demand.bin_s"),
        ({"demand": {"shape": "flat", "mean": float("inf")}}, "demand.mean"),
        ({"demand": {"shape": "flat", "low": 1.5}}, "demand.low takes a number from 0 to 1, or a table"),
        (
            {"demand": {"shape": "flat", "low": 0.6, "high": 0.5}},
            "demand.low of eu must not be above 1 together",
        ),
        (
            {"demand": {"shape": "flat", "low": {"us": 0.6}, "high": {"us": 0.5}}},
            "low of us must not be above 1 together",
        ),
        (
            {"demand": {"shape": "flat", "high": {"ap": 0.6}}},
            "high names ap, which is no region here: known are eu, us",
        ),
        ({"quota": {"low_fill_percent": 101}}, "quota.low_fill_percent"),
        ({"quota": {"normal_fill_percent": 50}}, "quota.low_fill_percent must not be above quota.normal_fill_percent"),
        ({"quota": {"limit": -1}}, "quota.limit"),
        ({"quota": {"regions": {"mars": {"floor": 1}}}}, "quota.regions names mars, which is no region here"),
        ({"quota": {"regions": {"eu": {"flor": 1}}}}, "unknown field quota.regions.eu.flor: did you mean floor?"),
        ({"quota": {"regions": {"eu": {"weight": -1}}}}, "quota.regions.eu.weight takes an integer from 0"),
        (
            {"quota": {"regions": {"eu": {"floor": 2, "cap": 1}}}},
            "quota.regions.eu: the floor must not be above the cap",
        ),
        ({"quota": {"slices": {"eu": 1}}}, "quota.limit is missing: quota.slices need it"),
        (
            {"quota": {"limit": 1, "slices": {"eu": 2}}},
            "quota.slices must not add up to more than quota.limit, got 2 > 1",
        ),
        ({"policies": []}, "policies takes a list of one or more of oracle, static"),
        ({"policies": ["best"]}, 'policies[0] takes one of "oracle"'),
        ({"seed": -1}, "seed"),
        ({"wait_s": -1}, "wait_s"),
        ({"coordinator": {"low_water": 2}}, "coordinator.low_water takes a number from 0 to 1, got 2"),
        ({"coordinator": {"interval_s": 1e-9}}, "coordinator.interval_s takes a number from 0.01"),
        ({"coordinator": {"smallest_pool_share": 0.9}}, "must not be above coordinator.largest_pool_share, got 0.9 >"),
        ({"events": [event(region="mars")]}, 'events[0]: unknown region "mars": known are eu, us'),
        ({"events": [event(region="eux")]}, 'events[0]: unknown region "eux": did you mean eu?'),
        ({"events": [event(region=None)]}, "events[0].region is missing: partition takes one of eu, us"),
        ({"events": [event(until_s=10)]}, "events[0]: until_s must be later than at_s, 10"),
        ({"events": [event(what="flood")]}, 'events[0].what takes one of "partition", "region_down"'),
        ({"events": {"what": "partition"}}, "events takes a list of tables, each begun by [[events]]"),
        ({"events": [{"what": "partition", "region": "eu"}]}, "events[0].at_s is missing: it takes a number from 0"),
        ({"events": [event(weight=7)]}, 'events[0]: weight goes with what = "weight", not with partition'),
        ({"events": [event(what="weight", weight=7)]}, "events[0]: a weight stays as it is set: leave until_s out"),
        ({"events": [event(what="weight", until_s=None)]}, "events[0].weight is missing"),
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
        ("demand.shape=round", r"demand\.shape takes"),
        ("=1", "unknown field"),
        ("demand.bin=30", r"--set demand\.bin=30: unknown field demand\.bin: did you mean bins\?"),
        ("demnd.bins=30", r"--set demnd\.bins=30: unknown field demnd: did you mean demand\?"),
        ("regions.mars.weight=3", r'--set regions\.mars\.weight=3: unknown region "mars": known are eu; the file adds'),
        ("regions.eux={}", r'unknown region "eux": did you mean eu\?'),
        ("quota.regions.mars.floor=3", "quota.regions names mars, which is no region here: known are eu"),
        ("events.0.at_s=3", r"--set events\.0\.at_s=3: events takes a list of tables"),
        ("seed=" + "9" * 5000, "seed takes an integer"),
        ("seed=" + "[" * 5000, "seed takes an integer"),
    ):
        with pytest.raises(InvalidRequest, match=says) as refused:
            read_scenario(file, [word])
        assert len(str(refused.value)) < 300


def test_what_is_wrong_in_the_file_is_not_blamed_on_what_was_said(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nshape = "round"\n')
    with pytest.raises(InvalidRequest, match=r"s\.toml: demand\.shape takes one of") as refused:
        read_scenario(file, ["quota.limit=7"])
    assert "--set" not in str(refused.value)


def test_a_list_is_said_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nshape = "flat"\n[[events]]\nat_s = 1\n')
    with pytest.raises(InvalidRequest, match=r"events is a list: say all of it, as in --set 'events=\[\.\.\.\]'"):
        read_scenario(file, ["events.0.at_s=3"])
    assert () == tuple(read_scenario(file, ["events=[]"]).events)


def test_no_region_is_made_up_where_the_trace_has_them(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[demand]\ntrace = "t.csv"\n')
    with pytest.raises(InvalidRequest, match=r"--set regions\.cal\.weight=3: the scenario has no \[regions\]: "):
        read_scenario(file, ["regions.cal.weight=3"])


def test_of_what_excludes_each_other_the_last_that_is_said_counts(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\ntrace = "t.csv"\n[quota]\nlimit = 5\n')
    changed = read_scenario(file, ["demand.rates.eu=3", "quota.limit_factor=2"])
    assert (None, {"eu": 3.0}) == (changed.demand.trace, changed.demand.rates)
    assert (None, 2.0) == (changed.quota.limit, changed.quota.limit_factor)


def test_a_file_of_another_editor_is_read(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    text = 'name = "n"\r\nshows = "s"\r\n[regions]\r\neu = {}\r\n[demand]\r\nshape = "flat"\r\n'
    file.write_text(text, encoding="utf-8-sig", newline="")
    assert "n" == read_scenario(file).name
    file.write_text("seed = " + "9" * 5000)
    with pytest.raises(InvalidRequest, match=r"s\.toml is not TOML"):
        read_scenario(file)
    file.write_text("[regions]\neu = {}\neu = {}\n")
    with pytest.raises(InvalidRequest, match=r"s\.toml is not TOML: Cannot overwrite a value \(at line 3"):
        read_scenario(file)
    file.write_text("")
    with pytest.raises(InvalidRequest, match=r"s\.toml: name is missing: it takes a text"):
        read_scenario(file)


def test_a_trace_goes_before_a_shape(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\nshape = "flat"\n')
    demand = read_scenario(file, trace=Path("/t.csv")).demand
    assert ("/t.csv", None) == (demand.trace, demand.shape)
    file.write_text(
        'name = "n"\nshows = "s"\n[regions]\neu = {}\n[demand]\ntrace = "t.csv"\nscale = 0.01\nskip = 9\nbins = 7\n'
    )
    demand = read_scenario(file, trace=Path("/t.csv")).demand
    assert (1.0, 0, 7) == (demand.scale, demand.skip, demand.bins)
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
