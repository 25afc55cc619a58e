"""Audit finds what is wrong, and nothing where nothing is."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.audit import Finding, Verdict, audit
from regionquota.core import counter as counters
from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import EtcdUnavailable, StoreUnavailable
from regionquota.ports import BalanceCheck, Stored

QUOTA = QuotaKey("acme", "vcpu")


class Damaged(MemoryCoordination):
    async def damaged(self) -> Sequence[str]:
        return ["acme/vcpu does not add up"]


class NoEtcd(MemoryCoordination):
    async def list(self) -> tuple[int, Sequence[Stored]]:
        raise EtcdUnavailable("etcd is away")

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        raise EtcdUnavailable("etcd is away")


class NoPostgres(MemoryRegionStore):
    async def check_balances(self) -> Sequence[BalanceCheck]:
        raise StoreUnavailable("Postgres is away")


async def deployment(etcd: MemoryCoordination, store: MemoryRegionStore) -> list[Finding]:
    allocation = grant(new_allocation(Kind.ALLOCATED, LimitSource.PLAN, VersionedLimit(100, 1)), {"eu": 40})
    revision = await MemoryCoordination.swap(etcd, QUOTA, 0, allocation)
    assert revision is not None
    await store.apply(QUOTA, allocation, revision, 1_000_000.0)
    return [finding async for finding in audit(etcd, {"eu": store})]


def wrong(findings: Sequence[Finding]) -> list[tuple[Verdict, str]]:
    return [(one.verdict, one.difference or "") for one in findings if one.verdict is not Verdict.HOLDS]


async def test_a_sound_deployment_has_no_difference() -> None:
    findings = await deployment(MemoryCoordination(HandClock()), MemoryRegionStore("eu"))
    assert [] == wrong(findings)
    assert [1, 1, 1] == [one.checked for one in findings]


async def test_a_slice_larger_than_what_the_region_owns_is_found() -> None:
    etcd, store = MemoryCoordination(HandClock()), MemoryRegionStore("eu")
    await deployment(etcd, store)
    held = store._holdings[QUOTA]
    store._holdings[QUOTA] = replace(held, counter=counters.resize(held.counter, 41))
    found = wrong([finding async for finding in audit(etcd, {"eu": store})])
    assert "holds 41 in Postgres" in found[0][1]


async def test_a_counter_that_its_ledger_does_not_explain_is_found() -> None:
    etcd, store = MemoryCoordination(HandClock()), MemoryRegionStore("eu")
    await deployment(etcd, store)
    held = store._holdings[QUOTA]
    store._holdings[QUOTA] = replace(held, counter=counters.charge(held.counter, 1))
    found = wrong([finding async for finding in audit(etcd, {"eu": store})])
    assert [(Verdict.VIOLATED, "acme/vcpu/global epoch 0: eu's counter says used 1, its ledgers 0")] == found


async def test_a_document_that_does_not_add_up_is_found() -> None:
    findings = await deployment(Damaged(HandClock()), MemoryRegionStore("eu"))
    assert [(Verdict.VIOLATED, "acme/vcpu does not add up")] == wrong(findings)


@pytest.mark.parametrize(
    ("etcd", "store", "unknown"),
    [
        (NoEtcd(HandClock()), MemoryRegionStore("eu"), 2),
        (MemoryCoordination(HandClock()), NoPostgres("eu"), 1),
    ],
)
async def test_what_cannot_be_looked_at_is_unknown_and_never_fine(
    etcd: MemoryCoordination, store: MemoryRegionStore, unknown: int
) -> None:
    findings = await deployment(etcd, store)
    assert [Verdict.UNKNOWN] * unknown == [verdict for verdict, _ in wrong(findings)]
