"""What regionquota explain says in words."""

import io
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import QUOTA, allocation, at, unlimited

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.bootstrap.coordinator import policy_of
from regionquota.cli.explained import (
    age,
    denial_in_words,
    frozen_in_words,
    in_words,
    policy_in_words,
    pool_in_words,
    rates_in_words,
    show,
)
from regionquota.cli.explaining import next_plan
from regionquota.cli.glossary import COLUMNS
from regionquota.config import Config
from regionquota.coordinator.leading import Led
from regionquota.coordinator.rounds import run_round
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand, Need
from regionquota.core.explaining import Explanation, explain
from regionquota.core.periods import epoch_of
from regionquota.core.policy import Enforcement, QuotaPolicy, Refill
from regionquota.core.quota import Kind
from regionquota.core.rebalancing import NOTHING, Policy, RegionState
from regionquota.core.region_rules import RegionRules
from regionquota.ports import Frozen, FrozenBy, RegionRecord, Suspension

JUNE = epoch_of(Kind.CONSUMABLE, at(2026, 6, 15))


TOLD = "8 of vcpu asked for, 7 available in the slice of 9 that us holds of the limit 100"


def denied(amount: int = 8, pool: int | None = 0, reason: str = "OVER_LIMIT", **more: Any) -> dict[str, Any]:
    said = {"at": "2026-06-15T03:00:00Z", "reason": reason, "detail": TOLD, "priority": "normal", "amount": amount}
    reach = max(0, pool or 0)
    seen = {"pool": pool, "pool_within_reach": reach, "takes_part": True, "below_floor": []}
    return said | {"limit": 100, "generation": 1} | seen | more


def frozen_at(hour: int) -> Frozen:
    return Frozen(FrozenBy.OPERATOR, at(2026, 6, 15, hour), "network work")


def heard(denial: dict[str, Any], known: Allocation | None = None, frozen: Frozen | None = None) -> str:
    said = denial_in_words("us", denial, known or allocation(100, us=9), frozen)
    begins = f'us last denied at 2026-06-15T03:00:00Z: "{denial.get("detail", "")}"'
    assert said.startswith(begins) or "detail" not in denial
    return said.removeprefix(begins)


@pytest.mark.parametrize(
    ("denial", "says"),
    [
        (denied(), "; the pool was empty"),
        (denied(pool=None), ""),
        (denied(pool=17), "; the pool held 17, which it claims from for the next try"),
        (denied(pool=-17), "; 17 above the limit were still to be given back"),
        (
            denied(pool=50, pool_within_reach=0, below_floor=["ap", "eu"]),
            "; the pool held 50, 0 of it within its reach: the rest was kept for what ap, eu lacked of a floor",
        ),
        (
            denied(pool=50, pool_within_reach=1),
            "; the pool held 50, 1 of it within its reach: the rest was beyond its cap",
        ),
        (
            denied(pool=17, pool_within_reach=0, takes_part=False),
            "; the pool held 17, out of its reach as it was frozen, draining or evicted",
        ),
        (denied(101, pool=17), ""),
        (denied(reason="KEPT_FOR_HIGHER_PRIORITY"), "; the pool was empty"),
        (denied(reason="IN_DEBT"), ""),
    ],
)
def test_a_denial_says_what_the_caller_was_told_and_what_else_stood_in_the_way(
    denial: dict[str, Any], says: str
) -> None:
    assert says == heard(denial)


def test_a_pool_was_out_of_reach_if_the_region_was_frozen_by_then() -> None:
    """It may not have heard of that itself."""
    assert heard(denied(pool=17), frozen=frozen_at(2)).endswith("the pool held 17, out of its reach as it was frozen")
    assert heard(denied(pool=17), frozen=frozen_at(4)).endswith(
        "the pool held 17, which it claims from for the next try"
    )


@pytest.mark.parametrize(
    ("then", "known", "says"),
    [
        ({}, allocation(5, us=5), "; the pool was empty; the limit was 100 then, it is 5 now"),
        ({}, unlimited(allocation(100)), "; the pool was empty; the limit was 100 then, it is unlimited now"),
        ({"limit": None}, allocation(100), "; the pool was empty; the limit was unlimited then, it is 100 now"),
        ({"generation": 2}, allocation(100), "; the pool was empty; the quota's policy was changed since"),
        ({"amount": 101}, allocation(200), "; the limit was 100 then, it is 200 now"),
    ],
)
def test_an_old_denial_is_judged_by_the_limit_of_then(then: dict[str, Any], known: Allocation, says: str) -> None:
    assert says == heard(denied(**then), known)


def test_what_another_quota_denied_that_is_charged_too_says_where_to_look() -> None:
    line = {"tenant_id": "acme", "resource": "vcpu", "scope": "folder:f"}
    by_parent = {"at": "2026-06-15T03:00:00Z", "reason": "OVER_LIMIT", "detail": TOLD, "amount": 8, "line": line}
    assert (
        "; so says acme/vcpu/folder:f, which is charged, too: regionquota explain acme vcpu --scope folder:f"
    ) == heard(by_parent)


