"""Room for as much as was lately asked for at once."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.test_rebalancing import (
    POLICY,
    REGIONS,
    ROUND_S,
    allocations,
    carried_out,
    everybody,
    needs,
    policies,
    split,
)

from regionquota.core.allocation import Allocation
from regionquota.core.demand import Need
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Policy, plan, sizes, wishes_of


def test_of_rooms_that_do_not_all_fit_some_are_whole() -> None:
    """Two callers of 400 each were left 320 each, in every round, and both were denied for ever beside 640."""
    wants = {name: Need(120, largest=400 if name in ("ap", "eu") else 0) for name in ("ap", "eu", "us")}
    after = carried_out(split(1000), plan(split(1000), wants, everybody, POLICY, ROUND_S), wants)
    assert [True, False] == [after.slice_of(name) >= 520 for name in ("ap", "eu")]


def test_who_asks_for_more_than_it_can_ever_have_is_left_no_room() -> None:
    silly, plain = (
        plan(split(1000), {"eu": Need(100), "us": Need(10, largest=largest)}, everybody, POLICY, ROUND_S)
        for largest in (991, 0)
    )
    assert plain == silly


@given(allocations(), st.dictionaries(st.sampled_from(REGIONS), needs), policies)
def test_a_room_takes_from_nobody_what_is_wanted_now(
    allocation: Allocation, wants: dict[Region, Need], policy: Policy
) -> None:
    def aimed(wants: Mapping[Region, Need]) -> Mapping[Region, int]:
        return sizes(allocation, wishes_of(allocation, wants, everybody, policy, ROUND_S, None), policy)

    found, without = (aimed(some) for some in (wants, {name: replace(need, largest=0) for name, need in wants.items()}))
    wishes = wishes_of(allocation, wants, everybody, policy, ROUND_S, None)
    assert all(found[name] >= min(max(wish.want, wish.least), without[name]) for name, wish in wishes.items())
