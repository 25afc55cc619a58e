"""regionquota simulate --from-live: what it refuses before it watches, and which quota it takes where none is named."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clocks import HandClock
from tests.core.builders import allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.cli import simulate, simulate_live
from regionquota.cli.simulate_live import Wanted, choose
from regionquota.config import Config
from regionquota.core.allocation import Allocation
from regionquota.core.periods import Calendar, Period
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import InvalidRequest, RegionQuotaError, Unavailable, UnreadableDocument
from regionquota.ports import RegionRecord

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


KNOWN = {
    "kind": "consumable",
    "limit": 600,
    "policy": {"period": "minute"},
    "global": {"slices": {"eu": 300, "us": 300}},
}
NAMED = Wanted("http://eu", "acme", "calls", "global")


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Regions eu and us, and what the region's server says and was asked. Nobody may watch before all was checked."""
    etcd = MemoryCoordination(HandClock(0.0))
    for name in ("eu", "us"):
        await etcd.swap_region(RegionRecord(name, 100), 0)
    told: dict[str, Any] = {"quotas": [KNOWN], "rates": None}

    @asynccontextmanager
    async def connected(_: Config) -> AsyncIterator[Any]:
        yield SimpleNamespace(directory=etcd, allocations=etcd)

    async def ask(_url: str, _tenant: str, _query: Any) -> dict[str, Any]:
        return {"quotas": told["quotas"]}

    async def watch(_config: Config, _connected: Any) -> Any:
        assert told["rates"] is not None, "watched before all was checked"
        return told["rates"]

    for name, stand_in in (("operator", connected), ("_ask", ask), ("_watch", watch)):
        monkeypatch.setattr(simulate_live, name, stand_in)
    return told


@pytest.mark.parametrize("wanted", [NAMED, ANY], ids=["named", "any"])
@pytest.mark.parametrize(
    ("cut", "words", "says"),
    [
        ("mars", [], '--cut: unknown region "mars": known are eu, us'),
        ("eux", [], '--cut: unknown region "eux": did you mean eu'),
        (None, ["quota.limt=3"], "--set quota.limt=3: unknown field quota.limt: did you mean limit"),
        (None, ["regions.mars.weight=3"], 'unknown region "mars"'),
        (None, ["demand.shape=round"], "demand.shape takes one of"),
    ],
)
async def test_what_is_wrong_is_refused_before_demand_is_watched(
    running: dict[str, Any], wanted: Wanted, cut: str | None, words: list[str], says: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await simulate._live(Config(), wanted, cut, 60, words)
    assert says in str(refused.value)


async def test_a_tenant_that_nobody_knows_is_refused_before_demand_is_watched(running: dict[str, Any]) -> None:
    running["quotas"] = []
    with pytest.raises(RegionQuotaError, match="--tenant: http://eu knows no quota of acme in scope global"):
        await simulate._live(Config(), Wanted("http://eu", "acme", None, "global"), None, 60, [])
    with pytest.raises(RegionQuotaError, match=r"http://eu knows no quota acme/calls/global \(--tenant"):
        await simulate._live(Config(), NAMED, None, 60, [])


@pytest.mark.parametrize("url", ["127.0.0.1:80", "", "ftp://eu", "http://", "http:// eu"])
async def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequest, match="--from-live takes the URL of a region's server, as in http://"):
        await simulate._live(Config(), Wanted(url, None, None, "global"), None, 60, [])


async def test_a_server_that_does_not_answer_is_noticed_at_once() -> None:
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9\) does not answer.*--from-live takes the URL"):
        await simulate._live(Config(), Wanted("http://127.0.0.1:9", None, None, "global"), None, 60, [])


async def test_of_a_quota_that_nobody_asks_for_it_says_what_can_be_done(running: dict[str, Any]) -> None:
    running["rates"] = {}
    with pytest.raises(InvalidRequest, match=r"reported any demand for it in 20 s.*--set demand\.rates\.eu=2\.5"):
        await simulate._live(Config(), NAMED, None, 60, [])
    wanted, work = await simulate._live(Config(), NAMED, None, 60, ["demand.rates.eu=2.5"])
    assert {"eu": 2.5, "us": 0.0} == wanted.demand.rates
    assert work.requests


async def test_that_units_are_scaled_down_is_said_before_it_is_played(
    running: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    running["rates"] = {CALLS: {"eu": 3000.0}}
    _, work = await simulate._live(Config(), NAMED, "eu", 3600, [])
    said = " ".join(capsys.readouterr().err.split())
    assert "note: acme/calls/global is asked for more than is played unit by unit" in said
    assert "of the limit that leaves 4" in said
    assert 4 == work.limit
