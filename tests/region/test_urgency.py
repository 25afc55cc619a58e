"""What runs short is cried out at once, and not before it has to be."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.clocks import HandClock
from tests.core.builders import QUOTA, allocation

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.demand import Demand
from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey
from regionquota.ports import Session
from regionquota.region import urgency
from regionquota.region.demand import DemandMeter
from regionquota.region.urgency import MAX_QUOTAS, Urgency
from regionquota.urgency_ports import Cry


class Board(MemoryCoordination):
    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.cried: list[Cry] = []

    async def cry(self, session: Session, cry: Cry) -> None:
        self.cried.append(cry)


class Region:
    def __init__(self, pause_s: float = 0.0) -> None:
        self.clock = HandClock()
        self.board = Board(self.clock)
        self.store = MemoryRegionStore("eu")
        self.meter = DemandMeter(self.clock.now())
        self.session: Session | None = None
        self.owned = 50
        self.urgency = Urgency(
            "eu", "eu-1", self.board, self.store, self.meter, self.clock, lambda: self.session, lambda _: self.owned,
            pause_s=pause_s, lead_s=2.0,
        )  # fmt: skip

    async def words(self) -> Sequence[Demand]:
        """Of one cry, if there is one."""
        before = len(self.board.cried)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.urgency.serve()
        return [word for cry in self.board.cried[before:] for word in cry.words]


@pytest.fixture
async def region() -> Region:
    made = Region()
    made.session = await made.board.open_session(1000)
    await made.store.apply(QUOTA, allocation(100, eu=50), 1, made.clock.now())
    return made


@pytest.fixture
async def patient() -> Region:
    """Waits an eighth of a second, and half a second at most."""
    made = Region(pause_s=1 / 8)
    made.session = await made.board.open_session(1000)
    await made.store.apply(QUOTA, allocation(100, eu=50), 1, made.clock.now())
    return made


async def test_nothing_is_cried_while_nothing_runs_short(region: Region) -> None:
    assert [] == await region.words()


async def test_what_is_denied_is_cried_with_what_was_counted_so_far(region: Region) -> None:
    region.meter.denied(QUOTA, 3)
    region.clock.seconds += 1
    region.urgency.run_short(QUOTA, 0)
    (word,) = await region.words()
    assert (QUOTA, 50, 3, 1.0) == (word.key, word.slice, word.denied, word.seconds)
    assert 3 == region.meter.take(region.clock.now()).words(await region.store.holdings())[0].denied  # still reported


async def test_room_that_lasts_longer_than_help_takes_is_no_reason(region: Region) -> None:
    for _ in range(10):
        region.meter.granted(QUOTA, 1)
    region.clock.seconds += 10  # one a second
    region.urgency.run_short(QUOTA, 3)
    assert [] == await region.words()
    region.urgency.run_short(QUOTA, 2)
    assert 1 == len(await region.words())


async def test_room_for_no_single_request_is_a_reason(region: Region) -> None:
    region.meter.granted(QUOTA, 30)
    region.clock.seconds += 100
    region.urgency.run_short(QUOTA, 31)
    assert [] == await region.words()
    region.urgency.run_short(QUOTA, 30)
    assert [30] == [word.largest for word in await region.words()]


async def cries_of(region: Region, seconds: float) -> int:
    """While it denies eight times a second."""
    cried = 0
    for _ in range(int(seconds * 8)):
        region.urgency.run_short(QUOTA, 0)
        cried += len(await region.words())
        region.clock.seconds += 1 / 8
    return cried


async def test_a_cry_that_changes_nothing_is_repeated_ever_more_seldom_and_never_given_up(patient: Region) -> None:
    assert [4, 1, 1] == [await cries_of(patient, seconds) for seconds in (1.0, 0.5, 0.5)]


async def test_a_cry_that_helped_is_repeated_at_once(patient: Region) -> None:
    await cries_of(patient, 2.0)
    patient.owned += 1
    assert 2 == await cries_of(patient, 0.25)


async def test_after_a_while_of_peace_the_pause_is_short_again(patient: Region) -> None:
    await cries_of(patient, 2.0)
    patient.clock.seconds += 10
    assert 2 == await cries_of(patient, 0.25)


async def test_the_rate_is_that_of_this_report_and_the_last(region: Region) -> None:
    region.meter.granted(QUOTA, 100)
    region.clock.seconds += 5
    region.meter.take(region.clock.now())
    region.clock.seconds += 5
    assert 10.0 == region.meter.rate(QUOTA, region.clock.now())


async def test_without_a_session_nothing_is_cried(region: Region) -> None:
    region.session = None
    region.urgency.run_short(QUOTA, 0)
    assert [] == await region.words()


async def test_many_quotas_are_cried_in_turns(region: Region) -> None:
    keys = [QuotaKey("acme", f"r{number}") for number in range(MAX_QUOTAS + 1)]
    for key in keys:
        await region.store.apply(key, allocation(100, eu=50), 1, region.clock.now())
        region.urgency.run_short(key, 0)
    assert MAX_QUOTAS == len(await region.words())
    assert 1 == len(await region.words())


async def test_a_denial_at_high_priority_does_not_wait_for_the_pause_of_one_at_low(patient: Region) -> None:
    patient.meter.denied(QUOTA, 3, Priority.LOW)
    patient.urgency.run_short(QUOTA, 0)
    assert 1 == len(await patient.words())
    patient.meter.denied(QUOTA, 3, Priority.LOW)
    patient.urgency.run_short(QUOTA, 0)
    assert [] == await patient.words()
    for amount in (2, 0):
        patient.meter.denied(QUOTA, amount, Priority.HIGH)
        patient.urgency.run_short(QUOTA, 0)
        assert (amount > 0) == bool(await patient.words())


async def test_of_more_than_one_cry_holds_the_higher_priority_is_cried_first(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urgency, "MAX_QUOTAS", 1)
    keys = [QuotaKey("acme", name) for name in ("low", "normal", "high")]
    for key, priority in zip(keys, (Priority.LOW, Priority.NORMAL, Priority.HIGH), strict=True):
        await region.store.apply(key, allocation(100, eu=50), 1, region.clock.now())
        region.meter.denied(key, 1, priority)
        region.urgency.run_short(key, 0)
    assert ["high", "normal", "low"] == [word.key.resource for _ in keys for word in await region.words()]
