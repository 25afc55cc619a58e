import pytest
from tests.simulator.scenarios import scenario

from regionquota.core.policy import Priority
from regionquota.simulator.demand import Request, Workload
from regionquota.simulator.fairness import jain, max_min
from regionquota.simulator.outcome import Outcome, Transfer
from regionquota.simulator.report import Report, report

REGIONS = ("eu", "us", "ap")


def outcome(*admitted: list[int], **more: object) -> Outcome:
    return Outcome(REGIONS, 10, [list(row) for row in admitted], **more)  # type: ignore[arg-type]


def reported(ours: Outcome, oracle: Outcome, **parts: object) -> Report:
    requests = [
        Request(bin_ * 30 + region, region) for bin_ in range(2) for region in (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2)
    ]
    work = Workload(REGIONS, requests, 10, 30.0, 2)
    return report(scenario(**parts), work, {"ours": ours, "oracle": oracle}, ["ours"])


def test_false_denials_are_what_the_oracle_admits_in_the_same_bin() -> None:
    figures = reported(outcome([4, 4, 2], [4, 1, 2]), outcome([4, 4, 2], [4, 4, 2])).figures["ours"]
    assert (17, 3, 0.85) == (figures.admitted, figures.false_denials, figures.admitted_of_oracle)


def test_what_was_admitted_beyond_the_limit_counts_for_nothing() -> None:
    found = reported(outcome([4, 4, 4], [4, 1, 1]), outcome([4, 4, 2], [4, 4, 2]))
    figures = found.figures["ours"]
    assert (2, 0.8, 0.8) == (figures.overshoot, figures.admitted_of_oracle, figures.capacity_used)
    assert not found.is_safe


def test_moves_and_writes_are_counted_for_a_thousand_units() -> None:
    figures = reported(outcome([4, 4, 2], [4, 4, 2], moves=1, etcd_writes=5), outcome([10, 0, 0])).figures["ours"]
    assert (50.0, 250.0) == (figures.moves_per_1000, figures.etcd_writes_per_1000)


def test_waits_are_told_where_callers_wait() -> None:
    waited = [number / 1000 for number in range(100, 0, -1)]
    figures = reported(outcome([1, 1, 1], waited=waited), outcome([3, 0, 0]), wait_s=2).figures["ours"]
    assert {"count": 100, "p50_ms": 51.0, "p90_ms": 91.0, "p99_ms": 100.0, "max_ms": 100.0} == figures.waits
    assert reported(outcome([1, 1, 1]), outcome([3, 0, 0])).figures["ours"].waits is None
    assert {"count": 0} == reported(outcome([1, 1, 1]), outcome([3, 0, 0]), wait_s=2).figures["ours"].waits


def test_the_keys_of_the_report_are_these() -> None:
    plain = reported(outcome([4, 4, 2]), outcome([4, 4, 2])).plain()
    assert {
        "scenario", "seed", "requests", "units", "regions", "limit", "bins", "bin_s", "seconds", "notes", "warnings",
        "policies",
    } == plain.keys()  # fmt: skip
    assert {
        "admitted", "admitted_of_oracle", "denied", "false_denials", "overshoot", "capacity_used", "moves",
        "moves_per_1000", "etcd_writes", "etcd_writes_per_1000", "jain", "waits", "denied_by_region",
        "admitted_by_region",
    } == plain["policies"]["ours"].keys()  # fmt: skip


@pytest.mark.parametrize(
    ("wants", "limit", "weights", "expected"),
    [
        ([5, 5], 20, [1, 1], [5, 5]),
        ([50, 50], 20, [1, 3], [5, 15]),
        ([2, 50, 50], 20, [1, 1, 1], [2, 9, 9]),
        ([0, 50], 20, [1, 0], [0, 0]),
        ([0, 0], 20, [1, 1], [0, 0]),
    ],
)
def test_what_one_leaves_over_goes_to_the_others_by_weight(
    wants: list[int], limit: int, weights: list[int], expected: list[int]
) -> None:
    assert expected == max_min(wants, limit, weights)


def test_jains_index_is_one_if_all_got_the_same_part_and_less_if_one_got_all() -> None:
    assert 1.0 == jain([[50, 50]], [[5, 15]], 20, [1, 3])
    assert 0.5 == jain([[50, 50]], [[20, 0]], 20, [1, 1])
    assert 1.0 == jain([[0, 0]], [[0, 0]], 20, [1, 1])


def test_a_write_that_serves_two_regions_moves_twice() -> None:
    assert 2 == Transfer(0, {"eu": 3}, {"us": 1, "ap": 2}).moves
    assert 1 == Transfer(0, {"eu": 3}, {}).moves


def test_what_became_of_each_priority_is_told_where_there_are_several() -> None:
    low, high = Request(0.0, 0, 3, 2, Priority.LOW), Request(0.0, 2, priority=Priority.HIGH)
    ours, plain = outcome(), outcome()
    for request in (low, low, high):
        ours.admit(0, request)
    ours.deny(1, low)
    plain.admit(0, Request(0.0, 1))
    found = reported(ours, outcome([4, 4, 2])).figures["ours"]
    assert {
        "high": {"admitted": 1, "denied": 0, "admitted_by_region": {"ap": 1}, "denied_by_region": {"ap": 0}},
        "low": {"admitted": 4, "denied": 2, "admitted_by_region": {"eu": 4}, "denied_by_region": {"eu": 2}},
    } == found.plain()["by_priority"]
    assert "by_priority" not in reported(plain, outcome([4, 4, 2])).figures["ours"].plain()