def test_what_a_server_of_an_older_release_does_not_say_is_not_guessed() -> None:
    old = {
        "at": "2026-06-15T03:00:00Z", "reason": "OVER_LIMIT", "priority": "low", "amount": 8, "kept": 0,
        "available": 7, "slice": 9, "pool": 3,
    }  # fmt: skip
    said = heard(old, allocation(5, us=5))
    assert ': "8 asked for, 7 available in a slice of 9 (OVER_LIMIT)"; the pool held 3; a server of an older' in said


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (allocation(100, eu=60), "limit 100, 40 in the pool"),
        (allocation(40, eu=60), "limit 40, 20 above it still to be given back"),
    ],
)
def test_a_limit_that_was_cut_says_what_is_still_owned_above_it(known: Allocation, says: str) -> None:
    assert says == in_words(known)


def test_a_freeze_says_since_when_and_why() -> None:
    said = frozen_in_words(Frozen(FrozenBy.LIVENESS, 1_781_492_400.0, "no sign of life from any of its servers"))
    assert "by liveness since 2026-06-15T03:00:00.000Z: no sign of life from any of its servers" == said


async def test_what_the_next_plan_does_is_what_a_round_does_to_the_end_of_a_period() -> None:
    """With unequal weights a round looks ahead to the end, and takes what was said a while ago as it will be by now."""
    now = at(2026, 6, 30, 23, 59)
    etcd = MemoryCoordination(HandClock(now))
    known = allocation(1000, kind=Kind.CONSUMABLE, eu=450, us=250, ap=250)
    records = {"eu": RegionRecord("eu", weight=300), "us": RegionRecord("us"), "ap": RegionRecord("ap")}
    words = [
        (name, Demand(QUOTA, known.slice_of(name), used, 0, granted=15, seconds=5.0, epoch=JUNE, at=now - 3))
        for name, used in (("eu", 100), ("us", 220), ("ap", 220))
    ]
    await etcd.swap(QUOTA, 0, known)
    for name, word in words:
        await etcd.report(await etcd.open_session(60), name, name, [word])
    fence = await etcd.lead(await etcd.open_session(60), "one")
    assert fence is not None
    config = Config()

    said = next_plan(known, words, records, config, now).next

    done = await run_round(
        records, etcd, etcd, Led(1, {0: fence}), policy_of(config),
        round_s=config.coordinator.interval_s, now=now, new_id=lambda: "m",
    )  # fmt: skip
    _, after = await etcd.read(QUOTA)
    assert after is not None
    granted = {name: size - known.slice_of(name) for name, size in after.slices.items() if size > known.slice_of(name)}
    moved = [(move.source, move.target, move.amount) for _, move in done.moves]
    assert granted or moved
    assert (granted, moved) == (dict(said.grants), [(one.source, one.target, one.amount) for one in said.moves])


@pytest.mark.parametrize(
    ("limit", "pool", "scatters", "says"),
    [
        (1000, 88, 101.3, "the pool is to hold 88 (9% of the limit): busy minutes ask 101 beyond the mean"),
        (1000, 100, 0.0, "the pool is to hold 100 (10% of the limit): nothing is learnt of bursts yet"),
        (0, 0, 0.0, "the pool is to hold 0: nothing is learnt of bursts yet"),
    ],
)
def test_what_the_pool_is_to_hold_and_why(limit: int, pool: int, scatters: float, says: str) -> None:
    found = Explanation((), NOTHING, pool, scatters)
    assert f"while the needs fit {says}" == pool_in_words(allocation(limit), found)


# -- on 80 columns --

NEEDS = {
    "eu": Need(40_000_000, growth=512.0, seconds=5.0, denied_high=0.0, expected=480.0),
    "us": Need(2_000_000, seconds=5.0),
    "ap-southeast-2": Need(0, seconds=0.5),
}
REGIONS = {name: RegionState() for name in NEEDS}


