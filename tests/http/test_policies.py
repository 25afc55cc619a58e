"""The rules of a quota: how they are set, what each refuses, and what they do to a reserve."""

from datetime import datetime
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import at
from tests.http.harness import Api, Server, Start, until

from regionquota.core.periods import Period
from regionquota.core.quota import QuotaKey

RATE = {"kind": "rate", "refill_amount": 10, "refill_interval_s": 60}


# -- what is refused --


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "leaky"}, "kind"),
        ({"period": "year", "kind": "consumable"}, "period"),
        ({"period": "day"}, "period"),
        ({"time_zone": "UTC"}, "time_zone"),
        ({"time_zone": "Mars/Olympus", "kind": "consumable"}, "time_zone"),
        ({"time_zone": "../../etc/passwd", "kind": "consumable"}, "time_zone"),
        ({"kind": "rate"}, "refill_amount"),
        ({"kind": "rate", "refill_amount": 5}, "refill_interval_s"),
        ({"kind": "rate", "refill_interval_s": 5}, "refill_amount"),
        ({"kind": "rate", "refill_amount": 0, "refill_interval_s": 5}, "refill_amount"),
        ({"kind": "rate", "refill_amount": 1.5, "refill_interval_s": 5}, "refill_amount"),
        ({"kind": "rate", "refill_amount": 1, "refill_interval_s": 0}, "refill_interval_s"),
        ({**RATE, "limit": 0}, "refill_amount"),
        ({"refill_amount": 5, "refill_interval_s": 5}, "refill_amount"),
        ({"enforcement": "lax"}, "enforcement"),
        ({"enforcement": None}, "enforcement"),
        ({"enforced_percent": 101}, "enforced_percent"),
        ({"enforced_percent": -1}, "enforced_percent"),
        ({"enforced_percent": 0.5}, "enforced_percent"),
        ({"admission_open": "no"}, "admission_open"),
        ({"admission_open": None}, "admission_open"),
        ({"max_single_amount": 0}, "max_single_amount"),
        ({"min_ttl_s": 0}, "min_ttl_s"),
        ({"max_ttl_s": 1.5}, "max_ttl_s"),
        ({"min_ttl_s": 60, "max_ttl_s": 30}, "min_ttl_s"),
        ({"max_overdraft": -1}, "max_overdraft"),
        ({"parent": ""}, "parent"),
        ({"parent": "global"}, "parent"),
        ({"guarantee": -1}, "guarantee"),
        ({"guarantee": 11}, "guarantee"),
        ({"guarantee": 2**63}, "guarantee"),
        ({"max_singl_amount": 1}, "max_singl_amount"),
        ({"regions": 3}, "regions"),
        ({"regions": {"": {"floor": 1}}}, "regions"),
        ({"regions": {"eu": 3}}, "regions.eu"),
        ({"regions": {"us": {"floor": 1}, "eu": {"weight": 10_000_001}}}, "regions.eu.weight"),
        ({"regions": {"eu": {"floor": -1}}}, "regions.eu.floor"),
        ({"regions": {"eu": {"cap": 1.5}}}, "regions.eu.cap"),
        ({"regions": {"us": {"cap": 1}, "eu": {"flor": 1}}}, "regions.eu.flor"),
        ({"a` - at `$.b": 1}, "a` - at `$.b"),
        ({"regions": {"eu": {"a` - at `$.limit": 1}}}, "regions.eu.a` - at `$.limit"),
        ({"regions": {"eu": {"floor": 5, "cap": 4}}}, "regions.eu.floor"),
        ({"regions": {"eu": {"floor": 11}}}, "regions.eu.floor"),
        ({"regions": {"mars": {"floor": 1}}}, "regions.mars"),
        ({"regions": {f"r{number}": {} for number in range(65)}}, "regions"),
        ({"scope": "region:eu", "regions": {"eu": {"floor": 1}}}, "regions"),
    ],
)
async def test_a_wrong_rule_is_refused_by_name_and_sets_nothing(
    server: Server, api: Api, tenant: str, fields: dict[str, Any], field: str
) -> None:
    reply = await api.set_limit(tenant, **{"limit": 10} | fields)
    assert (400, field) == (reply.status, reply.body["field"]), reply
    assert (0, None) == await server.etcd.allocations.read(QuotaKey(tenant, "vcpu"))


@pytest.mark.parametrize("huge", ["min_ttl_s", "max_ttl_s"])
async def test_a_time_that_no_column_could_hold_is_refused(api: Api, tenant: str, huge: str) -> None:
    reply = await api.set_limit(tenant, 10, **{huge: 2**63})
    assert (400, huge) == (reply.status, reply.body["field"])


