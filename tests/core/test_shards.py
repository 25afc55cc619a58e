"""Shards of one counter: exact parts, that together are the counter again and never more than it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import NOON, QUOTA, at

from regionquota.core import counter as counters
from regionquota.core.counter import Counter
from regionquota.core.periods import TIMELESS
from regionquota.core.policy import QuotaPolicy, Refill
from regionquota.core.quota import Kind
from regionquota.core.shards import MAX_SHARDS, are_uneven, decides_alone, may_be_spread, merge, near_a_new_week, split
from regionquota.core.slice import MICROSECONDS, Holding, leak

amounts = st.integers(0, 1000)


def holding(counter: Counter, kind: Kind = Kind.ALLOCATED, **fields: object) -> Holding:
    return replace(Holding(QUOTA, kind, 5000, 1, TIMELESS, counter), **fields)


def rate(slice_: int, used: int, refill: Refill, leaked_at: int) -> Holding:
    counter = Counter(slice=slice_, available=slice_ - used, used=used)
    return holding(counter, Kind.RATE, policy=QuotaPolicy(refill=refill), leaked_at=leaked_at)


def test_five_over_three_is_two_two_one() -> None:
    parts = split(holding(Counter(slice=5, available=5)), 3)
    assert [2, 2, 1] == [part.slice for part in parts]


@given(amounts, amounts, amounts, amounts, amounts, st.integers(1, MAX_SHARDS))
def test_parts_add_up_to_the_whole(available: int, reserved: int, used: int, retired: int, paid: int, n: int) -> None:
    whole = holding(
        Counter(
            slice=available + reserved + used + retired,
            available=available,
            reserved=reserved,
            used=used,
            retired=retired,
            overdraft_issued=paid,
            overdraft_repaid=paid,
        )
    )
    parts = split(whole, n)
    assert n == len(parts)
    assert whole == merge(parts)
    for name in ("available", "reserved", "used"):
        units = [getattr(part.counter, name) for part in parts]
        assert max(units) - min(units) <= 1


@pytest.mark.parametrize(
    "owing",
    [
        holding(Counter(slice=1, used=2, overdraft_issued=1)),
        holding(Counter(slice=1, used=2, overage=1)),
        holding(Counter(), unlimited=True),
        holding(Counter(slice=9, available=9), guaranteed=3),
        holding(Counter(slice=9, available=9), lien=3),
        holding(Counter(slice=9, available=9), policy=QuotaPolicy(guarantee=1)),
    ],
    ids=["debt", "overage", "unlimited", "guaranteed", "lien", "guarantee"],
)
def test_what_is_owed_or_kept_stays_in_one_place(owing: Holding) -> None:
    assert not may_be_spread(owing)
    assert not decides_alone(holding(Counter(slice=9, available=9)), owing)
    assert [owing] == split(owing, 1)


def test_a_shard_does_not_end_a_period_for_the_others() -> None:
    before = holding(Counter(slice=9, available=3, used=6), Kind.CONSUMABLE, epoch=7)
    assert decides_alone(before, replace(before, counter=Counter(slice=9, available=2, used=7)))
    assert not decides_alone(before, replace(before, epoch=8, counter=Counter(slice=9, available=9)))


@given(
    st.integers(2, MAX_SHARDS),
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=30),
)
def test_shards_of_a_rate_never_admit_more_than_the_whole(
    n: int, slice_: int, steps: list[tuple[int, int, int]]
) -> None:
    """However often they are merged and laid out anew meanwhile: what is admitted fits the burst and the refill."""
    refill, began = Refill(7, 60, 1000), int(NOON) * MICROSECONDS
    shards, instant, admitted = list(split(rate(slice_, 0, refill, began), n)), began, 0
    for pause, what, amount in steps:
        instant += pause
        now = instant / MICROSECONDS
        shards = [leak(shard, now) for shard in shards]
        if what == 0:
            shards = list(split(leak(merge(shards), now), n))
        place = what % n
        taken = counters.charge(shards[place].counter, min(amount, shards[place].counter.available))
        admitted += taken.used - shards[place].counter.used
        shards[place] = replace(shards[place], counter=taken)
        refilled = (instant - began) * slice_ * refill.amount // (refill.per * refill.interval_s * MICROSECONDS)
        assert admitted <= slice_ + refilled
        assert slice_ == sum(shard.slice for shard in shards)


@pytest.mark.parametrize("merges", [1, 50], ids=["merged once", "merged at every step"])
def test_laying_a_rate_out_anew_keeps_what_has_gone_towards_the_next_unit(merges: int) -> None:
    """One unit leaks in 10 s. Merged and spread again every 200 ms, five have leaked after 50 s all the same."""
    refill = Refill(1, 10, 30)
    shards = list(split(rate(30, 30, refill, int(NOON) * MICROSECONDS), 3))
    for step in range(1, 251):
        now = NOON + step / 5
        if step % (250 // (5 * merges)) == 0:
            shards = list(split(leak(merge([leak(shard, now) for shard in shards]), now), 3))
    assert merge([leak(shard, NOON + 50.1) for shard in shards]).counter.used in (25, 26)


def test_an_idle_shard_of_a_rate_saves_nothing_up() -> None:
    refill, began = Refill(10, 1, 20), int(NOON) * MICROSECONDS
    idle, busy = rate(10, 0, refill, began), rate(10, 10, refill, began + 3600 * MICROSECONDS)
    assert merge([leak(idle, NOON + 3600), busy]).leaked_at == busy.leaked_at
    assert merge([idle, busy]).leaked_at == busy.leaked_at


def test_what_is_uneven() -> None:
    def spread(*available: int) -> list[Holding]:
        return [holding(Counter(slice=units, available=units)) for units in available]

    assert are_uneven(spread(100, 10))
    assert not are_uneven(spread(100, 60))
    assert not are_uneven(spread(1, 0)), "there is nothing to be gained"
    assert not are_uneven(spread(0, 0))


def test_a_rate_is_uneven_where_one_shard_has_hardly_anything_to_leak() -> None:
    def spread(*used: int) -> list[Holding]:
        return [rate(100, units, Refill(1, 1, 400), int(NOON) * MICROSECONDS) for units in used]

    assert are_uneven(spread(24, 0, 0, 0))
    assert are_uneven(spread(25, 25, 13, 25))
    assert not are_uneven(spread(25, 25, 21, 25))
    assert not are_uneven(spread(3, 0, 0, 0)), "there is little to be gained"


@pytest.mark.parametrize(
    ("moment", "near"),
    [
        (at(2026, 11, 30), True),  # a Monday
        (at(2026, 11, 30, 0, 0, 59), True),
        (at(2026, 11, 29, 23, 59, 1), True),
        (at(2026, 11, 30, 0, 1, 0), False),
        (at(2026, 11, 29, 23, 58, 59), False),
        (at(2026, 12, 1), False),
    ],
)
def test_the_turn_of_the_week(moment: float, near: bool) -> None:
    assert near is near_a_new_week(moment)
