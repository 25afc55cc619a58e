"""Who is to lead which group of buckets."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.core.groups import ALL_BUCKETS, GROUPS, buckets_of, group_of, shares, spans
from regionquota.core.quota import BUCKETS, QuotaKey, bucket_of

NAMES = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=24, unique=True)


@pytest.mark.parametrize("groups", [1, GROUPS])
def test_groups_part_the_buckets(groups: int) -> None:
    assert list(ALL_BUCKETS) == [bucket for group in range(groups) for bucket in buckets_of(group, groups)]
    for number in range(500):
        key = QuotaKey(f"tenant-{number}", "vcpu")
        assert bucket_of(key.tenant) in buckets_of(group_of(key, groups), groups)


def test_the_number_of_groups_never_changes() -> None:
    assert (256, 16) == (BUCKETS, GROUPS)


@given(NAMES)
def test_every_group_has_a_leader_and_nobody_leads_more_than_its_part(names: list[str]) -> None:
    leaders = shares(names)
    assert list(range(GROUPS)) == sorted(leaders)
    taken = Counter(leaders.values())
    sizes = [taken[name] for name in names]
    assert max(sizes) - min(sizes) <= 1


@given(NAMES, st.randoms(use_true_random=False))
def test_all_who_see_the_same_agree(names: list[str], rng: random.Random) -> None:
    shuffled = rng.sample(names, len(names))
    assert shares(names) == shares([*shuffled, *shuffled])


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_the_first_gives_the_second_half_and_takes_it_back(one: str, other: str) -> None:
    together = shares([one, other])
    assert GROUPS // (1 if one == other else 2) == sum(name == one for name in together.values())
    assert dict.fromkeys(range(GROUPS), one) == shares([one])


@pytest.mark.parametrize("others", [2, 3, 5, 8])
def test_who_comes_or_goes_moves_little_beside_its_own_part(others: int) -> None:
    rng = random.Random(others)
    beside = 0
    for _ in range(100):
        *names, last = (f"host-{rng.randrange(10**6)}-{number}" for number in range(others + 1))
        before, after = shares(names), shares([*names, last])
        beside += sum(before[group] != after[group] != last for group in range(GROUPS))
    assert beside <= 150


@pytest.mark.parametrize(
    ("groups", "said"), [([], ""), ([3], "3"), (range(16), "0-15"), ([7, 1, 0, 2, 9, 10], "0-2, 7, 9-10")]
)
def test_groups_are_told_as_spans(groups: list[int], said: str) -> None:
    assert said == spans(groups)