async def test_a_refill_over_a_time_that_nothing_could_reckon_with_is_refused(api: Api, tenant: str) -> None:
    reply = await api.set_limit(tenant, 10, kind="rate", refill_amount=1, refill_interval_s=2**63)
    assert (400, "refill_interval_s") == (reply.status, reply.body["field"])


@pytest.mark.parametrize(
    ("first", "then", "field"),
    [
        ({"kind": "consumable", "period": "day"}, {"period": "hour"}, "period"),
        ({"scope": "a", "parent": "b"}, {"scope": "a", "parent": "c"}, "parent"),
    ],
)
async def test_what_would_move_balances_cannot_change(
    api: Api, tenant: str, first: dict[str, Any], then: dict[str, Any], field: str
) -> None:
    assert 200 == (await api.set_limit(tenant, 10, **first)).status
    reply = await api.set_limit(tenant, 10, version=2, **then)
    assert (400, field) == (reply.status, reply.body["field"])


# -- generations --


async def test_a_change_of_rules_is_a_new_generation_and_keeps_the_others(api: Api, tenant: str) -> None:
    first = (await api.set_limit(tenant, 10, max_single_amount=3)).body["policy"]
    second = (await api.set_limit(tenant, 10, version=2, max_ttl_s=30)).body["policy"]
    assert (1, 2) == (first["generation"], second["generation"])
    assert (3, 30) == (second["max_single_amount"], second["max_ttl_s"])


async def test_null_takes_a_bound_away(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_single_amount=3)
    assert (await api.set_limit(tenant, 10, version=2, max_single_amount=None)).body["policy"][
        "max_single_amount"
    ] is None


async def test_the_same_version_with_other_rules_is_a_conflict(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_single_amount=3)
    assert 409 == (await api.set_limit(tenant, 10, max_single_amount=4)).status


async def test_a_change_of_rules_never_refills(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, kind="consumable")
    await api.settle("commit", await api.hold(tenant, 10))
    await api.set_limit(tenant, 10, version=2, max_ttl_s=600)
    assert 429 == (await api.reserve(tenant)).status


# -- rules for regions --


async def test_rules_for_regions_are_shown_as_they_are_set_and_what_is_left_out_stays(api: Api, tenant: str) -> None:
    rules = {"eu": {"weight": 300, "floor": 3, "cap": 8}}
    first = (await api.set_limit(tenant, 10, regions=rules)).body["policy"]
    assert rules == first["regions"]
    second = (await api.set_limit(tenant, 10, version=2, regions={"eu": {"cap": None, "floor": 4}})).body["policy"]
    assert ({"eu": {"weight": 300, "floor": 4, "cap": None}}, 2) == (second["regions"], second["generation"])
    assert second["regions"] == (await api.set_limit(tenant, 10, version=3, max_ttl_s=9)).body["policy"]["regions"]
    assert second["regions"] == (await api.usage(tenant))["policy"]["regions"]


@pytest.mark.parametrize("back", [None, {"eu": None}, {"eu": {"cap": None}}, {"eu": {"cap": None}, "gone": None}])
async def test_rules_for_regions_are_taken_back_with_null(api: Api, tenant: str, back: Any) -> None:
    await api.set_limit(tenant, 10, regions={"eu": {"cap": 8}})
    assert {} == (await api.set_limit(tenant, 10, version=2, regions=back)).body["policy"]["regions"]


async def test_a_region_that_nobody_has_heard_of_is_refused_with_those_that_are_known(api: Api, tenant: str) -> None:
    reply = await api.set_limit(tenant, 10, regions={"ue": {"cap": 8}})
    assert "regions.ue is no region that has ever run: known are eu" == reply.body["detail"]


async def test_a_limit_may_be_lowered_below_the_floors(api: Api, tenant: str) -> None:
    assert [] == (await api.set_limit(tenant, 10, regions={"eu": {"floor": 8}})).body["warnings"]
    lowered = await api.set_limit(tenant, 5, version=2)
    assert 200 == lowered.status
    assert "the floors of the regions add up to 8, above the limit 5: " in lowered.body["warnings"][0]
    reply = await api.set_limit(tenant, 5, version=3, regions={"eu": {"floor": 7}})
    assert (400, "regions.eu.floor") == (reply.status, reply.body["field"])


async def test_a_region_is_served_up_to_its_cap(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, regions={"eu": {"cap": 6}})
    assert [201, 429] == [(await api.reserve(tenant, 6)).status, (await api.reserve(tenant, 1)).status]


