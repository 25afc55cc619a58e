import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import fresh

from regionquota.core import counter as counters
from regionquota.core.counter import Counter
from regionquota.core.quota import MAX_AMOUNT
from regionquota.errors import ProtocolError

amounts = st.integers(0, 200) | st.integers(0, 2**40)
names = ["reserve", "beyond", "release", "settle", "charge", "lenient", "refund", "resize"]
steps = st.tuples(st.sampled_from(names), amounts, amounts)


def debtor(debt: int = 30, slice_: int = 100) -> Counter:
    return counters.charge(fresh(slice_), slice_ + debt)


def test_a_counter_that_does_not_add_up_cannot_exist() -> None:
    with pytest.raises(ProtocolError, match="does not add up"):
        Counter(slice=100, available=99)


@pytest.mark.parametrize(
    "balances",
    [
        {"slice": -1, "available": -1},
        {"available": -1, "reserved": 1},
        {"available": 1, "reserved": -1},
        {"available": 1, "used": -1},
        {"available": 1, "retired": -1},
        {"slice": 1, "overdraft_repaid": 1},
        {"slice": 1, "overage": -1},
    ],
)
def test_a_negative_balance_cannot_exist(balances: dict[str, int]) -> None:
    with pytest.raises(ProtocolError, match="negative balance"):
        Counter(**balances)


def test_nothing_is_available_while_debt_is_open() -> None:
    with pytest.raises(ProtocolError, match="available while something is owed"):
        Counter(available=5, overdraft_issued=5)


def test_all_that_is_available_can_be_reserved() -> None:
    assert Counter(slice=100, reserved=100) == counters.reserve(fresh(100), 100)


def test_one_more_than_is_available_cannot_be_reserved() -> None:
    assert counters.reserve(fresh(100), 101) is None


def test_a_slice_of_zero_admits_nothing() -> None:
    assert counters.reserve(Counter(), 1) is None


def test_in_debt_nothing_can_be_reserved() -> None:
    assert counters.reserve(debtor(), 1) is None


def test_committing_less_than_was_held_frees_the_rest() -> None:
    held = Counter(slice=100, available=40, reserved=60)
    assert Counter(slice=100, available=65, used=35) == counters.settle(held, 60, 35)


def test_committing_more_than_was_held_takes_what_is_available_first() -> None:
    held = Counter(slice=100, available=40, reserved=60)
    assert Counter(slice=100, used=100) == counters.settle(held, 60, 100)


def test_committing_more_than_there_is_becomes_debt() -> None:
    held = Counter(slice=100, available=40, reserved=60)
    assert Counter(slice=100, used=130, overdraft_issued=30) == counters.settle(held, 60, 130)


def test_what_is_freed_repays_debt_before_it_becomes_available() -> None:
    partly, wholly = counters.refund(debtor(30), 20), counters.refund(debtor(30), 35)
    assert (10, 0) == (partly.debt, partly.available)
    assert (0, 5) == (wholly.debt, wholly.available)


def test_a_larger_slice_repays_debt_first() -> None:
    grown = counters.resize(debtor(30), 150)
    assert (0, 20) == (grown.debt, grown.available)


def test_no_more_can_be_refunded_than_was_used() -> None:
    with pytest.raises(ProtocolError):
        counters.refund(Counter(slice=10, available=5, used=5), 6)


def test_a_slice_cannot_shrink_below_what_is_spent() -> None:
    with pytest.raises(ProtocolError):
        counters.resize(Counter(slice=100, available=40, reserved=60), 59)


def test_the_debt_of_an_ended_period_is_charged_to_the_new_one_instead() -> None:
    closed, current = counters.carry_debt(debtor(30), fresh(100))
    assert Counter(slice=100, used=100, overdraft_issued=30, overdraft_repaid=30) == closed
    assert Counter(slice=100, available=70, used=30) == current


