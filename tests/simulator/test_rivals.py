"""Each rule in small."""

from collections.abc import Sequence

import pytest

from regionquota.core.policy import Priority, QuotaPolicy
from regionquota.simulator.demand import Request, Workload
from regionquota.simulator.rivals import LEASE_S, OneCounter, ProportionalShare, PullOnShortfall, Rule, Slices, play

FILLS = QuotaPolicy(normal_fill_percent=80, low_fill_percent=50)


def work(requests: Sequence[Request], limit: int, regions: int = 2, bin_s: float = 60.0) -> Workload:
    names = tuple(f"r{number}" for number in range(regions))
    return Workload(names, requests, limit, bin_s, int(requests[-1].at // bin_s) + 1)


def many(region: int, count: int, at: float, every: float = 0.1) -> list[Request]:
    return [Request(at + number * every, region) for number in range(count)]


def test_one_counter_admits_up_to_the_limit_in_each_bin() -> None:
    outcome = play(work(many(0, 7, 0) + many(1, 7, 10) + many(1, 3, 60), limit=10), OneCounter(10))
    assert [[7, 3], [0, 3]] == outcome.admitted_in
    assert [[0, 4]] == outcome.denied_in
    assert 0 == outcome.overshoot


def test_what_is_reserved_must_fit_and_what_is_used_counts() -> None:
    asked = [Request(0, 0, 8, 3), Request(1, 0, 8, 3), Request(2, 0, 4, 4)]
    outcome = play(work(asked, limit=10), OneCounter(10))
    assert [[7, 0]] == outcome.admitted_in  # the second reserved 8 while only 7 were left
    assert [[3, 0]] == outcome.denied_in


def test_equal_slices_add_up_to_the_limit_and_serve_nobody_else() -> None:
    rule = Slices(7, 3)
    assert [3, 2, 2] == [rule.slice_of(region) for region in range(3)]
    outcome = play(work(many(1, 5, 0), limit=7, regions=3), rule)
    assert [[0, 2, 0]] == outcome.admitted_in


def test_leases_follow_what_is_asked_for() -> None:
    asked = many(0, 200, 0, every=0.5)
    outcome = play(work(asked, limit=100), ProportionalShare(100, 2, 60.0))
    assert outcome.admitted_in[0][0] > 80  # half at first, then nearly all
    assert outcome.moves > 0


def test_leases_that_are_running_are_not_taken_back() -> None:
    """What the one was granted while the other was idle is still admitted when the other comes."""
    asked = sorted(many(0, 110, 0, every=0.5) + many(1, 600, 30, every=0.05), key=lambda one: one.at)
    assert play(work(asked, limit=100), ProportionalShare(100, 2, 60.0)).overshoot > 0


def test_a_lease_that_cannot_be_refreshed_ends() -> None:
    asked = many(0, 300, 0, every=1.0)
    cut = {0: [(10.0, 300.0)]}
    outcome = play(work(asked, limit=1000), ProportionalShare(1000, 2, 60.0, cut))
    assert 60 == outcome.admitted_in[0][0]
    assert sum(row[0] for row in outcome.admitted_in[1:]) <= LEASE_S


def test_who_runs_out_pulls_half_of_what_the_richest_has_left_a_round_trip_later() -> None:
    asked = many(0, 6, 0, every=0.01) + many(0, 2, 0.3)
    outcome = play(work(asked, limit=10), PullOnShortfall(10, 2, delay_s=0.2))
    assert [[7, 0]] == outcome.admitted_in
    assert [[1, 0]] == outcome.denied_in
    assert 1 == outcome.moves


def test_nobody_pulls_from_who_is_cut_off() -> None:
    asked = many(0, 6, 0, every=0.01) + many(0, 2, 0.3)
    outcome = play(work(asked, limit=10), PullOnShortfall(10, 2, 0.2, {1: [(0.0, 60.0)]}))
    assert [[5, 0]] == outcome.admitted_in
    assert 0 == outcome.moves


def test_rights_stay_where_they_were_pulled_to_in_the_next_bin() -> None:
    rule = PullOnShortfall(10, 2, delay_s=0.2)
    play(work(many(0, 6, 0, every=0.01) + many(0, 1, 61), limit=10), rule)
    assert [7, 3] == rule.rights


@pytest.mark.parametrize(
    "rule",
    [
        OneCounter(10, FILLS),
        Slices(10, 1, FILLS),
        ProportionalShare(10, 1, 60.0, {}, FILLS),
        PullOnShortfall(10, 1, 1.0, {}, FILLS),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_each_keeps_the_same_part_for_higher_priorities(rule: Rule) -> None:
    asked = [
        *(Request(number, 0, priority=Priority.LOW) for number in range(8)),
        *(Request(10 + number, 0) for number in range(8)),
        *(Request(20 + number, 0, priority=Priority.HIGH) for number in range(8)),
    ]
    outcome = play(work(asked, limit=10, regions=1), rule)
    assert [5, 3, 2] == [outcome.of[one, 0].admitted for one in (Priority.LOW, Priority.NORMAL, Priority.HIGH)]
    assert [3, 5, 6] == [outcome.of[one, 0].denied for one in (Priority.LOW, Priority.NORMAL, Priority.HIGH)]
    assert [[10]] == outcome.admitted_in
