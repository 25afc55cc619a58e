"""What `decide` does to reservations. `Book` replays the ledgers after every command."""

import pytest
from tests.core.builders import OTHER, Book, reserve

from regionquota.core.commands import (
    Commit,
    Denied,
    DenyReason,
    Expire,
    Extend,
    Forbidden,
    Granted,
    Invalid,
    NotFound,
    Outcome,
    Release,
    RequestConflict,
    Settled,
    UnknownQuota,
)
from regionquota.core.quota import MAX_AMOUNT
from regionquota.core.reservation import Event, State


def denial(outcome: Outcome) -> DenyReason:
    assert isinstance(outcome, Denied)
    return outcome.reason


def settled(outcome: Outcome) -> Settled:
    assert isinstance(outcome, Settled)
    return outcome


def book_with(state: State) -> tuple[Book, str]:
    """A hold of 10 out of 100, brought to `state`."""
    book = Book(100)
    name = book.hold(10)
    match state:
        case State.COMMITTED:
            book.commit(name)
        case State.RELEASED:
            book.release(name)
        case State.EXPIRED:
            book.now += 60
            book.expire(name)
    assert state is book.reservation(name).state
    return book, name


def test_a_hold_is_taken_out_of_what_is_available() -> None:
    book = Book(100)
    granted = book.reserve(30, ttl=60)
    assert isinstance(granted, Granted)
    assert (70, 30) == (granted.holding.counter.available, granted.holding.counter.reserved)
    assert (State.PENDING, book.now + 60) == (granted.reservation.state, granted.reservation.expires_at)


def test_six_holds_of_1000_do_not_fit_into_5000() -> None:
    book = Book(5000)
    outcomes = [book.reserve(1000) for _ in range(6)]
    assert [True] * 5 + [False] == [isinstance(one, Granted) for one in outcomes]
    assert DenyReason.OVER_LIMIT is denial(outcomes[5])


def test_a_denial_changes_nothing() -> None:
    book = Book(100)
    before = book.counter()
    book.reserve(101)
    assert before == book.counter()


def test_a_denied_request_may_be_repeated_with_the_same_id() -> None:
    book = Book(100)
    assert isinstance(book.reserve(100, name="a", request="x"), Granted)
    assert isinstance(book.reserve(1, name="b", request="y"), Denied)
    book.release("a")
    assert isinstance(book.reserve(1, name="c", request="y"), Granted)


def test_a_slice_of_zero_blocks() -> None:
    assert DenyReason.OVER_LIMIT is denial(Book(0).reserve(1))


def test_a_quota_without_a_counter_is_unknown_here() -> None:
    assert UnknownQuota(OTHER) == Book(100).reserve(1, key=OTHER)


def test_a_repeated_reserve_is_answered_with_the_hold_of_the_first() -> None:
    book = Book(100)
    first = book.reserve(30, name="first", request="x")
    again = book.reserve(30, name="second", request="x")
    assert isinstance(first, Granted)
    assert isinstance(again, Granted)
    assert again.replayed
    assert first.reservation == again.reservation
    assert 30 == book.counter().reserved


def test_a_repeated_reserve_is_answered_although_nothing_is_left() -> None:
    book = Book(30)
    book.reserve(30, name="first", request="x")
    assert isinstance(book.reserve(30, name="second", request="x"), Granted)


@pytest.mark.parametrize("state", [State.COMMITTED, State.RELEASED, State.EXPIRED])
def test_a_reserve_repeated_after_its_end_says_what_became_of_it(state: State) -> None:
    book, name = book_with(state)
    again = book.reserve(10, name="another", request=f"request-{name}")
    assert isinstance(again, Granted)
    assert (name, state, True) == (again.reservation.id, again.reservation.state, again.replayed)


@pytest.mark.parametrize("other", [{"amount": 31}, {"amount": 30, "ttl": 61}, {"amount": 30, "key": OTHER}])
def test_the_same_request_id_with_other_content_is_refused(other: dict[str, object]) -> None:
    book = Book(100)
    book.resize(100, OTHER)
    book.reserve(30, name="first", request="x")
    assert RequestConflict("x") == book.reserve(name="second", request="x", **other)  # type: ignore[arg-type]
    assert (30, 0) == (book.counter().reserved, book.counter(OTHER).reserved)


def test_a_request_repeated_within_one_batch_is_one_hold() -> None:
    book = Book(100)
    first, second = book.do(reserve(30, name="a", request="x"), reserve(30, name="b", request="x"))
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert (False, True) == (first.replayed, second.replayed)
    assert 30 == book.counter().reserved