# -- what the rules do --


async def test_admission_that_is_closed_admits_nothing_and_settles_what_is_held(api: Api, quota: str) -> None:
    name = await api.hold(quota, 3)
    await api.set_limit(quota, 10, version=2, admission_open=False)
    reply = await api.reserve(quota)
    assert (429, "ADMISSION_CLOSED", 2) == (reply.status, reply.body["reason"], reply.body["generation"])
    assert reply.body["detail"].endswith("an operator has to open it")
    assert 200 == (await api.settle("commit", name)).status


async def test_admission_opens_again(api: Api, quota: str) -> None:
    await api.set_limit(quota, 10, version=2, admission_open=False)
    await api.set_limit(quota, 10, version=3, admission_open=True)
    assert 201 == (await api.reserve(quota)).status


async def test_one_reservation_holds_no_more_than_the_rules_say(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_single_amount=3)
    reply = await api.reserve(tenant, 4)
    assert (429, "MAX_SINGLE_RESERVATION") == (reply.status, reply.body["reason"])
    assert reply.body["detail"].endswith(": ask for less")
    assert 201 == (await api.reserve(tenant, 3)).status


@pytest.mark.parametrize("ttl", [9, 31])
async def test_a_ttl_outside_the_rules_is_refused_with_them(api: Api, tenant: str, ttl: int) -> None:
    await api.set_limit(tenant, 10, min_ttl_s=10, max_ttl_s=30)
    reply = await api.reserve(tenant, ttl_s=ttl)
    assert (400, "ttl_s") == (reply.status, reply.body["field"])
    assert "from 10 to 30 seconds" in reply.body["detail"]


async def test_an_extension_keeps_to_the_rules_as_well(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_ttl_s=30)
    reply = await api.settle("extend", await api.hold(tenant, ttl_s=20), ttl_s=31)
    assert (400, "ttl_s") == (reply.status, reply.body["field"])


async def test_more_debt_than_the_rules_allow_is_said_to_be_so(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_overdraft=1)
    await api.settle("commit", await api.hold(tenant, 5), actual_amount=12)
    reply = await api.reserve(tenant)
    assert (429, "OVERDRAFT_EXCEEDED", 2) == (reply.status, reply.body["reason"], reply.body["debt"])


@pytest.mark.parametrize("enforcement", ["soft", "shadow"])
async def test_what_a_lenient_rule_lets_in_is_told_and_counted(api: Api, tenant: str, enforcement: str) -> None:
    await api.set_limit(tenant, 10, enforcement=enforcement)
    reply = await api.reserve(tenant, 12)
    assert (201, "OVER_LIMIT", enforcement) == (reply.status, reply.body["would_deny"], reply.body["enforcement"])
    usage = await api.usage(tenant)
    assert (12, 2, 0, 2) == (usage["reserved"], usage["overage"], usage["debt"], usage["over_limit_by"])


async def test_what_fits_a_lenient_rule_is_answered_as_any_grant(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, enforcement="soft")
    assert "would_deny" not in (await api.reserve(tenant, 10)).body


async def test_a_limit_that_is_enforced_upon_nobody_denies_nobody(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, enforced_percent=0)
    reply = await api.reserve(tenant, 12)
    assert (201, "OVER_LIMIT") == (reply.status, reply.body["would_deny"])


async def test_a_limit_enforced_upon_a_part_denies_that_part_of_the_requests(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 0, enforced_percent=50)
    replies = [(await api.reserve(tenant, 1, request_id=f"r{number}")).status for number in range(100)]
    assert 25 <= replies.count(429) <= 75


async def test_whether_a_request_is_held_to_the_limit_does_not_change_by_asking_again(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 0, enforced_percent=50)
    denied = [n for n in range(20) if (await api.reserve(tenant, 1, request_id=f"r{n}")).status == 429]
    assert denied == [n for n in range(20) if (await api.reserve(tenant, 1, request_id=f"r{n}")).status == 429]


# -- receipts and periods --


@pytest.mark.parametrize("period", Period)
async def test_each_period_may_be_set_and_is_shown(api: Api, tenant: str, period: Period) -> None:
    reply = await api.set_limit(tenant, 10, kind="consumable", period=period.value)
    assert (200, period) == (reply.status, reply.body["policy"]["period"])
    assert 201 == (await api.reserve(tenant, 10)).status
    assert (await api.usage(tenant))["period_end"] is not None


