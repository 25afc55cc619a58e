import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from regionquota.core.allocation import Allocation, LimitSource, Move, VersionedLimit, grant, hand_over, request_moves
from regionquota.core.allocation import new_allocation as new
from regionquota.core.counter import Counter
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Stored
from regionquota.replay import Proof, Sights, observer
from regionquota.replay.observer import Observer
from regionquota.replay.transfers import Movement

SOON = 0.3


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAMPLE_S", "DIRECTORY_S", "RETRY_S"):
        monkeypatch.setattr(observer, name, 0.005)
    monkeypatch.setattr(observer, "STALE_WATCH_S", 0.05)


def allocation(limit: int = 100, slices: Mapping[str, int] | None = None) -> Allocation:
    return grant(new(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(limit, 1)), slices or {})


def hand_over_from_eu_to_us(etcd: Any, databases: Any, key: QuotaKey) -> None:
    """A quota of 100 is created, granted 60 : 40, and 20 are moved: each step by the protocol."""
    etcd.put(key, allocation())
    shared = allocation(slices={"eu": 60, "us": 40})
    granted = etcd.put(key, shared)
    databases["eu"].hold(60, granted)
    databases["us"].hold(40, granted)
    asked = request_moves(shared, [Move("1", "eu", "us", 20)])
    databases["eu"].hold(40, etcd.put(key, asked))
    databases["us"].hold(60, etcd.put(key, hand_over(asked, "eu", 40, epoch=0)))


async def settled(until: Callable[[], bool]) -> None:
    async with asyncio.timeout(2):
        while not until():
            await asyncio.sleep(0.005)


