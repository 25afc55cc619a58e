import itertools

import pytest

from regionquota.core.reservation import TRANSITIONS, Event, State, after

ALLOWED = {
    (State.PENDING, Event.COMMIT): State.COMMITTED,
    (State.PENDING, Event.RELEASE): State.RELEASED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
    (State.EXPIRED, Event.COMMIT): State.COMMITTED,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_the_table_allows_what_the_design_says_and_nothing_else(state: State, event: Event) -> None:
    assert ALLOWED.get((state, event)) == after(state, event)


def test_only_pending_and_expired_can_be_left() -> None:
    assert {State.PENDING, State.EXPIRED} == {state for state, _ in TRANSITIONS}


def test_no_way_leads_back_to_pending() -> None:
    assert State.PENDING not in TRANSITIONS.values()
