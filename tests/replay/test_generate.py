from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from regionquota.replay.generate import arrivals, follow_the_sun
from regionquota.replay.trace import Trace

REGIONS = ("eu", "us", "ap")


def test_the_same_seed_makes_the_same_day() -> None:
    one, same, other = (follow_the_sun(REGIONS, bins=50, mean=100, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one.demand != other.demand


def test_each_region_has_its_noon_at_its_own_time() -> None:
    bins = 300
    trace = follow_the_sun(REGIONS, bins=bins, mean=100, seed=1)
    third = bins // 3
    for at in range(3):
        column = [demand[at] for demand in trace.demand]
        noon = at * third
        around_noon = [column[(noon + offset) % bins] for offset in range(-30, 30)]
        around_midnight = [column[(noon + bins // 2 + offset) % bins] for offset in range(-30, 30)]
        assert sum(around_noon) > 2 * sum(around_midnight)


def test_days_resemble_each_other() -> None:
    trace = follow_the_sun(REGIONS, bins=600, mean=100, seed=1, days=2)
    assert 600 == len(trace.demand)
    for at in range(3):
        column = [demand[at] for demand in trace.demand]
        noons, midnights = ([at * 100 + hours + 300 * day for day in range(2)] for hours in (0, 150))
        busy, quiet = (
            [sum(column[(place + offset) % 600] for offset in range(-30, 30)) for place in places]
            for places in (noons, midnights)
        )
        assert min(busy) > 2 * max(quiet)


def test_the_mean_is_about_what_was_asked_for_and_there_are_bursts() -> None:
    trace = follow_the_sun(REGIONS, bins=1000, mean=100, seed=3)
    assert 300 * 0.9 < trace.mean < 300 * 1.5
    assert max(max(demand) for demand in trace.demand) > 300


@given(
    demand=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8),
    bin_s=st.floats(0.1, 10),
    seed=st.integers(),
)
def test_every_unit_arrives_once_in_its_bin_in_order(demand: list[tuple[int, int]], bin_s: float, seed: int) -> None:
    trace = Trace(("eu", "us"), tuple(demand))
    for at in range(2):
        seen = list(arrivals(trace, at, bin_s=bin_s, release_share=0.1, seed=seed))
        assert all(one.at <= other.at for one, other in pairwise(seen))
        per_bin = Counter(min(int(arrival.at / bin_s + 1e-9), len(demand) - 1) for arrival in seen)
        assert [units[at] for units in demand] == [per_bin[number] for number in range(len(demand))]


def test_the_share_that_is_released_is_drawn_from_the_seed() -> None:
    trace = Trace(("eu",), ((1000,),))
    released = [one.releases for one in arrivals(trace, 0, bin_s=1, release_share=0.1, seed=1)]
    assert 60 < sum(released) < 140
    assert released == [one.releases for one in arrivals(trace, 0, bin_s=9, release_share=0.1, seed=1)]