async def test_a_minute_is_a_full_one_of_the_clock(start: Start, tenant: str) -> None:
    clock = HandClock(at(2026, 6, 15, 12, 0, 59))
    api = (await start(clock=clock)).api
    reply = await api.set_limit(tenant, 10, kind="consumable", period="minute", time_zone="Asia/Kolkata")
    assert 200 == reply.status, reply
    held = (await api.reserve(tenant, 10)).body
    assert at(2026, 6, 15, 12, 1) == datetime.fromisoformat(held["charged_until"]).timestamp()
    assert 429 == (await api.reserve(tenant, 1)).status
    clock.seconds += 1
    assert 201 == (await api.reserve(tenant, 10)).status


async def test_a_grant_carries_a_receipt(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, max_single_amount=9)
    body = (await api.reserve(tenant, 3)).body
    receipt = body["receipt"]
    assert (body["reservation_id"], 1, 0, 3, "PENDING") == tuple(
        receipt[name] for name in ("reservation_id", "generation", "epoch", "units", "state")
    )
    assert 32 == len(bytes.fromhex(receipt["digest"]).hex())


async def test_a_receipt_says_what_was_settled_under_the_rules_of_the_reserve(api: Api, quota: str) -> None:
    held = (await api.reserve(quota, 3)).body
    await api.set_limit(quota, 20, version=2)
    receipt = (await api.settle("commit", held["reservation_id"], actual_amount=2)).body["receipt"]
    assert (1, 2, "COMMITTED") == (receipt["generation"], receipt["units"], receipt["state"])
    assert held["receipt"]["digest"] == receipt["digest"]


async def test_a_reservation_that_straddles_a_period_is_charged_to_that_of_the_reserve(
    start: Start, tenant: str
) -> None:
    clock = HandClock(at(2026, 5, 31, 21, 59, 30))  # half a minute before June, in Berlin
    api = (await start(clock=clock)).api
    await api.set_limit(tenant, 10, kind="consumable", time_zone="Europe/Berlin")
    held = (await api.reserve(tenant, 4)).body
    assert at(2026, 5, 31, 22) == datetime.fromisoformat(held["charged_until"]).timestamp()
    clock.seconds += 40
    assert 10 == (await api.reserve(tenant, 10)).body["amount"]
    settled = (await api.settle("commit", held["reservation_id"])).body
    assert held["receipt"]["epoch"] == settled["receipt"]["epoch"]
    usage = await api.usage(tenant)
    assert (0, 10) == (usage["used"], usage["reserved"])


async def test_a_quota_without_periods_is_not_charged_until_anything(api: Api, quota: str) -> None:
    assert "charged_until" not in (await api.reserve(quota)).body


# -- rates --


async def test_a_rate_admits_its_burst_and_says_when_more_will_have_leaked_away(start: Start, tenant: str) -> None:
    clock = HandClock(at(2026, 6, 15))
    api = (await start(clock=clock)).api
    await api.set_limit(tenant, 100, **RATE)
    await api.settle("commit", await api.hold(tenant, 100))
    reply = await api.reserve(tenant, 5)
    assert (429, "30", 30) == (reply.status, reply.headers["Retry-After"], reply.body["retry_after_s"])
    clock.seconds += 29
    assert 429 == (await api.reserve(tenant, 5)).status
    clock.seconds += 1
    assert 201 == (await api.reserve(tenant, 5)).status


async def test_a_rate_shows_its_refill(api: Api, tenant: str) -> None:
    policy = (await api.set_limit(tenant, 100, **RATE)).body["policy"]
    assert (10, 60, 100) == (policy["refill_amount"], policy["refill_interval_s"], policy["refill_per"])


async def test_a_raised_burst_never_gives_a_second_one(start: Start, tenant: str) -> None:
    api = (await start(clock=HandClock(at(2026, 6, 15)))).api
    await api.set_limit(tenant, 100, **RATE)
    await api.settle("commit", await api.hold(tenant, 100))
    await api.set_limit(tenant, 110, version=2)

    async def the_rest_is_granted() -> bool:
        return (await api.reserve(tenant, 10, request_id="rest")).status == 201

    await until(the_rest_is_granted)
    assert 429 == (await api.reserve(tenant, 1)).status


async def test_a_denial_at_a_cap_says_so(api: Api, tenant: str) -> None:
    capped = {"eu": {"cap": 3}}
    assert 200 == (await api.set_limit(tenant, 10, regions=capped)).status
    await api.hold(tenant, 3)
    reply = await api.reserve(tenant, 1)
    assert (429, "OVER_LIMIT") == (reply.status, reply.body["reason"])
    assert reply.body["detail"].partition(". ")[0].endswith("; its cap lets eu own no more than 3")
