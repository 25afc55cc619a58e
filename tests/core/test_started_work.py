"""Work that was started: bound to one operation, and of unknown outcome when its time runs out."""

import pytest
from tests.core.builders import Book

from regionquota.core.commands import Forbidden, Granted, NotFound, Outcome, Settled, Start
from regionquota.core.counter import Counter
from regionquota.core.reservation import Event, State


def settled(outcome: Outcome) -> Settled:
    assert isinstance(outcome, Settled)
    return outcome


def started(ttl: int = 60) -> tuple[Book, str]:
    book = Book(100)
    name = book.hold(10, ttl)
    book.start(name)
    return book, name


def unknown() -> tuple[Book, str]:
    book, name = started(5)
    book.now += 5
    book.expire(name)
    return book, name


def test_a_start_binds_one_operation() -> None:
    book, name = started()
    held = book.reservation(name)
    assert (State.STARTED, "operation-1") == (held.state, held.operation_id)


def test_the_same_start_again_is_answered_like_the_first() -> None:
    book, name = started()
    assert Settled(book.reservation(name), replayed=True) == book.start(name)


def test_another_operation_is_refused() -> None:
    book, name = started()
    refused = book.start(name, "operation-2")
    assert isinstance(refused, Forbidden)
    assert (Event.START, "cannot start: operation operation-1 was started for it") == (refused.event, refused.message)
    assert "operation-1" == book.reservation(name).operation_id


def test_a_start_repeated_after_the_end_says_what_became_of_it() -> None:
    book, name = started()
    book.commit(name)
    assert State.COMMITTED is settled(book.start(name)).reservation.state
    assert isinstance(book.start(name, "operation-2"), Forbidden)


@pytest.mark.parametrize("end", ["commit", "release", "expire"])
def test_what_has_ended_cannot_be_started(end: str) -> None:
    book = Book(100)
    name = book.hold(10, 5)
    book.now += 5
    getattr(book, end)(name)
    before = book.reservation(name)
    assert isinstance(book.start(name), Forbidden)
    assert before == book.reservation(name)


def test_what_never_was_cannot_be_started() -> None:
    assert [NotFound("no")] == Book(100).do(Start("no", "operation"))


def test_started_work_whose_time_ran_out_is_unknown_and_keeps_its_capacity() -> None:
    book, name = unknown()
    held = book.reservation(name)
    assert (State.UNKNOWN, None, "operation-1") == (held.state, held.settled_at, held.operation_id)
    assert Counter(slice=100, available=90, reserved=10) == book.counter()


def test_a_second_expiry_does_not_end_what_is_unknown() -> None:
    book, name = unknown()
    book.now += 10**6
    assert not isinstance(book.expire(name), Settled)
    assert State.UNKNOWN is book.reservation(name).state
    assert 10 == book.counter().reserved


@pytest.mark.parametrize("arrange", [started, unknown])
def test_a_receipt_settles_it_as_an_ordinary_commit(arrange: object) -> None:
    book, name = arrange()  # type: ignore[operator]
    done = settled(book.commit(name, 7)).reservation
    assert (State.COMMITTED, 7, book.now) == (done.state, done.actual, done.settled_at)
    assert [("commit", 7)] == book.entries()
    assert Counter(slice=100, available=93, used=7) == book.counter()


@pytest.mark.parametrize("arrange", [started, unknown])
def test_word_that_nothing_was_done_gives_it_back(arrange: object) -> None:
    book, name = arrange()  # type: ignore[operator]
    assert State.RELEASED is settled(book.release(name)).reservation.state
    assert Counter(slice=100, available=100) == book.counter()


def test_started_work_that_says_it_goes_on_is_not_unknown_yet() -> None:
    book, name = started(5)
    book.now += 4
    book.extend(name, 60)
    book.now += 59
    assert isinstance(book.expire(name), Forbidden)
    assert State.STARTED is book.reservation(name).state


def test_what_is_unknown_cannot_be_extended() -> None:
    book, name = unknown()
    refused = book.extend(name)
    assert isinstance(refused, Forbidden)
    assert "cannot extend: it is UNKNOWN, only PENDING or STARTED can be" == refused.message


def test_a_reserve_repeated_meanwhile_says_that_it_is_unknown() -> None:
    book, name = unknown()
    again = book.reserve(10, name="another", request=f"request-{name}", ttl=5)
    assert isinstance(again, Granted)
    assert (name, State.UNKNOWN, True) == (again.reservation.id, again.reservation.state, again.replayed)
