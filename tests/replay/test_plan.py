from typing import Any

import pytest

from regionquota.errors import InvalidRequest
from regionquota.replay.plan import Partition, ReplayPlan, Window, parse_partition, parse_window
from regionquota.replay.trace import Trace

TRACE = Trace(("eu", "a-b:c"), tuple((10, 30) for _ in range(10)))


@pytest.mark.parametrize(
    ("text", "window"),
    [("20s-40s", Window(20, 40)), ("500ms-1.5s", Window(0.5, 1.5)), ("1m-2m", Window(60, 120))],
)
def test_a_window_is_written_with_units(text: str, window: Window) -> None:
    assert window == parse_window(text)


@pytest.mark.parametrize("text", ["", "20-40", "20s", "20s-", "40s-20s", "5s-5s", "-1s-5s", "1h-2h", "1s-2s-3s"])
def test_what_is_no_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequest, match="etcd-outage"):
        parse_window(text)


def test_a_partition_names_a_region_even_one_with_a_colon() -> None:
    assert Partition("a-b:c", Window(1, 2)) == parse_partition("a-b:c:1s-2s", TRACE.regions)


@pytest.mark.parametrize("text", ["mars:1s-2s", "1s-2s", "eu"])
def test_an_unknown_region_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidRequest, match="with a region of eu, a-b:c"):
        parse_partition(text, TRACE.regions)


def test_the_limit_is_a_multiple_of_the_mean_demand_unless_given() -> None:
    assert 60 == ReplayPlan(TRACE).quota_limit
    assert 40 == ReplayPlan(TRACE, limit_factor=1).quota_limit
    assert 7 == ReplayPlan(TRACE, limit=7).quota_limit


def test_runs_have_quotas_of_their_own() -> None:
    assert ReplayPlan(TRACE).quota != ReplayPlan(TRACE).quota


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"bin_s": 0}, "bin-seconds must be from 0.05"),
        ({"release_share": 1.5}, "release-share must be from 0 to 1"),
        ({"connections": 0}, "connections must be from 1"),
        ({"limit": -1}, "limit must be from 0"),
        ({"partitions": [Partition("eu", Window(5, 6))]}, "starts at 5 s, but the replay is over after 5 s"),
        ({"etcd_outages": [Window(1, 3), Window(2, 4)]}, "etcd-outage at 2 s starts before the one at 1 s ends"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        ReplayPlan(TRACE, **words)


def test_different_regions_may_be_cut_off_at_once() -> None:
    ReplayPlan(TRACE, partitions=[Partition("eu", Window(1, 3)), Partition("a-b:c", Window(2, 4))])
