"""What requests of lower priority leave to those of higher ones. `Book` replays the ledgers after every command."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from tests.core.builders import QUOTA, Book, allocation, unlimited

from regionquota.core import counter as counters
from regionquota.core.admission import Admitted, admit, kept
from regionquota.core.commands import Charge, Denied, DenyReason, Granted, Outcome
from regionquota.core.counter import Counter
from regionquota.core.periods import TIMELESS
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, Priority, QuotaPolicy, Refill
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.shards import MAX_SHARDS, decides_alone, may_be_split, merge, split
from regionquota.core.slice import Holding

GRADED = QuotaPolicy(normal_fill_percent=90, low_fill_percent=50)
HIGH, NORMAL, LOW = Priority


def holding(counter: Counter, policy: QuotaPolicy, guaranteed: int = 0) -> Holding:
    return Holding(QUOTA, Kind.ALLOCATED, 1000, 1, TIMELESS, counter, policy, guaranteed=guaranteed)


def denial(outcome: Outcome) -> Denied:
    assert isinstance(outcome, Denied)
    return outcome


def test_each_priority_fills_its_part_of_the_slice_and_high_all_of_it() -> None:
    book = Book(100, policy=GRADED)
    for priority, fits in ((LOW, 50), (NORMAL, 40)):
        assert DenyReason.KEPT_FOR_HIGHER_PRIORITY is denial(book.reserve(fits + 1, priority=priority)).reason
        assert isinstance(book.reserve(fits, priority=priority), Granted)
    assert isinstance(book.reserve(10, priority=HIGH), Granted)
    assert Counter(slice=100, reserved=100) == book.counter()
    assert DenyReason.OVER_LIMIT is denial(book.reserve(1, priority=HIGH)).reason


def test_what_higher_priorities_hold_counts_for_the_lower_ones_too() -> None:
    book = Book(100, policy=GRADED)
    book.reserve(60, priority=HIGH)
    refused = denial(book.reserve(1, priority=LOW))
    assert (DenyReason.KEPT_FOR_HIGHER_PRIORITY, 0, 40, 50) == (
        refused.reason, refused.free, refused.room, refused.kept
    )  # fmt: skip
    assert isinstance(book.reserve(30), Granted)


def test_what_had_not_fitted_anybody_is_said_to_be_over_the_limit() -> None:
    refused = denial(Book(100, policy=GRADED).reserve(101, priority=LOW))
    assert (DenyReason.OVER_LIMIT, 50) == (refused.reason, refused.free)


@pytest.mark.parametrize("slice_", [0, 1, 3, 99, 101, MAX_AMOUNT])
@pytest.mark.parametrize("percent", [0, 1, 33, 50, 99, 100])
def test_the_percent_is_exact_and_rounded_against_the_lower_one(slice_: int, percent: int) -> None:
    book = Book(slice_, policy=QuotaPolicy(low_fill_percent=percent))
    fits = slice_ * percent // 100
    if fits < MAX_AMOUNT:
        assert isinstance(book.reserve(fits + 1, priority=LOW), Denied)
    if fits:
        assert isinstance(book.reserve(fits, priority=LOW), Granted)


def test_a_percent_that_falls_while_holds_exist_ends_none_of_them() -> None:
    book = Book(100, policy=GRADED)
    held = book.hold(80)
    book.resize(100, policy=replace(GRADED, normal_fill_percent=60, generation=2))
    assert DenyReason.KEPT_FOR_HIGHER_PRIORITY is denial(book.reserve(1)).reason
    assert isinstance(book.reserve(20, priority=HIGH), Granted)
    book.commit(held)
    assert Counter(slice=100, reserved=20, used=80) == book.counter()


def test_usage_that_was_not_asked_for_beforehand_is_charged_whatever_is_kept() -> None:
    book = Book(100, policy=GRADED)
    held = book.hold(50)
    book.commit(held, 100)
    assert Counter(slice=100, used=100) == book.counter()


@pytest.mark.parametrize("mode", [Enforcement.SOFT, Enforcement.SHADOW])
def test_where_no_limit_is_enforced_it_is_only_said(mode: Enforcement) -> None:
    book = Book(100, policy=replace(GRADED, enforcement=mode))
    admitted = book.reserve(70, priority=LOW)
    assert isinstance(admitted, Granted)
    assert DenyReason.KEPT_FOR_HIGHER_PRIORITY is admitted.would_deny
    assert Counter(slice=100, available=30, reserved=70) == book.counter()


def test_unlimited_keeps_nothing_for_anybody() -> None:
    book = Book(100)
    book.hear(unlimited(allocation(1000, policy=GRADED, eu=100)))
    admitted = book.reserve(500, priority=LOW)
    assert isinstance(admitted, Granted)
    assert admitted.would_deny is None


def test_each_line_goes_by_its_own_policy_and_all_or_none_are_held() -> None:
    book, project = Book(100, policy=GRADED), QuotaKey(QUOTA.tenant, QUOTA.resource, "project")
    book.resize(100, project, QuotaPolicy(low_fill_percent=10))
    also = [Charge(QUOTA, 20, (0,))]
    refused = denial(book.reserve(20, key=project, also=also, priority=LOW))
    assert (project, DenyReason.KEPT_FOR_HIGHER_PRIORITY) == (refused.holding.key, refused.reason)
    assert isinstance(book.reserve(20, key=project, also=also), Granted)
    book.resize(100, project, QuotaPolicy(generation=2))
    refused = denial(book.reserve(40, key=project, also=[Charge(QUOTA, 40, (0,))], priority=LOW))
    assert (QUOTA, DenyReason.KEPT_FOR_HIGHER_PRIORITY) == (refused.holding.key, refused.reason)
    assert (20, 20) == (book.counter(project).reserved, book.counter().reserved)


def test_what_is_guaranteed_to_others_counts_as_held_and_is_no_part_of_what_is_kept() -> None:
    parent = holding(Counter(slice=100, available=100), policy=GRADED, guaranteed=30)
    assert isinstance(admit(parent, 20, LOW, own_lien=0, enforced=True), Admitted)
    assert DenyReason.KEPT_FOR_HIGHER_PRIORITY is admit(parent, 21, LOW, own_lien=0, enforced=True)
    assert isinstance(admit(parent, 70, HIGH, own_lien=0, enforced=True), Admitted)
    assert isinstance(admit(parent, 50, LOW, own_lien=30, enforced=True), Admitted), "a guarantee of one's own is free"


def test_what_leaks_out_of_a_rate_makes_room_for_the_lower_ones_again() -> None:
    policy = QuotaPolicy(refill=Refill(10, 1, 100), low_fill_percent=50)
    book = Book(100, Kind.RATE, policy=policy)
    book.hear(allocation(100, kind=Kind.RATE, policy=policy, eu=100))
    held = book.hold(60)
    book.commit(held)
    assert isinstance(book.reserve(1, priority=LOW), Denied)
    book.now += 2
    assert isinstance(book.reserve(10, priority=LOW), Granted)
    assert isinstance(book.reserve(1, priority=LOW), Denied)


def test_a_repeat_at_another_priority_is_the_same_request() -> None:
    book = Book(100, policy=GRADED)
    assert isinstance(book.reserve(60, request="a", priority=LOW), Denied)
    first = book.reserve(60, request="a", priority=HIGH)
    again = book.reserve(60, request="a", priority=LOW)
    assert isinstance(first, Granted)
    assert isinstance(again, Granted)
    assert (first.reservation.id, True) == (again.reservation.id, again.replayed)
    assert 60 == book.counter().reserved


@given(
    st.integers(0, 400),
    st.sampled_from([(100, 100), (100, 80), (90, 33), (67, 67), (50, 0)]),
    st.integers(2, MAX_SHARDS),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from([*Priority, None]), st.integers(1, 60)), max_size=40),
)
def test_what_a_shard_admits_alone_the_whole_admits_too(
    slice_: int, fills: tuple[int, int], n: int, steps: list[tuple[int, Priority | None, int]]
) -> None:
    """None gives back. What no shard may decide alone is decided upon all, and laid out anew."""
    policy = QuotaPolicy(normal_fill_percent=fills[0], low_fill_percent=fills[1])
    shards = [holding(Counter(slice=slice_, available=slice_), policy=policy)]
    for place, priority, amount in steps:
        whole = merge(shards)
        if len(shards) == 1 and may_be_split(whole, n):
            shards = list(split(whole, n))
        one = shards[place % len(shards)]
        if priority is None:
            freed = counters.release(one.counter, min(amount, one.counter.reserved))
            shards[place % len(shards)] = altered(one, counter=freed)
            continue
        right = admit(whole, amount, priority, own_lien=0, enforced=True)
        word = admit(one, amount, priority, own_lien=0, enforced=True)
        if isinstance(word, Admitted) and decides_alone(one, altered(one, counter=word.counter)):
            assert isinstance(right, Admitted)
            shards[place % len(shards)] = altered(one, counter=word.counter)
        elif isinstance(right, Admitted):
            changed = altered(whole, counter=right.counter)
            shards = list(split(changed, len(shards))) if may_be_split(changed, len(shards)) else [changed]
        whole = merge(shards)
        assert len(shards) == 1 or whole.counter.available >= kept(whole, LOW)


def test_a_counter_is_not_split_into_parts_that_together_keep_too_little() -> None:
    """Of 8 units 2 may be filled, and are. The parts 5 and 3 would keep 4 and 2: but the first has only 3 left."""
    policy = QuotaPolicy(normal_fill_percent=34, low_fill_percent=34)
    full = holding(Counter(slice=8, available=6, reserved=1, used=1), policy=policy)
    first, second = split(altered(full, policy=DEFAULT_POLICY), 2)
    assert [(5, 3), (3, 3)] == [(one.slice, one.counter.available) for one in (first, second)]
    assert isinstance(admit(altered(second, policy=policy), 1, LOW, own_lien=0, enforced=True), Admitted)
    assert isinstance(admit(full, 1, LOW, own_lien=0, enforced=True), DenyReason)
    assert not may_be_split(full, 2)
