from typing import Any

import pytest
from tests.simulator.scenarios import work_of

from regionquota.errors import InvalidRequest
from regionquota.simulator.live import MAX_UNITS, Live, parse_duration, scaled_down, scenario_of, units_for_one
from regionquota.simulator.reading import otherwise


def live(**other: Any) -> Live:
    known: dict[str, Any] = {
        "name": "acme/tokens/global",
        "period": "minute",
        "limit": 600,
        "slices": {"eu": 300, "us": 250},
        "weights": {"eu": 100, "us": 200, "ap": 100},
        "rates": {"eu": 6.0, "us": 2.0},
        "watched_s": 20.0,
    }
    return Live(**{**known, **other})


@pytest.mark.parametrize(("text", "seconds"), [("1h", 3600), ("90m", 5400), ("30s", 30), ("1.5h", 5400)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


@pytest.mark.parametrize("text", ["", "1", "1d", "-1h", "0s", "25h", "h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--for takes a time"):
        parse_duration(text)


def test_percents_for_priorities_are_played_and_what_is_not_known_of_priorities_is_said() -> None:
    plain, assumed = scenario_of(live(fills={"normal_fill_percent": 90, "low_fill_percent": 80}), None, 60)
    wanted = otherwise(plain, [], "live").quota
    assert (90, 80) == (wanted.normal_fill_percent, wanted.low_fill_percent)
    assert "who asks at which priority is not reported: all ask at normal priority" in assumed
    _, assumed = scenario_of(live(fills={"normal_fill_percent": 100, "low_fill_percent": 100}), None, 60)
    assert not any("priority" in one for one in assumed)


def test_what_runs_becomes_a_scenario() -> None:
    plain, assumed = scenario_of(live(), "eu", 3600)
    wanted = otherwise(plain, [], "live")
    (event,) = wanted.events
    assert ("partition", "eu", 600, 4200) == (event.what, event.region, event.at_s, event.until_s)
    assert (600, {"ap": 0, "eu": 300, "us": 250}) == (wanted.quota.limit, wanted.quota.slices)
    assert {"ap": 100, "eu": 100, "us": 200} == {name: part.weight for name, part in wanted.regions.items()}
    assert (80, 60.0) == (wanted.demand.bins, wanted.demand.bin_s)
    assert any("eu 6/s, us 2/s" in note for note in assumed)


def test_demand_goes_on_as_it_is() -> None:
    plain, _ = scenario_of(live(), None, 600)
    work = work_of(otherwise(plain, [], "live"))
    each = [sum(request.region == region for request in work.requests) / work.seconds for region in range(3)]
    assert [0, pytest.approx(6, rel=0.05), pytest.approx(2, rel=0.05)] == each
    assert not work.happenings


def test_of_much_demand_one_unit_stands_for_several() -> None:
    plain, assumed = scenario_of(live(rates={"eu": 3000.0}, limit=100_000), "eu", 3600)
    work = work_of(otherwise(plain, [], "live"))
    assert len(work.requests) <= MAX_UNITS * 1.05
    assert scaled_down(live(limit=100_000), 144) in assumed
    assert 144 == units_for_one(live(rates={"eu": 3000.0}), 3600)
    assert "divided by 144, so one unit of the report, and of what --set says, stands for 144" in scaled_down(
        live(), 144
    )
    assert "of the limit that leaves 4, so that all figures are coarse" in scaled_down(live(), 144)
    assert "coarse" not in scaled_down(live(limit=14_400), 144)
    assert 100_000 // 144 == work.limit


def test_slices_above_a_limit_that_was_lowered_are_scaled_down() -> None:
    plain, assumed = scenario_of(live(limit=275), None, 600)
    assert {"ap": 0, "eu": 150, "us": 125} == otherwise(plain, [], "live").quota.slices
    assert "regions still own 550 of a limit that was lowered to 275: each gets the same part of its slice" in assumed


def test_rules_of_the_quota_are_played_too() -> None:
    rules = {
        "eu": {"weight": 300, "floor": 400, "cap": 500},
        "us": {"weight": None, "floor": 800, "cap": None},
        "gone": {"weight": 1, "floor": 0, "cap": None},
    }
    plain, _ = scenario_of(live(rules=rules), None, 600)
    regions = otherwise(plain, [], "live").quota.regions
    assert {"eu": (300, 200, 500), "us": (None, 400, None)} == {
        name: (part.weight, part.floor, part.cap) for name, part in regions.items()
    }


def test_a_region_that_is_unknown_or_a_period_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='unknown region "mars": known are ap, eu, us'):
        scenario_of(live(), "mars", 60)
    with pytest.raises(InvalidRequest, match="counted per month"):
        scenario_of(live(period="month"), "eu", 60)
