import pytest
from tests.core.builders import OTHER, Book, adjust

from regionquota.core.commands import Adjusted, Denied, Granted, Invalid, RequestConflict, UnknownQuota
from regionquota.core.quota import MAX_AMOUNT


def test_an_adjustment_changes_what_is_used() -> None:
    book = Book(100)
    done = book.adjust(30)
    assert isinstance(done, Adjusted)
    assert (30, 70) == (done.adjustment.used, done.adjustment.available)
    assert [("adjust", 30)] == book.entries()


def test_a_negative_adjustment_frees() -> None:
    book = Book(100)
    book.adjust(100)
    assert isinstance(book.reserve(1), Denied)
    book.adjust(-40)
    assert isinstance(book.reserve(40), Granted)


def test_no_adjustment_takes_usage_below_zero() -> None:
    book = Book(100)
    book.adjust(30)
    refused = book.adjust(-31)
    assert Invalid("delta", "delta -31 would take used below 0: it is 30") == refused
    assert 30 == book.counter().used


def test_an_adjustment_beyond_what_is_available_becomes_debt() -> None:
    book = Book(100)
    book.adjust(130)
    assert (130, 30) == (book.counter().used, book.counter().debt)


def test_a_negative_adjustment_repays_debt_first() -> None:
    book = Book(100)
    book.adjust(130)
    book.adjust(-40)
    assert (0, 10) == (book.counter().debt, book.counter().available)
    assert [("adjust", 130), ("overdraft", 30), ("adjust", -40), ("repay", 30)] == book.entries()


def test_the_same_adjustment_twice_is_one() -> None:
    book = Book(100)
    first = book.adjust(30, request="x")
    book.adjust(5)
    again = book.adjust(30, request="x")
    assert isinstance(first, Adjusted)
    assert Adjusted(first.adjustment, replayed=True) == again
    assert 35 == book.counter().used


def test_the_same_adjustment_twice_in_one_batch_is_one() -> None:
    book = Book(100)
    book.do(adjust(30, request="x"), adjust(30, request="x"))
    assert 30 == book.counter().used


def test_the_same_request_id_with_another_delta_is_refused() -> None:
    book = Book(100)
    book.adjust(30, request="x")
    assert RequestConflict("x") == book.adjust(31, request="x")


def test_the_same_request_id_on_another_quota_is_refused() -> None:
    book = Book(100)
    book.resize(100, OTHER)
    book.adjust(30, request="x")
    assert [RequestConflict("x")] == book.do(adjust(30, request="x", key=OTHER))


def test_a_refused_adjustment_may_be_repeated_once_it_fits() -> None:
    book = Book(100)
    assert isinstance(book.adjust(-5, request="x"), Invalid)
    book.adjust(5)
    assert isinstance(book.adjust(-5, request="x"), Adjusted)


def test_an_unknown_quota_cannot_be_adjusted() -> None:
    assert [UnknownQuota(OTHER)] == Book(100).do(adjust(1, request="x", key=OTHER))


@pytest.mark.parametrize("held", [0, 10])
def test_an_adjustment_whose_sum_passes_the_largest_number_is_refused(held: int) -> None:
    book = Book(100)
    if held:
        book.hold(held)
    assert isinstance(book.adjust(MAX_AMOUNT - held + 1), Invalid)
    assert 0 == book.counter().used
    assert isinstance(book.adjust(MAX_AMOUNT - held), Adjusted)
