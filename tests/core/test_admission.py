"""What a policy makes of a request that does not fit. `Book` replays the ledgers after every command."""

from dataclasses import replace

import pytest
from tests.core.builders import Book, allocation, at, unlimited

from regionquota.core.commands import Denied, DenyReason, Granted, Invalid, Outcome, Settled
from regionquota.core.counter import Counter
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, Kind
from regionquota.core.slice import roll_over

SOFT, SHADOW = (QuotaPolicy(enforcement=mode) for mode in (Enforcement.SOFT, Enforcement.SHADOW))
lenient = pytest.mark.parametrize("policy", [SOFT, SHADOW], ids=["soft", "shadow"])


def granted(outcome: Outcome) -> Granted:
    assert isinstance(outcome, Granted)
    return outcome


def denial(outcome: Outcome) -> DenyReason:
    assert isinstance(outcome, Denied)
    return outcome.reason


def boundless(book: Book, policy: QuotaPolicy = DEFAULT_POLICY, slice_: int = 100) -> Book:
    book.hear(unlimited(allocation(1000, policy=policy, eu=slice_)))
    return book


@lenient
def test_what_does_not_fit_a_soft_or_shadow_limit_is_admitted_and_said(policy: QuotaPolicy) -> None:
    book = Book(100, policy=policy)
    word = granted(book.reserve(130))
    assert (DenyReason.OVER_LIMIT, 30) == (word.would_deny, word.reservation.over)
    assert Counter(slice=100, reserved=130, overage=30) == book.counter()


@lenient
def test_what_fits_a_soft_or_shadow_limit_is_nothing_to_be_told_of(policy: QuotaPolicy) -> None:
    word = granted(Book(100, policy=policy).reserve(100))
    assert (None, 0) == (word.would_deny, word.reservation.over)


@lenient
def test_a_soft_or_shadow_limit_is_never_owed(policy: QuotaPolicy) -> None:
    book = Book(100, policy=policy)
    book.commit(book.hold(10), 150)
    book.adjust(20)
    assert (0, 70) == (book.counter().debt, book.counter().overage)


@lenient
def test_overage_goes_first_when_something_is_given_back(policy: QuotaPolicy) -> None:
    book = Book(100, policy=policy)
    first, second = book.hold(80), book.hold(60)
    book.release(first)
    assert Counter(slice=100, available=40, reserved=60) == book.counter()
    book.commit(second)
    assert 0 == book.counter().overage


@lenient
def test_a_limit_that_becomes_hard_denies_until_the_overage_is_gone(policy: QuotaPolicy) -> None:
    book = Book(100, policy=policy)
    name = book.hold(130)
    book.resize(100, policy=DEFAULT_POLICY)
    assert DenyReason.OVER_LIMIT is denial(book.reserve(1))
    book.commit(name, 99)
    assert isinstance(book.reserve(1), Granted)


def test_no_sum_that_could_not_be_stored_is_admitted_whatever_the_policy() -> None:
    book = Book(100, policy=SHADOW)
    book.hold(MAX_AMOUNT)
    assert DenyReason.OVER_LIMIT is denial(book.reserve(1))


def test_overage_of_a_period_ends_with_it() -> None:
    late = at(2026, 5, 31, 23, 59)
    book = Book(100, Kind.CONSUMABLE, late, SOFT)
    book.adjust(150)
    assert Counter(slice=100, available=100) == roll_over(book.holding(), late + 120).counter


def test_a_part_of_the_requests_is_held_to_the_limit_and_the_others_as_in_shadow() -> None:
    policy = QuotaPolicy(enforced_percent=30)
    book = Book(0, policy=policy)
    for n in range(200):
        outcome = book.reserve(1, request=f"request-{n}")
        assert policy.holds_to("acme", f"request-{n}") is isinstance(outcome, Denied)
        if isinstance(outcome, Granted):
            assert DenyReason.OVER_LIMIT is outcome.would_deny


def test_a_request_that_was_held_to_the_limit_is_so_at_each_repeat() -> None:
    book = Book(0, policy=QuotaPolicy(enforced_percent=50))
    first = [type(book.reserve(1, request=f"request-{n}")) for n in range(40)]
    assert first == [type(book.reserve(1, request=f"request-{n}")) for n in range(40)]


def test_where_any_request_is_held_to_the_limit_what_is_settled_beyond_it_is_owed() -> None:
    book = Book(100, policy=QuotaPolicy(enforced_percent=1))
    book.commit(book.hold(10), 130)
    assert 30 == book.counter().debt


def test_where_no_request_is_held_to_the_limit_nothing_is_owed() -> None:
    book = Book(100, policy=QuotaPolicy(enforced_percent=0))
    book.commit(book.hold(10), 130)
    assert (0, 30) == (book.counter().debt, book.counter().overage)


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, QuotaPolicy(enforced_percent=100)])
def test_zero_blocks(policy: QuotaPolicy) -> None:
    assert DenyReason.OVER_LIMIT is denial(Book(0, policy=policy).reserve(1))


