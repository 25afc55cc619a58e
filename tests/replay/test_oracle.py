from hypothesis import given
from hypothesis import strategies as st

from regionquota.replay.oracle import one_counter


def test_a_unit_is_free_again_at_the_instant_it_is_given_back() -> None:
    assert [1, 0, 1] == list(one_counter(sent=[0.0, 0.5, 1.0], until=[1.0, 1.5, 2.0], limit=1))


def test_a_released_unit_is_free_before_one_that_is_kept() -> None:
    assert [1, 1, 0, 1] == list(one_counter(sent=[0.0, 0.1, 0.2, 0.3], until=[9.0, 0.25, 9.0, 9.0], limit=2))


def test_a_denied_request_holds_nothing() -> None:
    assert [1, 0, 0, 1] == list(one_counter(sent=[0.0, 1.0, 2.0, 3.0], until=[3.0, 100.0, 100.0, 4.0], limit=1))


def test_a_limit_of_zero_admits_nothing() -> None:
    assert [0, 0] == list(one_counter([0.0, 1.0], [0.5, 1.5], 0))


@given(
    requests=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=40),
    limit=st.integers(0, 5),
)
def test_it_admits_exactly_while_fewer_than_the_limit_are_held(requests: list[tuple[int, int]], limit: int) -> None:
    requests.sort(key=lambda request: request[0])
    sent = [float(start) for start, _ in requests]
    until = [float(start + length) for start, length in requests]
    admitted = one_counter(sent, until, limit)
    for at, now in enumerate(sent):
        held = sum(1 for before in range(at) if admitted[before] and until[before] > now)
        assert (held < limit) == bool(admitted[at])
