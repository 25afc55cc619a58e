from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    Retired,
    VersionedLimit,
    grant,
    hand_over,
    new_allocation,
    request_moves,
    set_limit,
)
from regionquota.core.quota import Kind
from regionquota.replay.transfers import Movement, Transfer, describe, sum_up


def allocation(limit: int, slices: Mapping[str, int] | None = None) -> Allocation:
    return grant(new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(limit, 1)), slices or {})


def test_a_grant_comes_out_of_the_pool() -> None:
    before = allocation(100)
    assert (Transfer(None, "eu", 30), Transfer(None, "us", 20)) == describe(before, grant(before, {"eu": 30, "us": 20}))


def test_a_hand_over_goes_to_the_receivers_of_its_moves() -> None:
    moves = [Move("1", "eu", "us", 20), Move("2", "eu", None, 5)]
    before = request_moves(allocation(100, {"eu": 60, "us": 10}), moves)
    after = hand_over(before, "eu", 35, epoch=0)
    assert (Transfer("eu", "us", 20), Transfer("eu", None, 5)) == describe(before, after)


def test_requesting_a_move_or_changing_the_limit_transfers_nothing() -> None:
    before = allocation(100, {"eu": 60})
    assert () == describe(before, request_moves(before, [Move("1", "eu", "us", 20)]))
    assert () == describe(before, set_limit(before, LimitSource.PLAN, VersionedLimit(40, 2)))


def test_what_an_eviction_retires_is_no_transfer() -> None:
    before = allocation(100, {"eu": 60})
    assert () == describe(before, replace(before, slices={"eu": 0}, retired={"eu": Retired(60)}))


def test_movement_is_summed_over_successive_revisions() -> None:
    first = allocation(100, {"eu": 60})
    second = grant(first, {"us": 10})
    third = hand_over(request_moves(second, [Move("1", "eu", "us", 7)]), "eu", 53, epoch=0)
    assert Movement(hand_overs=1, hand_over_units=7, claims=1, claim_units=10) == sum_up([first, second, third])
    assert Movement() == sum_up([])


@given(
    before=st.lists(st.integers(0, 20), min_size=3, max_size=3),
    after=st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_transfers_carried_out_turn_one_revision_into_the_next(before: list[int], after: list[int]) -> None:
    names = ("eu", "us", "ap")
    one, other = (allocation(60, dict(zip(names, sizes, strict=True))) for sizes in (before, after))
    owned: dict[str | None, int] = {**one.slices, None: one.pool}
    for transfer in describe(one, other):
        assert transfer.units > 0
        owned[transfer.source] -= transfer.units
        owned[transfer.target] += transfer.units
    assert {**other.slices, None: other.pool} == owned