def printed(
    known: Allocation,
    needs: dict[str, Need],
    monkeypatch: pytest.MonkeyPatch,
    denials: dict[str, Any] | None = None,
    frozen: dict[str, Frozen] | None = None,
    suspension: Suspension | None = None,
) -> str:
    """What is on a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    sink = io.StringIO()
    monkeypatch.setattr(sink, "isatty", lambda: True)
    monkeypatch.setattr("regionquota.cli.frame.out._file", sink)
    found = explain(known, needs, REGIONS, Policy(), 10.0)
    show(QUOTA, 7, known, found, frozen or {}, denials or {}, suspension, at(2026, 6, 15, 3, 1))
    return sink.getvalue()


def test_it_fits_into_80_columns_and_breaks_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    known = allocation(50_000_000, eu=41_000_000, us=3_000_000, **{"ap-southeast-2": 3_000_000})
    said = printed(known, NEEDS, monkeypatch)
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith(("│ eu ", "eu "))]
    assert 2 == len(rows)
    assert all(number in rows[0] for number in ("41,000,000", "40,000,000", "512", "1,953 s"))
    assert "480" in rows[1]


def test_a_denial_of_a_minute_ago_is_seen_although_nothing_is_denied_now(monkeypatch: pytest.MonkeyPatch) -> None:
    known = allocation(1000, eu=500, us=300)
    said = printed(known, NEEDS, monkeypatch, {"eu": None, "us": denied()})
    first = said.index("│ us ")
    assert "1 min ago" in said[first : said.index("\n", first)]
    assert 'us last denied at 2026-06-15T03:00:00Z: "8 of vcpu asked for' in " ".join(said.split())
    assert "per s: over the 0.5 to 5 s of each region's last report" in " ".join(said.split())
    assert "not heard" in said[said.index("│ ap-") :].splitlines()[0]


def test_every_column_has_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []
    monkeypatch.setattr("regionquota.cli.explained.print_table", lambda columns, _rows: heads.extend(columns))
    printed(allocation(1000, eu=500, us=300), NEEDS, monkeypatch)
    assert {"region", *COLUMNS} == {head.replace("\n", " ") for head in heads}


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (QuotaPolicy(admission_open=False), "nothing is admitted until `regionquota quota suspend acme vcpu --undo`"),
        (QuotaPolicy(enforcement=Enforcement.SHADOW), "enforcement is shadow: what does not fit is admitted"),
        (QuotaPolicy(enforced_percent=5), "5 % of the requests are held to the limit, the others are admitted"),
        (QuotaPolicy(max_single=7), "one request may hold 7 at most"),
    ],
)
def test_what_decides_whatever_is_free_is_said(policy: QuotaPolicy, says: str) -> None:
    (said,) = policy_in_words(QUOTA, allocation(100, policy=policy))
    assert says in said
    assert [] == list(policy_in_words(QUOTA, allocation(100)))


@pytest.mark.parametrize(
    ("kind", "policy", "says"),
    [
        (Kind.CONSUMABLE, QuotaPolicy(), "limit 100 per month (UTC), 100 in the pool"),
        (Kind.RATE, QuotaPolicy(refill=Refill(10, 60, 100)), "limit 100, refilled by 10 per 60 s, 100 in the pool"),
    ],
)
def test_what_a_limit_is_of_is_said(kind: Kind, policy: QuotaPolicy, says: str) -> None:
    assert says == in_words(allocation(100, kind=kind, policy=policy))


def test_what_holds_for_several_regions_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = printed(allocation(90_000_000, eu=50_000_000), NEEDS, monkeypatch)
    (line,) = [line for line in said.splitlines() if "gets what it wants" in line]
    assert line.startswith("ap-southeast-2, eu, ")


def test_a_suspended_tenant_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    suspension = Suspension("acme", at(2026, 6, 15), "unpaid since May")
    said = " ".join(printed(allocation(1000, eu=500, us=300), NEEDS, monkeypatch, suspension=suspension).split())
    assert "the tenant is suspended since 2026-06-15T00:00:00.000Z: unpaid since May; nothing is admitted until" in said
    assert "regionquota tenant resume acme" in said


def test_a_reason_without_blanks_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "https://tickets.example.com/" + "0123456789" * 10
    frozen = {"us": Frozen(FrozenBy.OPERATOR, at(2026, 6, 15), why)}
    said = printed(allocation(1000, eu=500, us=300), NEEDS, monkeypatch, frozen=frozen)
    assert why in "".join(said.split())


@pytest.mark.parametrize(("seconds", "says"), [(0.5, "0.5"), (99.6, "100"), (120.0, "120"), (3600.0, "3,600")])
def test_the_time_of_a_report_is_told_in_plain_seconds(seconds: float, says: str) -> None:
    needs = {"eu": Need(10, seconds=seconds)}
    found = explain(allocation(1000, eu=500), needs, {"eu": RegionState()}, Policy(), 10.0)
    assert f"over the {says} s of" in rates_in_words(found.regions)


def test_rules_are_shown_also_where_they_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = QuotaPolicy(regions={"eu": RegionRules(weight=100, floor=1), "us": RegionRules(cap=999)})
    said = printed(allocation(1000, policy=policy, eu=500, us=300), {name: Need(10) for name in NEEDS}, monkeypatch)
    assert "the quota's rules here: weight 100, floor 1" in " ".join(said.split())
    assert "the quota's rules here: cap 999" in " ".join(said.split())
    assert "decides" not in said


def test_sizes_that_are_not_worth_a_move_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known = allocation(1000, eu=310, us=290, **{"ap-southeast-2": 300})
    said = " ".join(printed(known, {name: Need(10, growth=1.0, seconds=5.0) for name in NEEDS}, monkeypatch).split())
    assert "the next plan would change nothing" in said
    assert "eu, us keep their slices although the next size differs: less than 10 is not moved" in said
    assert "less than 100 not to one that has it, or back to the pool" in said


@pytest.mark.parametrize(
    ("seconds", "says"), [(-1, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (90_000, "1 d")]
)
def test_an_age_is_told_in_one_unit(seconds: float, says: str) -> None:
    assert says == age(seconds)