def test_a_carried_debt_larger_than_the_new_slice_stays_debt() -> None:
    _, current = counters.carry_debt(debtor(130), fresh(100))
    assert Counter(slice=100, used=130, overdraft_issued=30) == current


def test_a_debt_is_carried_once() -> None:
    closed, current = counters.carry_debt(debtor(30), fresh(100))
    assert (closed, current) == counters.carry_debt(closed, current)


def test_what_is_beyond_the_slice_without_being_owed_is_not_carried() -> None:
    beyond = counters.charge(fresh(100), 130, lenient=True)
    assert (beyond, fresh(100)) == counters.carry_debt(beyond, fresh(100))


def test_a_hold_beyond_what_is_available_takes_that_first_and_the_rest_as_overage() -> None:
    assert Counter(slice=100, reserved=130, overage=30) == counters.reserve_beyond(fresh(100), 130)


def test_a_hold_that_no_balance_could_store_is_refused_whatever_the_policy() -> None:
    assert counters.reserve_beyond(Counter(slice=10, available=5, used=5), MAX_AMOUNT - 4) is None


def test_a_lenient_charge_beyond_what_is_available_is_overage_and_no_debt() -> None:
    assert Counter(slice=100, used=130, overage=30) == counters.charge(fresh(100), 130, lenient=True)


def test_a_lenient_settlement_of_more_than_was_held_is_overage() -> None:
    held = Counter(slice=100, available=40, reserved=60)
    assert Counter(slice=100, used=130, overage=30) == counters.settle(held, 60, 130, lenient=True)


def test_overage_has_to_go_before_anything_is_available() -> None:
    beyond = Counter(slice=100, reserved=130, overage=30)
    assert Counter(slice=100, reserved=110, overage=10) == counters.release(beyond, 20)
    assert Counter(slice=100, available=10, reserved=90) == counters.release(beyond, 40)


def test_debt_is_repaid_before_overage_goes() -> None:
    both = counters.charge(Counter(slice=100, reserved=130, overage=30), 10)
    freed = counters.release(both, 25)
    assert (0, 15, 0) == (freed.debt, freed.overage, freed.available)


def test_nothing_is_available_while_there_is_overage() -> None:
    with pytest.raises(ProtocolError, match="available while something is owed"):
        Counter(slice=5, available=5, used=5, overage=5)


@given(st.lists(steps, max_size=60))
def test_every_way_to_spend_and_to_free_keeps_the_equation_and_pays_debt_first(ops: list[tuple[str, int, int]]) -> None:
    counter, holds = fresh(300), []
    for name, one, other in ops:
        before = counter
        match name:
            case "reserve":
                taken = counters.reserve(counter, one)
                assert (taken is None) == (one > counter.available)
                counter = taken or counter
                holds += [one] if taken else []
            case "beyond":
                counter = counters.reserve_beyond(counter, one) or counter
                holds.append(one)
            case "release" if holds:
                counter = counters.release(counter, holds.pop())
            case "settle" if holds:
                counter = counters.settle(counter, holds.pop(), other, lenient=bool(one % 2))
            case "charge":
                counter = counters.charge(counter, one)
                assert before.used + one == counter.used
            case "lenient":
                counter = counters.charge(counter, one, lenient=True)
                assert (before.used + one, before.debt) == (counter.used, counter.debt)
            case "refund":
                counter = counters.refund(counter, min(one, counter.used))
            case "resize":
                counter = counters.resize(counter, max(one, counter.slice - counter.available))
        assert sum(holds) == counter.reserved
        # The equation, stated here once more: the counter's own check could be wrong.
        assert counter.slice + counter.overdraft_issued + counter.overage == (
            counter.available + counter.reserved + counter.used + counter.retired + counter.overdraft_repaid
        )
        assert counter.available == max(0, counter.slice - counter.reserved - counter.used)
        assert counter.debt + counter.overage == max(0, counter.reserved + counter.used - counter.slice)
