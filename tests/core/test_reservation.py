import itertools

import pytest

from regionquota.core.reservation import TRANSITIONS, Event, State, after, diagram

ALLOWED = {
    (State.PENDING, Event.START): State.STARTED,
    (State.PENDING, Event.COMMIT): State.COMMITTED,
    (State.PENDING, Event.RELEASE): State.RELEASED,
    (State.PENDING, Event.EXPIRE): State.EXPIRED,
    (State.STARTED, Event.COMMIT): State.COMMITTED,
    (State.STARTED, Event.RELEASE): State.RELEASED,
    (State.STARTED, Event.EXPIRE): State.UNKNOWN,
    (State.UNKNOWN, Event.COMMIT): State.COMMITTED,
    (State.UNKNOWN, Event.RELEASE): State.RELEASED,
    (State.EXPIRED, Event.COMMIT): State.COMMITTED,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_the_table_allows_what_the_design_says_and_nothing_else(state: State, event: Event) -> None:
    assert ALLOWED.get((state, event)) == after(state, event)


def test_what_was_committed_or_released_cannot_be_left() -> None:
    assert {State.COMMITTED, State.RELEASED} == set(State) - {state for state, _ in TRANSITIONS}


def test_nothing_leads_from_started_work_to_expiry() -> None:
    """Its outcome is not known, so its capacity must not be given to anybody else."""
    reached = {State.STARTED}
    for _ in State:
        reached |= {to for (source, _), to in TRANSITIONS.items() if source in reached}
    assert State.EXPIRED not in reached


def test_the_diagram_shows_each_transition_once() -> None:
    arrows = [line.strip() for line in diagram().splitlines() if ": " in line and "[*]" not in line]
    assert sorted(f"{source} --> {to}: {event}" for (source, event), to in ALLOWED.items()) == sorted(arrows)


def test_no_way_leads_back_to_pending() -> None:
    assert State.PENDING not in TRANSITIONS.values()
