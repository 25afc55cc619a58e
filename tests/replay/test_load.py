from hypothesis import given
from hypothesis import strategies as st

from regionquota.replay.load import CertainlyHeld, Load, Percentiles, Verdict, percentiles


def test_a_denial_is_false_only_where_one_counter_admits_that_very_request() -> None:
    load = Load(("eu", "us"), held_s=1.0)
    for region, now, verdict in (
        (0, 0.0, Verdict.DENIED),  # false: nothing was held
        (1, 0.1, Verdict.ADMITTED),  # the oracle holds the first one's unit, and denies this
        (0, 0.2, Verdict.DENIED),  # so does it this: a true denial
        (1, 1.5, Verdict.FAILED),
    ):
        request = load.send(region, now)
        if verdict is not Verdict.FAILED:
            load.answer(request, verdict, now + 0.01)
    figures = load.figures(limit=1)
    eu, us = figures.regions["eu"], figures.regions["us"]
    assert (0, 2, 1, 1) == (eu.admitted, eu.denied, eu.false_denials, eu.oracle_admitted)
    assert (1, 0, 0, 1) == (us.admitted, us.denied, us.false_denials, us.oracle_admitted)
    assert 1 == us.failed


def test_a_released_unit_is_free_for_the_oracle_at_once() -> None:
    load = Load(("eu",), held_s=1.0)
    released = load.send(0, 0.0)
    load.answer(released, Verdict.ADMITTED, 0.01)
    load.freed(released, 0.02)
    load.answer(load.send(0, 0.05), Verdict.ADMITTED, 0.06)
    assert 2 == load.figures(limit=1).regions["eu"].oracle_admitted


def test_the_most_ever_held_is_remembered() -> None:
    held = CertainlyHeld()
    for _ in range(3):
        held.add()
    held.remove(2)
    held.add()
    assert (2, 3) == (held.units, held.most)


def test_percentiles_are_exact_and_in_milliseconds() -> None:
    assert Percentiles(50, 95, 99, 100) == percentiles([n / 1000 for n in range(100, 0, -1)])
    assert None is percentiles([])


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_ascend(seconds: list[float]) -> None:
    found = percentiles(seconds)
    assert found is not None
    assert found.p50 <= found.p95 <= found.p99 <= found.max == round(1000 * max(seconds), 3)
