"""The product in virtual time: whatever happens to it, no bin is admitted more than the limit."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulator.scenarios import scenario, work_of

from regionquota.adapters.memory.demand_history import MemoryDemandHistory
from regionquota.core.forecast import Counted, Past
from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey
from regionquota.simulator import deployment
from regionquota.simulator.deployment import period_of
from regionquota.simulator.outcome import Outcome
from regionquota.simulator.policies import play
from regionquota.simulator.scenario import Scenario

REGIONS = ("eu", "us", "ap")


def ours(wanted: Scenario, policy: str = "ours") -> Outcome:
    return play(policy, wanted, work_of(wanted))


def test_the_same_seed_has_the_same_outcome() -> None:
    wanted = scenario()
    assert ours(wanted) == ours(wanted)


def test_everything_asked_for_is_admitted_or_denied() -> None:
    wanted = scenario(wait_s=2)
    outcome = ours(wanted)
    assert len(work_of(wanted).requests) == outcome.admitted + outcome.denied


def test_what_is_asked_for_far_below_the_limit_is_never_denied_once_a_region_knows_the_quota() -> None:
    outcome = ours(scenario(quota={"limit_factor": 20}))
    assert 0 == outcome.denied


def test_rounds_alone_serve_less_than_fast_paths() -> None:
    wanted = scenario(demand={"shape": "idle_then_jump", "mean": 60, "bins": 24}, quota={"limit_factor": 1.2})
    assert ours(wanted, "periodic").admitted < ours(wanted).admitted


def test_a_region_that_is_cut_off_goes_on_with_what_it_has_and_is_frozen_meanwhile() -> None:
    wanted = scenario(
        demand={"shape": "flat", "bins": 20, "bin_s": 60},
        events=[{"what": "partition", "region": "us", "at_s": 300, "until_s": 600}],
    )
    outcome = ours(wanted)
    assert all(row[1] > 0 for row in outcome.admitted_in)
    (span,) = [span for span in outcome.spans if span.region == "us"]
    assert 300 < span.begin < 300 + 3 * 15
    assert 600 < span.end < 600 + 3 * 15
    assert not [one for one in outcome.transfers if 320 < one.at < 600 and "us" in {*one.gave, *one.got}]


def test_a_region_that_was_lost_comes_back_with_what_its_database_holds() -> None:
    wanted = scenario(
        demand={"shape": "flat", "bins": 20, "bin_s": 60},
        events=[{"what": "region_down", "region": "us", "at_s": 300, "until_s": 600}],
    )
    outcome = ours(wanted)
    assert [0] * 5 == [row[1] for row in outcome.admitted_in[5:10]]
    assert all(row[1] > 0 for row in outcome.admitted_in[10:])


def test_nothing_is_planned_without_a_coordinator() -> None:
    wanted = scenario(
        demand={"shape": "drift", "bins": 20, "bin_s": 60, "mean": 40},
        events=[{"what": "coordinator_down", "at_s": 300, "until_s": 900}],
    )
    outcome = ours(wanted)
    assert not [one for one in outcome.transfers if 310 < one.at < 900 and one.gave]
    assert [one for one in outcome.transfers if 900 < one.at and one.gave]


def test_floors_and_caps_of_the_quota_hold_while_all_ask_for_more() -> None:
    outcome = ours(
        scenario(
            demand={"shape": "flat", "bins": 12, "bin_s": 60, "mean": 200},
            quota={"limit": 300, "regions": {"eu": {"floor": 150}, "ap": {"cap": 50}}},
        )
    )
    eu, us, ap = zip(*outcome.admitted_in, strict=True)
    assert min(eu) >= 150
    assert max(ap) <= 50
    assert 12 * 300 == sum(eu) + sum(us) + sum(ap)


def test_a_weight_of_the_quota_goes_before_the_regions() -> None:
    demand = {"shape": "flat", "bins": 20, "bin_s": 60, "mean": 200}
    regions = {"eu": {"weight": 100}, "us": {"weight": 100}}
    wanted = scenario(regions=regions, demand=demand, quota={"limit": 200, "regions": {"eu": {"weight": 300}}})
    eu, us = (sum(column) for column in zip(*ours(wanted).admitted_in, strict=True))
    assert eu > 1.3 * us


def test_callers_that_wait_are_served_when_headroom_has_come() -> None:
    jump = {"shape": "idle_then_jump", "bins": 6, "bin_s": 60, "mean": 1200}
    outcome = ours(scenario(demand=jump, quota={"limit_factor": 1.2}, wait_s=2))
    assert 0 == outcome.denied
    assert outcome.waited
    assert max(outcome.waited) <= 2


def test_on_the_first_day_nothing_is_learnt_that_counts() -> None:
    taught, untaught = (ours(scenario(coordinator={"learn": learn})) for learn in (True, False))
    assert untaught == taught


def test_headroom_lies_where_the_days_before_had_their_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(MemoryDemandHistory):
        """Of whoever asks second: `us`."""

        regions = 0

        def __init__(self) -> None:
            super().__init__()
            self.asked = 36_000 if Busy.regions == 1 else 600
            Busy.regions += 1

        async def recall(self, keys: Collection[QuotaKey], hours: Collection[float]) -> Sequence[Past]:
            return [Past(key, min(hours), dict.fromkeys(hours, Counted(self.asked))) for key in keys]

    monkeypatch.setattr(deployment, "MemoryDemandHistory", Busy)
    demand = {"shape": "flat", "bins": 10, "bin_s": 60, "mean": 10}
    taught, untaught = (
        ours(scenario(demand=demand, quota={"limit": 1000}, coordinator={"learn": learn})) for learn in (True, False)
    )
    (*_, (_, after)), (*_, (_, before)) = taught.slices, untaught.slices
    assert max(before) - min(before) < 100
    assert after[1] > 2 * after[0]
    assert 0 == taught.denied


@pytest.mark.parametrize(
    ("bin_s", "period"), [(1, "minute"), (60, "minute"), (600, "minute"), (3600, "hour"), (86_400, "hour")]
)
def test_a_bin_is_a_period_of_about_its_length(bin_s: float, period: str) -> None:
    assert period == period_of(bin_s)[0]


@st.composite
def troubles(draw: st.DrawFn) -> Sequence[dict[str, Any]]:
    """For each region and the coordinator, something at some time or nothing."""
    found: list[dict[str, Any]] = []
    for place in (*REGIONS, None):
        what = draw(st.sampled_from(("nothing", "partition", "region_down", "weight")))
        at = draw(st.integers(0, 500))
        until = at + draw(st.integers(1, 300))
        if what == "nothing":
            continue
        if place is None:
            found.append({"what": "coordinator_down", "at_s": at, "until_s": until})
        elif what == "weight":
            found.append({"what": what, "region": place, "at_s": at, "weight": draw(st.integers(0, 10**7))})
        else:
            found.append({"what": what, "region": place, "at_s": at, "until_s": until})
    return found


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from(("follow_the_sun", "bursts", "drift", "idle_then_jump", "clients", "flat")),
    limit=st.sampled_from((0, 1, 3, 20, 60)),
    round_trip_s=st.sampled_from((0.0, 0.1, 1.5)),
    wait_s=st.sampled_from((0.0, 3.0)),
    events=troubles(),
)
def test_no_bin_is_ever_admitted_more_than_the_limit(
    seed: int, shape: str, limit: int, round_trip_s: float, wait_s: float, events: Sequence[dict[str, Any]]
) -> None:
    wanted = scenario(
        demand={"shape": shape, "mean": 15, "factor": 10},
        regions={name: {"round_trip_s": round_trip_s} for name in REGIONS},
        quota={"limit": limit},
        events=events,
        wait_s=wait_s,
        seed=seed,
    )
    outcome = ours(wanted)
    assert 0 == outcome.overshoot
    assert all(sum(slices) <= limit for _, slices in outcome.slices)
    assert len(work_of(wanted).requests) == outcome.admitted + outcome.denied


def test_batch_work_that_fills_a_quota_leaves_room_for_high_priority_in_every_region() -> None:
    """In all regions together it fills little more than the four fifths that it may fill of each slice."""
    asked = {"shape": "flat", "bins": 10, "bin_s": 600, "mean": 120, "low": 0.95, "high": 0.05}
    wanted = scenario(demand=asked, quota={"limit_factor": 0.5, "low_fill_percent": 80})
    outcome = ours(wanted)
    assert 0 == outcome.overshoot
    for region in range(3):
        served = outcome.of[Priority.HIGH, region]
        assert served.admitted > 0.9 * (served.admitted + served.denied)
    low = sum(units.admitted for (priority, _), units in outcome.of.items() if priority is Priority.LOW)
    assert low < 0.85 * outcome.limit * 10
    without = ours(scenario(demand=asked, quota={"limit_factor": 0.5}))
    assert sum(without.of[Priority.HIGH, region].denied for region in range(3)) > 10 * sum(
        outcome.of[Priority.HIGH, region].denied for region in range(3)
    )
