import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import NOON, QUOTA, allocation, at, fresh, move

from regionquota.core import counter as counters
from regionquota.core.allocation import Allocation, Move
from regionquota.core.counter import Counter
from regionquota.core.periods import epoch_of
from regionquota.core.quota import Kind
from regionquota.core.slice import Holding, apply, roll_over

MAY, JUNE, JULY = (epoch_of(Kind.CONSUMABLE, at(2026, month)) for month in (5, 6, 7))


def holding(counter: Counter, *, revision: int = 10, kind: Kind = Kind.ALLOCATED, epoch: int = 0) -> Holding:
    return Holding(QUOTA, kind, 1000, revision, epoch, counter)


def heard(before: Holding | None, document: Allocation, revision: int = 11, now: float = NOON) -> Holding:
    changed = apply(before, QUOTA, document, revision, "eu", now)
    assert changed is not None
    return changed


def test_a_region_that_hears_of_its_first_slice_opens_a_counter() -> None:
    opened = heard(None, allocation(1000, eu=300), 7)
    assert holding(fresh(300), revision=7) == opened


def test_a_region_without_a_slice_holds_nothing() -> None:
    assert 0 == heard(None, allocation(1000, us=300)).slice


def test_an_older_revision_is_refused() -> None:
    assert apply(holding(Counter(), revision=12), QUOTA, allocation(1000, eu=300), 11, "eu", NOON) is None


def test_the_same_revision_may_be_heard_again() -> None:
    once = heard(None, allocation(1000, eu=300), 11)
    assert once == heard(once, allocation(1000, eu=300), 11)


def test_the_newest_revision_and_limit_are_remembered_even_if_the_slice_stays() -> None:
    changed = heard(holding(fresh(300)), allocation(800, eu=300), 15)
    assert (15, 800) == (changed.revision, changed.limit)


def test_a_requested_move_is_taken_out_of_what_is_available() -> None:
    changed = heard(holding(fresh(300)), allocation(1000, eu=300, moves=[move("eu", "us", 40)]))
    assert Counter(slice=260, available=260) == changed.counter


def test_several_moves_are_taken_out_together() -> None:
    moves = [move("eu", "us", 40, "m1"), move("eu", None, 60, "m2"), move("us", "eu", 500, "m3")]
    assert 200 == heard(holding(fresh(300)), allocation(1000, eu=300, us=500, moves=moves)).slice


def asked_of(counter: Counter, *moves: Move) -> Holding:
    return heard(holding(counter), allocation(1000, eu=counter.slice, moves=list(moves)))


def test_who_has_less_than_was_believed_gives_less_in_proportion() -> None:
    half = Counter(slice=300, available=100, used=200)
    assert 260 == asked_of(half, Move("m", "eu", "us", 80, believed=200)).slice
    assert 220 == asked_of(half, Move("m", "eu", "us", 80, believed=100)).slice
    assert 220 == asked_of(half, Move("m", "eu", "us", 80)).slice
    assert 300 == asked_of(Counter(slice=300, used=300), Move("m", "eu", "us", 80, believed=200)).slice


def test_the_last_unit_is_not_kept_for_want_of_a_whole_part() -> None:
    assert 299 == asked_of(Counter(slice=300, available=1, used=299), Move("m", "eu", "us", 1, believed=2)).slice


def test_what_was_given_up_in_proportion_is_neither_asked_for_again_nor_taken_back() -> None:
    """The hand-over of what was given up may be on its way: at that revision it may belong to another by now."""
    document = allocation(1000, eu=300, moves=[Move("m", "eu", "us", 80, believed=200)])
    gave = heard(holding(Counter(slice=300, available=100, used=200)), document)
    assert 260 == gave.slice
    assert 260 == heard(gave, document).slice
    for amount in (1, 30, 60):
        busier = replace(gave, counter=counters.charge(gave.counter, amount))
        assert 260 == heard(busier, document).slice
    calmer = replace(gave, counter=counters.refund(gave.counter, 100))
    assert 220 == heard(calmer, document).slice


@given(
    st.integers(0, 300), st.integers(0, 300), st.lists(st.tuples(st.integers(1, 300), st.integers(0, 400)), max_size=3)
)
def test_a_fair_part_is_within_what_was_asked_for_and_what_is_available(
    used: int, before: int, asked: list[tuple[int, int]]
) -> None:
    moves = [Move(f"m{number}", "eu", "us", amount, believed=known) for number, (amount, known) in enumerate(asked)]
    document = allocation(1000, eu=300, moves=moves)
    slice_ = max(used, 300 - before)
    changed = heard(holding(Counter(slice=slice_, available=slice_ - used, used=used)), document)
    gave = slice_ - changed.slice
    total = sum(amount for amount, _ in asked)
    if slice_ > max(0, 300 - total):
        assert 0 <= gave <= min(slice_ - used, total)


def test_moves_of_more_than_there_is_take_all_there_is() -> None:
    greedy = allocation(1000, eu=300, moves=[move("eu", "us", 400)])
    assert 0 == heard(holding(fresh(300)), greedy).slice


def test_a_slice_shrinks_only_by_what_is_available() -> None:
    spent = Counter(slice=300, available=30, reserved=120, used=150)
    changed = heard(holding(spent), allocation(1000, eu=300, moves=[move("eu", "us", 100)]))
    assert Counter(slice=270, reserved=120, used=150) == changed.counter


