"""A consumable quota over the end of a month. `Book` replays the ledgers after every command."""

from tests.core.builders import Book, at

from regionquota.core.commands import Denied, DenyReason, Granted, Invalid, Outcome, Settled
from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.quota import MAX_AMOUNT, Kind
from regionquota.core.reservation import State

MAY, JUNE = (epoch_of(Kind.CONSUMABLE, at(2026, month)) for month in (5, 6))
LATE_IN_MAY, IN_JUNE = at(2026, 5, 31, 23, 59, 30), at(2026, 6, 1, 0, 0, 10)


def denial(outcome: Outcome) -> DenyReason:
    assert isinstance(outcome, Denied)
    return outcome.reason


def late_in_may(slice_: int = 100) -> Book:
    return Book(slice_, Kind.CONSUMABLE, LATE_IN_MAY)


def in_june(book: Book) -> Book:
    """Something was asked for in June, so the counter of May is closed."""
    book.now = IN_JUNE
    book.release(book.hold(1, ttl=5))
    return book


def test_a_new_month_counts_from_zero() -> None:
    book = late_in_may()
    book.adjust(100)
    assert isinstance(book.reserve(1), Denied)
    book.now = at(2026, 6, 1)
    assert isinstance(book.reserve(100), Granted)


def test_no_month_ends_early() -> None:
    book = late_in_may()
    book.adjust(100)
    book.now = at(2026, 5, 31, 23, 59, 59) + 0.999
    assert isinstance(book.reserve(1), Denied)


def test_what_the_old_month_used_stays_in_the_old_month() -> None:
    book = late_in_may()
    book.adjust(60)
    in_june(book)
    assert (60, 0) == (book.closed(MAY).used, book.counter().used)


def test_a_hold_of_the_old_month_is_committed_in_the_old_month() -> None:
    book = late_in_may()
    name = book.hold(30)
    in_june(book)
    done = book.commit(name)
    assert isinstance(done, Settled)
    assert MAY == done.reservation.epoch
    assert Counter(slice=100, available=70, used=30) == book.closed(MAY)
    assert Counter(slice=100, available=100) == book.counter()


def test_a_hold_is_committed_in_its_month_also_when_nobody_noticed_the_new_one() -> None:
    book = late_in_may()
    name = book.hold(30)
    book.now = IN_JUNE
    book.commit(name)
    assert isinstance(book.reserve(100), Granted)
    assert 30 == book.closed(MAY).used


def test_a_hold_made_and_a_month_turned_in_one_batch_are_told_apart() -> None:
    book = late_in_may()
    old = book.hold(30)
    book.now = IN_JUNE
    new = book.hold(80)
    book.commit(old)
    book.commit(new)
    assert (30, 80) == (book.closed(MAY).used, book.counter().used)


def test_a_hold_of_the_old_month_does_not_narrow_the_new_one() -> None:
    book = late_in_may()
    book.hold(100, ttl=600)
    book.now = IN_JUNE
    assert isinstance(book.reserve(100), Granted)


def test_a_hold_of_the_old_month_is_released_in_the_old_month() -> None:
    book = late_in_may()
    name = book.hold(30)
    in_june(book)
    book.release(name)
    assert (100, 0) == (book.closed(MAY).available, book.closed(MAY).reserved)
    assert 100 == book.counter().available


def test_a_hold_of_the_old_month_expires_in_the_old_month() -> None:
    book = late_in_may()
    name = book.hold(30, ttl=5)
    in_june(book)
    assert isinstance(book.expire(name), Settled)
    assert (0, 100) == (book.closed(MAY).reserved, book.counter().available)


def test_a_late_commit_is_charged_to_the_month_of_its_reserve() -> None:
    book = late_in_may()
    name = book.hold(30, ttl=5)
    book.now += 5
    book.expire(name)
    in_june(book)
    book.commit(name)
    assert State.COMMITTED is book.reservation(name).state
    assert (30, 0) == (book.closed(MAY).used, book.counter().used)


def test_what_an_old_month_is_overdrawn_by_is_charged_to_the_new_one_and_only_there() -> None:
    book = late_in_may()
    name = book.hold(30)
    in_june(book)
    book.commit(name, 130)
    assert (100, 0) == (book.closed(MAY).used, book.closed(MAY).debt)
    assert Counter(slice=100, available=70, used=30) == book.counter()
    assert [("commit", 130), ("overdraft", 30), ("carry", -30), ("repay", 30), ("carry", 30)] == book.entries()


def test_a_late_commit_may_close_the_new_month_with_its_debt() -> None:
    book = late_in_may()
    name = book.hold(30)
    in_june(book)
    book.hold(90)
    book.commit(name, 130)
    assert 20 == book.counter().debt
    assert DenyReason.IN_DEBT is denial(book.reserve(1))


def test_debt_is_paid_out_of_the_new_month_first() -> None:
    book = late_in_may()
    book.adjust(130)
    in_june(book)
    assert Counter(slice=100, available=70, used=30) == book.counter()
    assert ("carry", 30) in book.entries()


def test_a_debt_that_the_new_month_cannot_pay_keeps_it_closed() -> None:
    book = late_in_may()
    book.adjust(250)
    book.now = IN_JUNE
    assert DenyReason.IN_DEBT is denial(book.reserve(1))
    book.adjust(-1)
    assert (149, 49) == (book.counter().used, book.counter().debt)
    assert (100, 0) == (book.closed(MAY).used, book.closed(MAY).debt)


def test_a_denial_in_the_new_month_writes_nothing() -> None:
    book = late_in_may()
    book.adjust(60)
    book.now = IN_JUNE
    before = book.holding()
    assert DenyReason.OVER_LIMIT is denial(book.reserve(101))
    assert before == book.holding()


def test_a_charge_of_an_old_month_that_the_new_one_could_not_store_is_refused() -> None:
    book = late_in_may()
    name = book.hold(30)
    in_june(book)
    book.adjust(MAX_AMOUNT - 10)
    before = book.counter()
    assert isinstance(book.commit(name, 130), Invalid)
    assert before == book.counter()
    assert isinstance(book.commit(name, 105), Settled)


def test_a_clock_that_goes_back_goes_on_in_the_new_month() -> None:
    book = in_june(late_in_may())
    book.now = LATE_IN_MAY
    granted = book.reserve(10)
    assert isinstance(granted, Granted)
    assert JUNE == granted.reservation.epoch


def test_a_slice_that_changes_in_the_new_month_leaves_the_old_one_as_it_was() -> None:
    book = late_in_may()
    book.adjust(60)
    book.now = IN_JUNE
    book.resize(150)
    assert (100, 60) == (book.closed(MAY).slice, book.closed(MAY).used)
    assert Counter(slice=150, available=150) == book.counter()


def test_a_quota_that_is_held_for_good_does_not_turn_with_the_month() -> None:
    book = Book(100, Kind.ALLOCATED, LATE_IN_MAY)
    book.adjust(60)
    in_june(book)
    assert 60 == book.counter().used