def test_each_command_of_a_batch_sees_what_those_before_it_did() -> None:
    book = Book(100)
    outcomes = book.do(
        reserve(100, name="a"), reserve(1, name="b"), Release("a"), reserve(1, name="c"), Commit("c"), Release("c")
    )
    assert [Granted, Denied, Settled, Granted, Settled, Forbidden] == [type(one) for one in outcomes]
    assert (99, 0, 1) == (book.counter().available, book.counter().reserved, book.counter().used)


def test_a_commit_turns_the_hold_into_usage() -> None:
    book, name = book_with(State.PENDING)
    done = settled(book.commit(name)).reservation
    assert (State.COMMITTED, 10) == (done.state, done.actual)
    assert (90, 0, 10) == (book.counter().available, book.counter().reserved, book.counter().used)


def test_a_commit_of_less_returns_the_rest() -> None:
    book, name = book_with(State.PENDING)
    assert 3 == settled(book.commit(name, 3)).reservation.actual
    assert (97, 3) == (book.counter().available, book.counter().used)


def test_a_repeated_commit_is_answered_like_the_first_and_charged_once() -> None:
    book, name = book_with(State.PENDING)
    first = settled(book.commit(name, 7))
    book.now += 5
    assert Settled(first.reservation, replayed=True) == book.commit(name, 7)
    assert [("commit", 7)] == book.entries()


def test_a_commit_repeated_with_another_amount_is_refused() -> None:
    book, name = book_with(State.PENDING)
    book.commit(name, 7)
    refused = book.commit(name, 8)
    assert isinstance(refused, Forbidden)
    assert "already committed with actual_amount 7, not 8" == refused.message
    assert 7 == book.counter().used


def test_a_commit_of_more_takes_what_is_available() -> None:
    book, name = book_with(State.PENDING)
    book.commit(name, 100)
    assert (0, 100, 0) == (book.counter().available, book.counter().used, book.counter().debt)


def test_a_commit_of_more_than_there_is_is_recorded_in_full_as_debt() -> None:
    book, name = book_with(State.PENDING)
    book.commit(name, 125)
    assert (125, 25) == (book.counter().used, book.counter().debt)
    assert [("commit", 125), ("overdraft", 25)] == book.entries()


def test_in_debt_the_next_reserve_is_refused_for_that_reason() -> None:
    book, name = book_with(State.PENDING)
    book.commit(name, 125)
    assert DenyReason.IN_DEBT is denial(book.reserve(1))


def test_a_release_repays_debt_before_anything_is_available() -> None:
    book = Book(100)
    spender, other = book.hold(60), book.hold(40)
    book.commit(spender, 75)
    book.release(other)
    assert (0, 25) == (book.counter().debt, book.counter().available)
    assert [("commit", 75), ("overdraft", 15), ("repay", 15)] == book.entries()


def test_a_larger_slice_ends_the_debt_and_admits_again() -> None:
    book, name = book_with(State.PENDING)
    book.commit(name, 125)
    book.resize(130)
    assert isinstance(book.reserve(5), Granted)


def test_a_release_gives_everything_back() -> None:
    book, name = book_with(State.PENDING)
    before = Book(100).counter()
    assert State.RELEASED is settled(book.release(name)).reservation.state
    assert before == book.counter()
    assert [] == book.entries()


def test_a_second_release_is_answered_like_the_first_and_returns_nothing() -> None:
    book, name = book_with(State.PENDING)
    first = settled(book.release(name))
    book.now += 5
    assert Settled(first.reservation, replayed=True) == book.release(name)
    assert 100 == book.counter().available


def test_a_release_after_a_commit_reverses_nothing() -> None:
    book, name = book_with(State.COMMITTED)
    refused = book.release(name)
    assert isinstance(refused, Forbidden)
    assert "cannot release: it is COMMITTED" == refused.message
    assert 10 == book.counter().used


def test_what_was_released_is_available_again_at_exhaustion() -> None:
    book = Book(10)
    name = book.hold(10)
    book.release(name)
    assert isinstance(book.reserve(10), Granted)


def test_a_hold_whose_time_ran_out_is_given_back() -> None:
    book, name = book_with(State.PENDING)
    book.now += 60
    assert State.EXPIRED is settled(book.expire(name)).reservation.state
    assert 100 == book.counter().available


def test_a_hold_does_not_end_before_its_time() -> None:
    book, name = book_with(State.PENDING)
    book.now += 59.999
    assert isinstance(book.expire(name), Forbidden)
    assert State.PENDING is book.reservation(name).state