def test_a_slice_in_debt_does_not_shrink() -> None:
    indebted = counters.charge(fresh(300), 350)
    assert indebted == heard(holding(indebted), allocation(1000, eu=300, moves=[move("eu", "us", 100)])).counter


def test_the_rest_follows_when_usage_has_fallen() -> None:
    document = allocation(1000, eu=300, moves=[move("eu", "us", 100)])
    stuck = heard(holding(Counter(slice=300, available=30, used=270)), document)
    freed = holding(counters.refund(stuck.counter, 200), revision=11)
    assert 200 == heard(freed, document).slice


def test_a_withdrawn_move_gives_the_slice_back() -> None:
    assert 300 == heard(holding(fresh(260)), allocation(1000, eu=300)).slice


def test_what_is_received_repays_debt_first() -> None:
    indebted = counters.charge(fresh(100), 130)
    changed = heard(holding(indebted), allocation(1000, eu=150)).counter
    assert (0, 20) == (changed.debt, changed.available)


def test_capacity_freed_this_month_cannot_be_spent_last_month() -> None:
    behind = holding(fresh(100), kind=Kind.CONSUMABLE, epoch=MAY)
    freed = allocation(1000, kind=Kind.CONSUMABLE, epoch=JUNE, eu=150)
    assert 100 == heard(behind, freed, now=at(2026, 5, 31, 23, 59)).slice


def test_a_region_that_waited_for_its_month_raises_its_slice_when_it_begins() -> None:
    freed = allocation(1000, kind=Kind.CONSUMABLE, epoch=JUNE, eu=150)
    waiting = heard(holding(fresh(100), kind=Kind.CONSUMABLE, epoch=MAY), freed, now=at(2026, 5, 31, 23, 59))
    begun = heard(waiting, freed, now=at(2026, 6, 1))
    assert (JUNE, 150) == (begun.epoch, begun.slice)


def test_a_region_ahead_may_take_what_was_freed_last_month() -> None:
    ahead = holding(fresh(100), kind=Kind.CONSUMABLE, epoch=JULY)
    freed = allocation(1000, kind=Kind.CONSUMABLE, epoch=JUNE, eu=150)
    assert 150 == heard(ahead, freed, now=at(2026, 7, 1)).slice


def test_a_region_behind_still_gives_up_what_it_is_asked_for() -> None:
    behind = holding(fresh(100), kind=Kind.CONSUMABLE, epoch=MAY)
    asked = allocation(1000, kind=Kind.CONSUMABLE, epoch=JUNE, eu=100, moves=[move("eu", "us", 30)])
    assert 70 == heard(behind, asked, now=at(2026, 5, 31)).slice


def test_a_clock_that_goes_back_does_not_bring_the_old_month_back() -> None:
    ahead = holding(fresh(100), kind=Kind.CONSUMABLE, epoch=JUNE)
    assert ahead is roll_over(ahead, at(2026, 5, 31, 23, 59, 59))


@pytest.mark.parametrize(
    ("last", "first"),
    [
        (at(2026, 2, 28, 23, 59, 59), at(2026, 3, 1)),
        (at(2028, 2, 29, 23, 59, 59), at(2028, 3, 1)),
        (at(2026, 4, 30, 23, 59, 59), at(2026, 5, 1)),
        (at(2026, 12, 31, 23, 59, 59), at(2027, 1, 1)),
    ],
)
def test_a_month_is_counted_from_zero_when_it_begins_and_not_earlier(last: float, first: float) -> None:
    spent = heard(None, allocation(1000, kind=Kind.CONSUMABLE, eu=100), now=last)
    spent = Holding(QUOTA, spent.kind, 1000, 11, spent.epoch, counters.charge(spent.counter, 60))
    assert 60 == roll_over(spent, last).counter.used
    begun = roll_over(spent, first)
    assert (spent.epoch + 1, 0) == (begun.epoch, begun.counter.used)


def test_months_that_nobody_noticed_are_skipped() -> None:
    old = holding(fresh(100), kind=Kind.CONSUMABLE, epoch=MAY)
    assert JULY == roll_over(old, at(2026, 7, 15)).epoch


def test_debt_is_carried_into_the_new_month() -> None:
    indebted = holding(counters.charge(fresh(100), 130), kind=Kind.CONSUMABLE, epoch=MAY)
    assert Counter(slice=100, available=70, used=30) == roll_over(indebted, at(2026, 6, 1)).counter


def test_what_is_allocated_outlives_every_month() -> None:
    lasting = holding(counters.charge(fresh(100), 60))
    assert lasting is roll_over(lasting, at(2099, 1, 1))


@given(
    owned=st.integers(0, 500),
    asked=st.lists(st.integers(1, 300), max_size=3),
    slice_=st.integers(0, 500),
    used=st.integers(0, 500),
    reserved=st.integers(0, 200),
)
def test_a_region_that_holds_no_more_than_it_owns_never_will(
    owned: int, asked: list[int], slice_: int, used: int, reserved: int
) -> None:
    held = counters.charge(fresh(min(slice_, owned)), used)
    held = counters.reserve(held, reserved) or held
    moves = [move("eu", "us", amount, f"m{n}") for n, amount in enumerate(asked)]
    changed = heard(holding(held), allocation(1000, eu=owned, moves=moves))
    assert max(0, owned - sum(asked)) <= changed.slice or changed.slice == held.slice
    assert changed.slice <= owned
    assert held.used == changed.counter.used
    assert held.reserved == changed.counter.reserved