@pytest.mark.parametrize("slice_", [0, 100])
def test_unlimited_admits_what_no_slice_would_hold(slice_: int) -> None:
    word = granted(boundless(Book(slice_), slice_=slice_).reserve(10**9))
    assert (None, 10**9 - slice_) == (word.would_deny, word.reservation.over)


def test_unlimited_is_no_limit_on_a_single_reservation_either() -> None:
    assert granted(boundless(Book(100), QuotaPolicy(max_single=5)).reserve(50)).would_deny is None


def test_unlimited_then_limited_then_unlimited_again() -> None:
    book = boundless(Book(100))
    name = book.hold(250)
    book.resize(100)
    assert DenyReason.OVER_LIMIT is denial(book.reserve(1))
    boundless(book)
    assert isinstance(book.reserve(1), Granted)
    book.resize(100)
    book.release(name)
    assert Counter(slice=100, available=99, reserved=1) == book.counter()


def test_one_reservation_may_not_be_larger_than_the_policy_says() -> None:
    book = Book(100, policy=QuotaPolicy(max_single=40))
    assert DenyReason.MAX_SINGLE_RESERVATION is denial(book.reserve(41))
    assert isinstance(book.reserve(40), Granted)


def test_a_shadow_limit_tells_of_single_reservations_that_are_too_large() -> None:
    word = granted(Book(100, policy=replace(SHADOW, max_single=40)).reserve(41))
    assert (DenyReason.MAX_SINGLE_RESERVATION, 0) == (word.would_deny, word.reservation.over)


@pytest.mark.parametrize("mode", list(Enforcement))
def test_closed_admission_takes_nothing_new_in_any_mode(mode: Enforcement) -> None:
    book = Book(100, policy=QuotaPolicy(enforcement=mode, admission_open=False))
    assert DenyReason.ADMISSION_CLOSED is denial(book.reserve(1))


def test_closed_admission_takes_nothing_new_where_there_is_no_limit() -> None:
    book = boundless(Book(100), QuotaPolicy(admission_open=False))
    assert DenyReason.ADMISSION_CLOSED is denial(book.reserve(1))


def test_closed_admission_settles_what_is_held_until_all_is_zero() -> None:
    book = Book(100)
    committed, released, expired, late = (book.hold(10, ttl=5) for _ in range(4))
    book.resize(100, policy=QuotaPolicy(admission_open=False, generation=2))
    book.extend(committed, 600)
    book.now += 5
    for name in (expired, late):
        assert isinstance(book.expire(name), Settled)
    assert isinstance(book.commit(committed), Settled)
    assert isinstance(book.release(released), Settled)
    assert isinstance(book.commit(late), Settled)
    book.adjust(-20)
    assert Counter(slice=100, available=100) == book.counter()


def test_above_the_largest_overdraft_the_denial_says_so() -> None:
    book = Book(100, policy=QuotaPolicy(max_overdraft=20))
    name = book.hold(100)
    book.commit(name, 120)
    assert DenyReason.IN_DEBT is denial(book.reserve(1))
    book.adjust(1)
    assert DenyReason.OVERDRAFT_EXCEEDED is denial(book.reserve(1))


def test_a_debt_beyond_the_largest_overdraft_is_recorded_in_full() -> None:
    book = Book(100, policy=QuotaPolicy(max_overdraft=20))
    book.commit(book.hold(100), 500)
    assert 400 == book.counter().debt


@pytest.mark.parametrize(("ttl", "fits"), [(9, False), (10, True), (60, True), (61, False)])
def test_a_policy_bounds_the_ttl_of_a_reserve_and_of_an_extension(ttl: int, fits: bool) -> None:
    book = Book(100, policy=QuotaPolicy(min_ttl_s=10, max_ttl_s=60))
    outcome = book.reserve(1, ttl=ttl)
    assert fits is isinstance(outcome, Granted)
    extended = book.extend(book.hold(1, ttl=30), ttl)
    assert fits is isinstance(extended, Settled)
    for refused in (outcome, extended):
        assert fits or (
            isinstance(refused, Invalid) and refused.field == "ttl_s" and "from 10 to 60" in refused.message
        )


def test_a_reservation_keeps_the_generation_that_it_was_admitted_under() -> None:
    book = Book(100)
    first = book.hold(1)
    book.resize(100, policy=QuotaPolicy(max_single=50, generation=2))
    second = book.hold(1)
    book.commit(first)
    assert [1, 2] == [book.reservation(name).generation for name in (first, second)]


def test_a_change_of_rules_refills_nothing() -> None:
    book = Book(100)
    book.adjust(60)
    book.hold(30)
    for policy in (SOFT, QuotaPolicy(generation=3, enforced_percent=10), DEFAULT_POLICY):
        book.resize(100, policy=policy)
        assert Counter(slice=100, available=10, reserved=30, used=60) == book.counter()
