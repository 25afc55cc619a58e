"""Policies: what may be changed, what is refused, and who is held to a limit that is enforced upon a part."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.core.allocation import LimitSource, VersionedLimit, new_allocation, set_limit
from regionquota.core.periods import Calendar, Period
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, Priority, QuotaPolicy, Refill, amend
from regionquota.core.quota import MAX_AMOUNT, Kind
from regionquota.errors import InvalidRequest

RATE = QuotaPolicy(refill=Refill(10, 60, 100))
DAILY = QuotaPolicy(calendar=Calendar(Period.DAY, "Europe/Berlin"))


def refusal(policy: QuotaPolicy | None, kind: Kind, limit: int | None = 100, **changes: Any) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        amend(policy, kind, limit, changes)
    return refused.value.field, str(refused.value)


def test_what_is_left_out_stays() -> None:
    known = QuotaPolicy(max_single=5, min_ttl_s=10, enforcement=Enforcement.SOFT)
    assert QuotaPolicy(max_single=5, min_ttl_s=10, max_ttl_s=20, enforcement=Enforcement.SOFT) == amend(
        known, Kind.ALLOCATED, 100, {"max_ttl_s": 20}
    )


def test_a_bound_can_be_taken_away() -> None:
    assert DEFAULT_POLICY == amend(QuotaPolicy(max_single=5), Kind.ALLOCATED, 100, {"max_single": None})


def test_a_new_consumable_quota_counts_months_of_utc_unless_told_otherwise() -> None:
    assert Calendar(Period.MONTH, "UTC") == amend(None, Kind.CONSUMABLE, 100, {}).calendar


def test_a_period_and_a_zone_make_the_calendar() -> None:
    changes = {"period": "day", "time_zone": "Europe/Berlin"}
    assert DAILY == amend(None, Kind.CONSUMABLE, 100, changes)


def test_the_zone_may_change_and_the_period_stays() -> None:
    amended = amend(DAILY, Kind.CONSUMABLE, 100, {"time_zone": "Asia/Tokyo"})
    assert Calendar(Period.DAY, "Asia/Tokyo") == amended.calendar


def test_the_period_cannot_change() -> None:
    field, message = refusal(DAILY, Kind.CONSUMABLE, period="month")
    assert ("period", "the period is day and cannot become month: use another resource name") == (field, message)


@pytest.mark.parametrize("kind", [Kind.ALLOCATED, Kind.RATE])
@pytest.mark.parametrize(("field", "value"), [("period", "day"), ("time_zone", "UTC")])
def test_a_calendar_belongs_to_consumable_quotas(kind: Kind, field: str, value: str) -> None:
    assert field == refusal(RATE, kind, **{field: value})[0]


def test_an_unknown_zone_is_named() -> None:
    field, message = refusal(None, Kind.CONSUMABLE, time_zone="Mars/Olympus")
    assert "time_zone" == field
    assert "Mars/Olympus is no IANA time zone" in message


@pytest.mark.parametrize("kind", [Kind.ALLOCATED, Kind.CONSUMABLE])
@pytest.mark.parametrize("field", ["refill_amount", "refill_interval_s"])
def test_a_refill_belongs_to_rate_quotas(kind: Kind, field: str) -> None:
    assert "refill_amount" == refusal(None, kind, **{field: 5})[0]


def test_a_new_rate_quota_needs_a_refill() -> None:
    assert "refill_amount" == refusal(None, Kind.RATE)[0]


def test_a_rate_quota_without_a_limit_needs_no_refill_yet() -> None:
    assert amend(None, Kind.RATE, None, {}).refill is None


@pytest.mark.parametrize(
    ("given_", "missing"), [("refill_amount", "refill_interval_s"), ("refill_interval_s", "refill_amount")]
)
def test_half_a_refill_is_refused_and_the_other_half_named(given_: str, missing: str) -> None:
    assert missing == refusal(RATE, Kind.RATE, **{given_: 5})[0]


@pytest.mark.parametrize("limit", [0, None])
def test_a_refill_needs_a_burst_to_fill(limit: int | None) -> None:
    assert "refill_amount" == refusal(RATE, Kind.RATE, limit, refill_amount=5, refill_interval_s=1)[0]


def test_a_refill_is_for_the_burst_that_it_was_given_with() -> None:
    given_ = amend(RATE, Kind.RATE, 200, {"refill_amount": 5, "refill_interval_s": 1})
    assert Refill(5, 1, 200) == given_.refill
    assert given_.refill == amend(given_, Kind.RATE, 400, {}).refill


@pytest.mark.parametrize("parts", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (MAX_AMOUNT + 1, 1, 1), (1, 1, MAX_AMOUNT + 1)])
def test_a_refill_out_of_range_cannot_exist(parts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="refill out of range"):
        Refill(*parts)


def test_the_parent_cannot_change() -> None:
    assert "parent" == refusal(QuotaPolicy(parent="team"), Kind.ALLOCATED, parent="other")[0]


def test_a_quota_without_a_parent_cannot_take_one_later() -> None:
    field, message = refusal(DEFAULT_POLICY, Kind.ALLOCATED, parent="team")
    assert ("parent", "the parent is global and cannot change: use another scope") == (field, message)


def test_the_same_parent_may_be_said_again() -> None:
    known = QuotaPolicy(parent="team")
    assert known == amend(known, Kind.ALLOCATED, 100, {"parent": "team"})


def test_bounds_of_a_ttl_that_contradict_each_other_are_refused() -> None:
    assert "min_ttl_s" == refusal(QuotaPolicy(max_ttl_s=10), Kind.ALLOCATED, min_ttl_s=11)[0]


def test_a_guarantee_above_the_limit_is_refused() -> None:
    assert "guarantee" == refusal(None, Kind.ALLOCATED, guarantee=101)[0]
    assert 100 == amend(None, Kind.ALLOCATED, 100, {"guarantee": 100}).guarantee


def test_where_there_is_no_limit_no_guarantee_is_above_it() -> None:
    assert 101 == amend(None, Kind.ALLOCATED, None, {"guarantee": 101}).guarantee


@pytest.mark.parametrize(
    "fields",
    [
        {"enforced_percent": -1},
        {"low_fill_percent": -1},
        {"normal_fill_percent": 101},
        {"normal_fill_percent": 50, "low_fill_percent": 51},
        {"enforced_percent": 101},
        {"guarantee": -1},
        {"max_single": MAX_AMOUNT + 1},
        {"max_overdraft": -1},
        {"min_ttl_s": 2, "max_ttl_s": 1},
    ],
)
def test_a_policy_out_of_range_cannot_exist(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        QuotaPolicy(**fields)  # type: ignore[arg-type]


def test_each_change_of_limit_or_rules_is_a_new_generation() -> None:
    first = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
    stricter = amend(first.policy, first.kind, 100, {"max_single": 5})
    second = set_limit(first, LimitSource.PLAN, VersionedLimit(100, 2), stricter)
    third = set_limit(second, LimitSource.PLAN, VersionedLimit(200, 3))
    assert [1, 2, 3] == [one.policy.generation for one in (first, second, third)]
    assert 5 == third.policy.max_single


def test_a_word_that_is_repeated_is_no_new_generation() -> None:
    first = new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1))
    assert first is set_limit(first, LimitSource.PLAN, VersionedLimit(100, 1), first.policy)


requests = st.text(max_size=20)
percents = st.integers(0, 100)


@given(requests, percents)
def test_a_repeat_is_held_to_the_limit_like_the_first(request: str, percent: int) -> None:
    assert QuotaPolicy(enforced_percent=percent).holds_to("acme", request) is QuotaPolicy(
        enforced_percent=percent, generation=7
    ).holds_to("acme", request)


@given(requests, percents, percents)
def test_who_is_held_to_the_limit_stays_so_when_more_are(request: str, one: int, other: int) -> None:
    less, more = (QuotaPolicy(enforced_percent=percent) for percent in sorted((one, other)))
    assert more.holds_to("acme", request) or not less.holds_to("acme", request)


@pytest.mark.parametrize(("percent", "held"), [(0, 0), (100, 1000)])
def test_at_the_ends_nobody_or_everybody_is_held_to_the_limit(percent: int, held: int) -> None:
    policy = QuotaPolicy(enforced_percent=percent)
    assert held == sum(policy.holds_to("acme", f"request-{n}") for n in range(1000))


def test_in_between_about_that_part_of_the_requests_is_held_to_the_limit() -> None:
    policy = QuotaPolicy(enforced_percent=10)
    assert 800 < sum(policy.holds_to("acme", f"request-{n}") for n in range(10_000)) < 1200


@given(st.integers(0, MAX_AMOUNT), st.integers(0, 100), st.integers(0, 100))
def test_the_least_slice_for_an_amount_serves_it_and_no_smaller_one_does(amount: int, one: int, other: int) -> None:
    policy = QuotaPolicy(normal_fill_percent=max(one, other), low_fill_percent=min(one, other))
    for priority in Priority:
        least = policy.slice_for(amount, priority)
        if policy.may_fill(100, priority):
            assert policy.may_fill(least, priority) >= amount
            assert not amount or policy.may_fill(least - 1, priority) < amount
        else:
            assert least == amount
