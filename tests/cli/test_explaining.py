"""What regionquota explain says in words."""

import io
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import QUOTA, allocation, at

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.bootstrap.coordinator import policy_of
from regionquota.cli.explained import (
    age,
    denial_in_words,
    frozen_in_words,
    in_words,
    pool_in_words,
    rates_in_words,
    show,
)
from regionquota.cli.explaining import next_plan
from regionquota.config import Config
from regionquota.coordinator.leading import Led
from regionquota.coordinator.rounds import run_round
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand, Need
from regionquota.core.explaining import Explanation, explain
from regionquota.core.periods import epoch_of
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind
from regionquota.core.rebalancing import NOTHING, Policy, RegionState
from regionquota.core.region_rules import RegionRules
from regionquota.ports import Frozen, FrozenBy, RegionRecord, Suspension

JUNE = epoch_of(Kind.CONSUMABLE, at(2026, 6, 15))


def denied(amount: int, pool: int | None = 0, reason: str = "OVER_LIMIT") -> dict[str, Any]:
    return {"at": "2026-06-15T03:00:00Z", "reason": reason, "amount": amount, "available": 7, "slice": 9, "pool": pool}


@pytest.mark.parametrize(
    ("denial", "is_frozen", "says"),
    [
        (denied(8), False, "8 did not fit into 7 of a slice of 9, and the pool held 0"),
        (denied(8, pool=None), False, "8 did not fit into 7 of a slice of 9"),
        (denied(8, pool=17), False, "8 did not fit into 7 of a slice of 9, and the pool held 17"),
        (denied(8, pool=17), True, "and the pool's 17 are out of reach while the region is frozen"),
        (denied(101, pool=17), True, "; it is more than the whole limit 100, so no region can grant it"),
        (
            denied(6, reason="KEPT_FOR_HIGHER_PRIORITY") | {"kept": 4, "priority": "normal"},
            False,
            "6 asked for at normal priority; of the 7 available in a slice of 9, 4 are kept for higher priority",
        ),
        (denied(8, reason="IN_DEBT"), False, "the region owes what was used beyond its slice"),
    ],
)
def test_a_denial_says_what_stood_in_the_way(denial: dict[str, Any], is_frozen: bool, says: str) -> None:
    said = denial_in_words("us", denial, allocation(100, us=9), is_frozen=is_frozen)
    assert said.startswith("us last denied at 2026-06-15T03:00:00Z: ")
    assert says in said


def test_a_denial_at_the_cap_says_so() -> None:
    capped = allocation(100, policy=QuotaPolicy(regions={"us": RegionRules(cap=9)}), us=9)
    said = denial_in_words("us", denied(8, pool=50), capped, is_frozen=False)
    assert said.endswith("8 did not fit into 7 of a slice of 9, which is all that its cap 9 lets it own")


def test_a_denial_beside_a_pool_that_is_kept_for_floors_says_so() -> None:
    kept = allocation(100, policy=QuotaPolicy(regions={"eu": RegionRules(floor=50), "us": RegionRules(floor=20)}), us=9)
    said = denial_in_words("us", denied(8, pool=50), kept, is_frozen=False)
    assert said.endswith("and the pool held 50, of which is kept what eu still lacks of a floor")


def test_a_denial_names_its_priority_if_it_is_not_the_usual_one() -> None:
    denial = denied(8) | {"priority": "high", "kept": 0}
    said = denial_in_words("us", denial, allocation(100, us=9), is_frozen=False)
    assert said.startswith("us last denied a request of high priority at 2026-06-15T03:00:00Z: 8 did not fit")


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
    said = printed(known, NEEDS, monkeypatch, {"eu": None, "us": denied(8)})
    first = said.index("│ us ")
    assert "1 min ago" in said[first : said.index("\n", first)]
    assert "us last denied at 2026-06-15T03:00:00Z: 8 did not fit" in said
    assert "per s: over the 0.5 to 5 s of each region's last report" in " ".join(said.split())
    assert "not heard" in said[said.index("│ ap-") :].splitlines()[0]


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