async def test_histories_that_agree_prove_both_invariants(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await settled(lambda: watching.slices_sum == 100)
        seen = await watching.finish(SOON)
    assert (Proof.HELD, Proof.HELD, (), ()) == (seen.invariant_a, seen.invariant_b, seen.differences, seen.gaps)
    assert (4, 100) == (seen.revisions_checked, seen.largest_slices_sum)
    assert Movement(hand_overs=1, hand_over_units=20, claims=2, claim_units=100) == seen.movement


async def test_a_region_that_held_more_than_it_owned_violates_b(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        databases["eu"].hold(60, 3)  # a stalled agent raises again what it had given away at revision 4
        seen = await watching.finish(SOON)
    assert (Proof.HELD, Proof.VIOLATED) == (seen.invariant_a, seen.invariant_b)
    assert (f"{key}: eu held 60 at revision 4, where it owned 40",) == seen.differences


async def test_other_quotas_are_none_of_its_business(etcd: Any, databases: Any, sights: Sights, key: QuotaKey) -> None:
    async with Observer(key, sights) as watching:
        etcd.put(QuotaKey("other", "vcpu"), allocation(7))
        etcd.put(key, allocation())
        seen = await watching.finish(SOON)
    assert (1, Proof.HELD) == (seen.revisions_checked, seen.invariant_b)


async def test_an_outage_of_etcd_in_the_middle_loses_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        etcd.put(key, allocation())
        await asyncio.sleep(0.03)
        etcd.down = True
        await asyncio.sleep(0.03)
        hand_over_from_eu_to_us(etcd, databases, key)
        finishing = asyncio.create_task(watching.finish(2))
        await asyncio.sleep(0.05)
        etcd.down = False
        seen = await finishing
    assert (5, Proof.HELD, Proof.HELD) == (seen.revisions_checked, seen.invariant_a, seen.invariant_b)


async def test_a_history_that_cannot_be_completed_proves_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await asyncio.sleep(0.03)
        etcd.down = True
        seen = await watching.finish(SOON)
    assert (Proof.UNKNOWN, Proof.UNKNOWN) == (seen.invariant_a, seen.invariant_b)
    assert (f"the history of {key} ends at revision 4: etcd is stopped",) == seen.gaps


async def test_a_violation_in_an_incomplete_history_is_still_one(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        databases["eu"].hold(60, 3)
        await asyncio.sleep(0.03)
        etcd.down = True
        seen = await watching.finish(SOON)
    assert (Proof.UNKNOWN, Proof.VIOLATED) == (seen.invariant_a, seen.invariant_b)


async def test_a_watch_that_hangs_is_opened_anew(etcd: Any, databases: Any, sights: Sights, key: QuotaKey) -> None:
    etcd.watches_hang = True
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await asyncio.sleep(0.03)
        etcd.watches_hang = False
        seen = await watching.finish(SOON)
    assert (4, Proof.HELD) == (seen.revisions_checked, seen.invariant_b)


async def test_a_compaction_of_what_was_seen_leaves_no_gap(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await settled(lambda: watching.slices_sum == 100)
        etcd.down = True
        await asyncio.sleep(0.03)
        for _ in range(5):
            etcd.put(QuotaKey("other", "vcpu"), allocation(7))
        etcd.compacted = etcd.revision
        etcd.down = False
        seen = await watching.finish(SOON)
    assert (4, Proof.HELD, ()) == (seen.revisions_checked, seen.invariant_b, seen.gaps)


async def test_a_compaction_of_what_was_not_seen_proves_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        etcd.put(key, allocation())
        await asyncio.sleep(0.03)
        etcd.down = True
        await asyncio.sleep(0.03)
        hand_over_from_eu_to_us(etcd, databases, key)
        etcd.compacted = etcd.revision
        etcd.down = False
        seen = await watching.finish(SOON)
    assert (Proof.UNKNOWN, Proof.UNKNOWN) == (seen.invariant_a, seen.invariant_b)
    assert "compacted revisions after 1" in seen.gaps[0]


async def test_a_document_that_does_not_add_up_violates_a(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        etcd.put(key, allocation())
        await asyncio.sleep(0.03)
        etcd.poisoned = True
        seen = await watching.finish(SOON)
    assert (Proof.VIOLATED, Proof.UNKNOWN) == (seen.invariant_a, seen.invariant_b)
    assert "pool + retired + slices is 7, the limit 8" in seen.differences[0]


async def test_a_history_in_which_nothing_is_passed_over_confirms_the_watch(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async def history(quota: QuotaKey, after: int, upto: int) -> Sequence[Stored]:
        return [stored for stored in etcd.log if stored.key == quota and after < stored.revision <= upto]

    async with Observer(key, replace(sights, history=history)) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await settled(lambda: watching.slices_sum == 100)
        seen = await watching.finish(SOON)
    assert (4, Proof.HELD, Proof.HELD) == (seen.revisions_checked, seen.invariant_a, seen.invariant_b)


async def test_a_revision_that_the_watch_passed_over_is_found_out(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async def history(quota: QuotaKey, after: int, upto: int) -> Sequence[Stored]:
        raise EtcdUnavailable("cannot read the document at revision 2: it does not add up")

    async with Observer(key, replace(sights, history=history)) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        await settled(lambda: watching.slices_sum == 100)
        seen = await watching.finish(0.1)
    assert (Proof.UNKNOWN, Proof.UNKNOWN) == (seen.invariant_a, seen.invariant_b)
    assert "cannot read the document at revision 2" in seen.gaps[0]


async def test_a_sampler_that_breaks_is_told_and_takes_no_proof_away(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    def fail() -> None:
        raise LookupError("a column is missing")

    databases["eu"].before_holding = fail
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        seen = await watching.finish(SOON)
    assert ("the observer's sampling ended early: LookupError: a column is missing",) == seen.notes
    assert Proof.HELD is seen.invariant_b


async def test_a_database_that_cannot_be_read_proves_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        databases["us"].down = True
        seen = await watching.finish(0.1)
    assert (Proof.UNKNOWN, Proof.UNKNOWN) == (seen.invariant_a, seen.invariant_b)
    assert ("the slice ledger of us cannot be read: the database is stopped",) == seen.gaps


async def test_a_ledger_without_its_start_proves_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        del databases["us"].rows[0]
        seen = await watching.finish(SOON)
    assert (Proof.UNKNOWN, ("the slice ledger of us lacks its start: it begins with 40 units",)) == (
        seen.invariant_b,
        seen.gaps,
    )


async def test_a_ledger_with_a_hole_violates_b(etcd: Any, databases: Any, sights: Sights, key: QuotaKey) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        databases["us"].hold(50, 4, before=55)
        seen = await watching.finish(SOON)
    assert Proof.VIOLATED is seen.invariant_b


async def test_a_quota_that_was_never_written_or_was_deleted_proves_nothing(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        never = await watching.finish(SOON)
    assert (f"no allocation of {key} was ever seen",) == never.gaps
    async with Observer(key, sights) as watching:
        etcd.put(key, allocation())
        etcd.put(key, None)
        deleted = await watching.finish(SOON)
    assert ((f"{key} was deleted at revision 2",), Proof.UNKNOWN) == (deleted.gaps, deleted.invariant_a)


async def test_long_ledgers_are_read_to_the_end(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "PAGE", 2)
    async with Observer(key, sights) as watching:
        revision = etcd.put(key, allocation(slices={"eu": 50}))
        for slice_ in (10, 20, 30, 51):
            databases["eu"].hold(slice_, revision)
        seen = await watching.finish(SOON)
    assert (f"{key}: eu held 51 at revision 1, where it owned 50",) == seen.differences


async def test_freezes_and_thaws_are_counted_by_region(etcd: Any, sights: Sights, key: QuotaKey) -> None:
    etcd.frozen = {"us"}
    async with Observer(key, sights) as watching:
        etcd.put(key, allocation())
        for frozen in ({"us"}, {"us", "eu"}, {"eu"}, set(), {"eu"}):
            etcd.frozen = frozen
            await settled(lambda frozen=frozen: watching.frozen == frozen)
        seen = await watching.finish(SOON)
    assert ({"eu": 2}, {"us": 1, "eu": 1}) == (seen.freezes, seen.thaws)


async def test_only_samples_between_which_no_slice_changed_count(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    hand_over_from_eu_to_us(etcd, databases, key)
    databases["eu"].counter = Counter(slice=40, available=10, used=25, reserved=5)
    async with Observer(key, sights) as watching:
        await settled(lambda: watching._cuts >= 2)
        databases["us"].before_holding = lambda: databases["us"].hold(60, databases["us"].rows[-1].revision + 1)
        await asyncio.sleep(0.03)
        cuts, samples = watching._cuts, watching._samples
        await settled(lambda: watching._samples > samples)
        assert cuts == watching._cuts
        databases["us"].before_holding = None
        seen = await watching.finish(SOON)
    assert 30 == seen.largest_spent
    assert seen.samples > seen.consistent_cuts


async def test_a_sample_above_the_limit_violates_b_even_if_the_ledgers_do_not_show_it(
    etcd: Any, databases: Any, sights: Sights, key: QuotaKey
) -> None:
    async with Observer(key, sights) as watching:
        hand_over_from_eu_to_us(etcd, databases, key)
        databases["eu"].counter = Counter(slice=41, available=41)
        await settled(lambda: watching._cuts > 0)
        seen = await watching.finish(SOON)
    assert (Proof.VIOLATED, (f"{key}: a sample found slices of 101 under a limit of 100",)) == (
        seen.invariant_b,
        seen.differences,
    )


async def test_it_cannot_start_without_etcd(etcd: Any, sights: Sights, key: QuotaKey) -> None:
    etcd.down = True
    with pytest.raises(EtcdUnavailable):
        await Observer(key, sights).__aenter__()