def test_an_expired_hold_is_returned_once() -> None:
    book, name = book_with(State.EXPIRED)
    assert settled(book.expire(name)).replayed
    assert 100 == book.counter().available


@pytest.mark.parametrize("state", [State.COMMITTED, State.RELEASED])
def test_the_sweeper_does_nothing_to_what_has_ended(state: State) -> None:
    book, name = book_with(state)
    before = book.counter()
    book.now += 60
    refused = book.expire(name)
    assert isinstance(refused, Forbidden)
    assert (Event.EXPIRE, before) == (refused.event, book.counter())


def test_until_the_sweeper_comes_a_commit_past_the_time_is_an_ordinary_one() -> None:
    book, name = book_with(State.PENDING)
    book.now += 600
    book.commit(name)
    assert [("commit", 10)] == book.entries()


def test_a_late_commit_is_charged_out_of_what_is_available() -> None:
    book, name = book_with(State.EXPIRED)
    assert State.COMMITTED is settled(book.commit(name)).reservation.state
    assert (90, 10, 0) == (book.counter().available, book.counter().used, book.counter().debt)
    assert [("late_commit", 10)] == book.entries()


def test_a_late_commit_without_headroom_becomes_debt_and_spends_nobody_elses_hold() -> None:
    book, name = book_with(State.EXPIRED)
    book.hold(95)
    book.commit(name)
    assert (95, 10, 5) == (book.counter().reserved, book.counter().used, book.counter().debt)
    assert [("late_commit", 10), ("overdraft", 5)] == book.entries()


def test_a_late_commit_is_charged_once() -> None:
    book, name = book_with(State.EXPIRED)
    book.commit(name)
    assert settled(book.commit(name)).replayed
    assert 10 == book.counter().used


def test_an_expired_hold_cannot_be_released() -> None:
    book, name = book_with(State.EXPIRED)
    assert isinstance(book.release(name), Forbidden)
    assert 100 == book.counter().available


def test_a_released_hold_cannot_be_committed() -> None:
    book, name = book_with(State.RELEASED)
    refused = book.commit(name)
    assert isinstance(refused, Forbidden)
    assert "cannot commit: it is RELEASED" == refused.message
    assert 0 == book.counter().used


def test_an_extended_hold_ends_later() -> None:
    book, name = book_with(State.PENDING)
    book.now += 59
    assert book.now + 90 == settled(book.extend(name, 90)).reservation.expires_at
    book.now += 89
    assert isinstance(book.expire(name), Forbidden)
    book.now += 1
    assert isinstance(book.expire(name), Settled)


@pytest.mark.parametrize("state", [State.COMMITTED, State.RELEASED, State.EXPIRED])
def test_only_a_pending_hold_can_be_extended(state: State) -> None:
    book, name = book_with(state)
    refused = book.extend(name)
    assert isinstance(refused, Forbidden)
    assert (None, state) == (refused.event, book.reservation(name).state)


@pytest.mark.parametrize("command", [Commit("no"), Release("no"), Extend("no", 60), Expire("no")])
def test_a_reservation_that_never_was_is_not_found(command: Commit | Release | Extend | Expire) -> None:
    assert [NotFound("no")] == Book(100).do(command)


def test_the_largest_hold_can_be_committed() -> None:
    book = Book(MAX_AMOUNT)
    assert isinstance(book.commit(book.hold(MAX_AMOUNT)), Settled)
    assert MAX_AMOUNT == book.counter().used


def test_a_commit_whose_sum_passes_the_largest_number_is_refused_and_changes_nothing() -> None:
    book = Book(MAX_AMOUNT)
    book.adjust(MAX_AMOUNT - 10)
    name = book.hold(10)
    before = book.counter()
    refused = book.commit(name, 11)
    assert isinstance(refused, Invalid)
    assert ("actual_amount", before) == (refused.field, book.counter())
    assert isinstance(book.commit(name, 10), Settled)


def test_a_late_commit_whose_sum_passes_the_largest_number_is_refused() -> None:
    book, name = book_with(State.EXPIRED)
    book.adjust(MAX_AMOUNT - 9)
    assert isinstance(book.commit(name), Invalid)


def test_overdrafts_whose_sum_passes_the_largest_number_are_refused() -> None:
    book = Book(0)
    book.adjust(MAX_AMOUNT)
    book.adjust(-MAX_AMOUNT)
    assert isinstance(book.adjust(1), Invalid)
    assert MAX_AMOUNT == book.counter().overdraft_issued
