"""Rate quotas: usage leaks away with time, and no window ever admits more than the burst and what leaked in it."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import NOON, QUOTA, Book, allocation, fresh, unlimited

from regionquota.core import counter as counters
from regionquota.core.commands import Denied, Granted
from regionquota.core.counter import Counter
from regionquota.core.policy import QuotaPolicy, Refill
from regionquota.core.quota import Kind
from regionquota.core.slice import MICROSECONDS, Holding, apply, leak

BURST: Final = 100


def policy(amount: int = 10, interval_s: int = 1, per: int = BURST) -> QuotaPolicy:
    return QuotaPolicy(refill=Refill(amount, interval_s, per))


def rate_book(slice_: int = BURST, rules: QuotaPolicy | None = None) -> Book:
    return Book(slice_, Kind.RATE, NOON, rules or policy())


def spend(book: Book, amount: int) -> None:
    book.commit(book.hold(amount))


def available(book: Book) -> int:
    """As the next reserve would find it."""
    denied = book.reserve(10**6)
    assert isinstance(denied, Denied)
    return denied.holding.counter.available


def test_what_was_used_leaks_away_at_the_rate_of_the_refill() -> None:
    book = rate_book()
    spend(book, 100)
    book.now += 3
    assert 30 == available(book)


def test_the_ledger_says_what_leaked_away() -> None:
    book = rate_book()
    spend(book, 100)
    book.now += 3
    book.hold(1)
    assert ("refill", -30) in book.entries()


def test_a_part_of_the_slice_refills_at_its_part_of_the_rate() -> None:
    book = rate_book(25)
    spend(book, 25)
    book.now += 4
    assert 10 == available(book)


def test_no_more_than_the_slice_is_ever_available() -> None:
    book = rate_book()
    spend(book, 50)
    book.now += 10**6
    assert 100 == available(book)


def test_what_is_held_does_not_leak_away() -> None:
    book = rate_book()
    book.hold(100, ttl=10**6)
    book.now += 1000
    assert 0 == available(book)


def test_what_is_committed_late_begins_to_leak_then() -> None:
    book = rate_book()
    name = book.hold(100, ttl=10**6)
    book.now += 1000
    book.commit(name)
    assert 0 == available(book)


def test_less_than_a_unit_is_not_lost_by_looking_often() -> None:
    book = rate_book(rules=policy(1, 10))
    spend(book, 100)
    for _ in range(100):
        book.now += 1
        book.release(book.hold(1)) if available(book) else None
    assert 10 == available(book)


def test_nothing_leaks_backwards_when_a_clock_does() -> None:
    book = rate_book()
    spend(book, 100)
    book.now += 5
    book.hold(1)
    book.now -= 60
    assert 49 == available(book)
    book.now += 60
    assert 49 == available(book)


def test_debt_is_repaid_by_what_leaks_before_anything_is_available() -> None:
    book = rate_book()
    book.adjust(130)
    book.now += 2
    assert not isinstance(book.reserve(1), Granted)
    book.now += 2
    assert 10 == available(book)


def test_a_slice_of_zero_does_not_refill() -> None:
    book = rate_book(0)
    book.adjust(10)
    book.now += 1000
    book.adjust(1)
    assert 11 == book.counter().used


def test_a_slice_that_grows_gains_no_unit_for_the_time_before() -> None:
    """A slice of 1 gains a unit in 10 s; after 9 s it becomes 100, which gains 10 in each second."""
    book = rate_book(1)
    book.adjust(100)
    book.now += 9
    book.resize(100, policy=policy())
    assert 100 == book.counter().used
    book.now += 0.125
    book.adjust(1)
    assert 100 + 1 - 2 == book.counter().used  # 0.9 of a unit from before, and 1.25


def test_a_slice_that_shrinks_keeps_what_it_has_gained_towards_the_next_unit() -> None:
    book = rate_book(100)
    spend(book, 50)
    book.now += 0.09375  # 15/16 of a unit
    book.resize(50, policy=policy())
    book.now += 0.0625  # 5/16 of one
    book.adjust(1)
    assert 50 == book.counter().used


def test_a_faster_refill_gains_no_unit_for_the_time_before() -> None:
    book = rate_book(rules=policy(1, 100))
    spend(book, 100)
    book.now += 99
    book.resize(100, policy=policy(100, 1))
    assert 100 == book.counter().used
    assert 0 == available(book)


def test_a_quota_that_had_no_refill_gains_nothing_for_the_time_before() -> None:
    book = rate_book()
    book.hear(unlimited(allocation(BURST, kind=Kind.RATE, policy=QuotaPolicy(), eu=BURST)))
    book.adjust(100)
    book.now += 10_000
    book.resize(100, policy=policy())
    assert 0 == available(book)


ticks = st.integers(0, 640)
"""In 64ths of a second: times that are exact in microseconds and in a float alike."""


@given(
    used=st.integers(0, 150),
    slice_=st.integers(0, BURST),
    amount=st.integers(1, 500),
    interval=st.integers(1, 50),
    steps=st.lists(st.tuples(ticks, st.booleans()), max_size=30),
)
@example(used=23, slice_=69, amount=224, interval=21, steps=[(9, False), (191, False)])
def test_never_more_has_leaked_than_the_time_that_passed_allows(
    used: int, slice_: int, amount: int, interval: int, steps: list[tuple[int, bool]]
) -> None:
    begun, now = NOON, NOON
    counter = counters.charge(fresh(slice_), used)
    held = Holding(QUOTA, Kind.RATE, BURST, 1, 0, counter, policy(amount, interval), leaked_at=int(NOON) * MICROSECONDS)
    for ticked, backwards in steps:
        now = max(begun, now + (-ticked if backwards else ticked) / 64)
        held = leak(held, now)
        newest = Fraction(held.leaked_at, MICROSECONDS) - int(begun)
        leaked = used - held.counter.used
        assert leaked <= newest * slice_ * amount / (BURST * interval)
        if not backwards and held.counter.used:
            # And never less than a unit less, but that each step rounds to a microsecond.
            counted = Fraction(now) - int(begun) - Fraction(len(steps), MICROSECONDS)
            assert leaked + 1 > counted * slice_ * amount / (BURST * interval) or now < newest


REGIONS: Final = ("eu", "us", "ap")
actions = st.one_of(
    st.tuples(st.just("wait"), ticks, st.just(0)),
    st.tuples(st.just("admit"), st.integers(0, 2), st.integers(1, 60)),
    st.tuples(st.just("hold"), st.integers(0, 2), st.integers(1, 60)),
    st.tuples(st.just("commit"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("move"), st.integers(0, 2), st.integers(1, 100)),
)


class Regions:
    """Three regions that share one rate quota, and every unit they admitted, with its moment."""

    def __init__(self, slices: Sequence[int], rules: QuotaPolicy) -> None:
        self.now = NOON
        self.rules = rules
        self.admitted: list[tuple[float, int]] = []
        self._revision = 1
        self._held = [self._heard(None, size, place) for place, size in enumerate(slices)]
        self._holds = [0, 0, 0]

    def do(self, name: str, one: int, other: int) -> None:
        match name:
            case "wait":
                self.now += one / 64
            case "admit":
                self._take(one, other)
                self._settle(one)
            case "hold":
                self._take(one, other)
            case "commit":
                self._settle(one)
            case _:
                self._move(one, (one + 1 + other % 2) % 3, other)

    def _take(self, place: int, amount: int) -> None:
        held = leak(self._held[place], self.now)
        taken = counters.reserve(held.counter, amount)
        if taken is not None:
            self._held[place] = replace(held, counter=taken)
            self._holds[place] += amount
            self.admitted.append((self.now, amount))

    def _settle(self, place: int) -> None:
        held, amount = leak(self._held[place], self.now), self._holds[place]
        self._held[place] = replace(held, counter=counters.settle(held.counter, amount, amount))
        self._holds[place] = 0

    def _move(self, source: int, target: int, amount: int) -> None:
        """The donor lowers its slice first; what it could give is what the receiver gains."""
        before = self._held[source].slice
        self._held[source] = self._heard(self._held[source], max(0, before - amount), source)
        given_ = before - self._held[source].slice
        self._held[target] = self._heard(self._held[target], self._held[target].slice + given_, target)

    def _heard(self, held: Holding | None, owned: int, place: int) -> Holding:
        self._revision += 1
        document = allocation(BURST, kind=Kind.RATE, policy=self.rules, **{REGIONS[place]: owned})
        changed = apply(held, QUOTA, document, self._revision, REGIONS[place], self.now)
        assert changed is not None
        return changed


GROWS_JUST_BEFORE_A_UNIT: Final = [
    *(("admit", 0, 10), ("admit", 1, 53), ("wait", 634, 0), ("move", 1, 37), ("admit", 0, 37)),
    *[("admit", place, 1) for place in (0, 1) for _ in range(10)],
]


@given(
    slices=st.sampled_from([(100, 0, 0), (34, 33, 33), (1, 98, 1), (10, 90, 0), (10, 20, 30)]),
    amount=st.integers(1, 300),
    interval=st.integers(1, 60),
    schedule=st.lists(actions, max_size=60),
)
@example(slices=(10, 90, 0), amount=1, interval=1, schedule=GROWS_JUST_BEFORE_A_UNIT)
def test_no_window_admits_more_than_the_burst_and_what_refilled_in_it(
    slices: tuple[int, int, int], amount: int, interval: int, schedule: list[tuple[str, int, int]]
) -> None:
    regions = Regions(slices, policy(amount, interval))
    for action in schedule:
        regions.do(*action)
    for first, (begin, _) in enumerate(regions.admitted):
        total = 0
        for end, units in regions.admitted[first:]:
            total += units
            assert total <= BURST + Fraction(end - begin) * amount / interval


def test_a_burst_is_admitted_once_although_it_is_passed_from_region_to_region() -> None:
    regions = Regions((100, 0, 0), policy(1, 1))
    for place in (0, 1, 2, 0, 1):
        regions.do("admit", place, 60)
        regions.do("move", place, 100)
    assert 60 == sum(units for _, units in regions.admitted)


@pytest.mark.parametrize("moment", [NOON, NOON + 1000])
def test_a_quota_that_is_heard_of_first_begins_full_and_leaks_from_then(moment: float) -> None:
    document = allocation(BURST, kind=Kind.RATE, policy=policy(), eu=40)
    held = apply(None, QUOTA, document, 1, "eu", moment)
    assert held is not None
    assert (Counter(slice=40, available=40), int(moment) * MICROSECONDS) == (held.counter, held.leaked_at)
