"""Which quota regionquota simulate --from-live takes where none is named."""

import pytest
from tests.clocks import HandClock
from tests.core.builders import allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.cli.simulate_live import Wanted, choose
from regionquota.core.allocation import Allocation
from regionquota.core.periods import Calendar, Period
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import InvalidRequest, UnreadableDocument

VCPU, MAILS, CALLS, TOKENS = (QuotaKey("acme", name) for name in ("vcpu", "mails", "calls", "tokens"))
ANY = Wanted("http://eu", None, None, "global")
RATES = {VCPU: {"eu": 90.0}, MAILS: {"eu": 9.0}, CALLS: {"eu": 2.0, "us": 2.0}, TOKENS: {"eu": 3.0}}


def consumable(period: Period) -> Allocation:
    return allocation(100, kind=Kind.CONSUMABLE, policy=QuotaPolicy(calendar=Calendar(period, "UTC")))


async def etcd_with(documents: dict[QuotaKey, Allocation]) -> MemoryCoordination:
    etcd = MemoryCoordination(HandClock(0.0))
    for key, document in documents.items():
        await etcd.swap(key, 0, document)
    return etcd


async def test_the_busiest_that_can_be_simulated_is_taken_and_named() -> None:
    known = {
        VCPU: allocation(100),
        MAILS: consumable(Period.MONTH),
        CALLS: consumable(Period.MINUTE),
        TOKENS: consumable(Period.DAY),
    }
    found = await choose(ANY, RATES, await etcd_with(known))
    assert CALLS == found.key
    assert (
        f"{CALLS} is the busiest that can be simulated (busier, but not to be simulated: {VCPU} is allocated, "
        f"{MAILS} is counted per month); --tenant and --resource choose another"
    ) == found.in_words()


async def test_what_was_named_in_part_bounds_the_choice() -> None:
    known = {CALLS: consumable(Period.MINUTE), TOKENS: consumable(Period.DAY)}
    found = await choose(Wanted("http://eu", None, "tokens", "global"), RATES, await etcd_with(known))
    assert f"{TOKENS} is the busiest that can be simulated; --tenant and --resource choose another" == found.in_words()


async def test_where_none_can_be_it_says_why() -> None:
    with pytest.raises(
        InvalidRequest, match=r"none of the 4 busiest quotas can be simulated \(acme/vcpu/global is allocated"
    ):
        await choose(ANY, RATES, await etcd_with({VCPU: allocation(100)}))
    with pytest.raises(InvalidRequest, match="no region reports any demand"):
        await choose(ANY, {}, await etcd_with({}))
    with pytest.raises(InvalidRequest, match=r"\(acme/calls/global is removed by now\)"):
        await choose(ANY, {CALLS: {"eu": 1.0}}, await etcd_with({}))


async def test_a_quota_that_nobody_asks_for_is_not_taken() -> None:
    etcd = await etcd_with({CALLS: consumable(Period.MINUTE)})
    with pytest.raises(InvalidRequest, match="no region reports any demand"):
        await choose(ANY, {CALLS: {"eu": 0.0, "us": 0.0}}, etcd)


async def test_a_document_that_cannot_be_read_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = await etcd_with({CALLS: consumable(Period.MINUTE)})
    read = etcd.read

    async def damaged(key: QuotaKey) -> tuple[int, Allocation | None]:
        if key == MAILS:
            raise UnreadableDocument(f"cannot read {key}")
        return await read(key)

    monkeypatch.setattr(etcd, "read", damaged)
    found = await choose(ANY, {CALLS: {"eu": 1.0}, MAILS: {"eu": 2.0}}, etcd)
    assert (CALLS, [f"{MAILS} cannot be read"]) == (found.key, found.busier)
