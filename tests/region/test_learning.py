"""What a region server learns of its demand, and what it tells of it."""

from collections.abc import Collection, Mapping, Sequence

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.demand_history import MemoryDemandHistory
from regionquota.core.forecast import NOTHING, Counted, Past
from regionquota.core.quota import QuotaKey
from regionquota.errors import OutcomeUnknown, StoreUnavailable
from regionquota.region import learning
from regionquota.region.demand import MAX_QUOTAS, DemandMeter
from regionquota.region.learning import HOUR_S, MINUTE_S, Learning

CPU, DISK = QuotaKey("acme", "vcpu"), QuotaKey("acme", "disk")
HOUR = 500_000 * HOUR_S
DAY_S = 24 * HOUR_S


class Failing(MemoryDemandHistory):
    """Raises `error`, after the deed if that may have happened."""

    error: Exception | None = None
    recalls = 0

    async def add(self, hour: float, counted: Mapping[QuotaKey, Counted]) -> None:
        if self.error is None or isinstance(self.error, OutcomeUnknown):
            await super().add(hour, counted)
        if self.error is not None:
            raise self.error

    async def recall(self, keys: Collection[QuotaKey], hours: Collection[float]) -> Sequence[Past]:
        self.recalls += 1
        return await super().recall(keys, hours)


class World:
    def __init__(self) -> None:
        self.clock = HandClock(HOUR)
        self.meter = DemandMeter(HOUR)
        self.history = Failing()
        self.learning = Learning(self.meter, self.history, self.clock)

    async def minute(self, granted: int = 0, denied: int = 0, key: QuotaKey = CPU) -> None:
        """In which a report is made in between."""
        for part in (granted // 2, granted - granted // 2):
            self.meter.granted(key, part)
            self.meter.denied(key, denied // 2)
            self.meter.take(self.clock.now())
        self.clock.seconds += MINUTE_S
        await self.learning.step()

    async def counted(self, key: QuotaKey = CPU, hour: float = HOUR) -> Counted:
        (past,) = await self.history.recall([key], [hour])
        return past.hours[hour]


@pytest.fixture
def world() -> World:
    return World()


async def test_what_was_counted_is_added_to_its_hour(world: World) -> None:
    world.meter.freed(CPU, 3)
    await world.minute(10)
    await world.minute(20, denied=6)
    assert Counted(30, 3, 6, 26) == await world.counted()


async def test_nothing_is_counted_twice_whenever_reports_are_made(world: World) -> None:
    world.meter.granted(CPU, 1)
    await world.learning.step()
    world.meter.granted(CPU, 2)
    world.meter.take(world.clock.now())
    world.meter.granted(CPU, 4)
    for _ in range(2):
        await world.learning.step()
    assert 7 == (await world.counted()).granted


async def test_the_busiest_minutes_of_several_servers_add_up(world: World) -> None:
    other = Learning(meter := DemandMeter(HOUR), world.history, world.clock)
    await world.minute(10)
    for amount in (3, 8):
        meter.granted(CPU, amount)
        await other.step()
    assert 18 == (await world.counted()).peak


async def test_each_hour_has_a_busiest_minute_of_its_own(world: World) -> None:
    await world.minute(10)
    world.clock.seconds += HOUR_S
    await world.minute(4)
    assert [10, 4] == [(await world.counted(hour=hour)).peak for hour in (HOUR, HOUR + HOUR_S)]


async def test_what_could_not_be_written_is_written_later(world: World) -> None:
    world.history.error = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await world.minute(10)
    world.history.error = None
    await world.minute(5)
    assert Counted(15, 0, 0, 10) == await world.counted()


async def test_what_may_have_been_written_is_not_written_again(world: World) -> None:
    world.history.error = OutcomeUnknown("broke")
    with pytest.raises(OutcomeUnknown):
        await world.minute(10)
    world.history.error = None
    await world.minute(5)
    assert 15 == (await world.counted()).granted


async def test_so_many_quotas_are_written_at_once_those_that_were_asked_for_most_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "AT_ONCE", 1)
    world.meter.granted(DISK, 20)
    await world.minute(10)
    assert [] == await world.history.recall([CPU], [HOUR])
    assert 20 == (await world.counted(DISK)).granted
    await world.learning.step()
    assert 10 == (await world.counted()).granted


async def test_of_more_quotas_than_a_report_holds_those_that_were_asked_for_least_are_passed_over(world: World) -> None:
    for number in range(MAX_QUOTAS + 5):
        world.meter.granted(QuotaKey(f"t{number}", "vcpu"), number)
    for _ in range(20):
        await world.learning.step()
    keys = [QuotaKey(f"t{number}", "vcpu") for number in range(MAX_QUOTAS + 5)]
    assert keys[5:] == [past.key for past in await world.history.recall(keys, [HOUR])]


async def test_nothing_is_foreseen_on_the_first_day(world: World) -> None:
    for _ in range(3):
        world.learning.foreseen(CPU, world.clock.now())
        await world.minute(60)
    assert NOTHING == world.learning.foreseen(CPU, world.clock.now())


async def test_what_was_asked_for_at_this_hour_is_foreseen_a_day_later(world: World) -> None:
    for hour in range(-3, 30):
        await world.history.add(HOUR + hour * HOUR_S, {CPU: Counted(7200, 0, 0, 300)})
    world.clock.seconds += DAY_S + MINUTE_S
    now = world.clock.now()
    assert NOTHING == world.learning.foreseen(CPU, now)  # asked for the first time
    await world.learning.step()
    assert 180.0 == world.learning.foreseen(CPU, now).deviation
    assert 2.0 <= world.learning.foreseen(CPU, now).expected <= 3.4
    assert NOTHING == world.learning.foreseen(CPU, now + HOUR_S + MINUTE_S)  # too old


async def test_the_past_is_looked_up_for_what_is_told_of_alone_and_now_and_then(world: World) -> None:
    told = []
    for _ in range(30):
        world.learning.foreseen(CPU, world.clock.now())
        await world.minute(1)
        told.append(world.history.recalls)
    assert 3 == told[-1]
    for _ in range(20):
        await world.minute(1)
    assert 3 == world.history.recalls


async def test_what_was_looked_up_while_the_clock_ran_ahead_counts_no_more_once_it_is_right(world: World) -> None:
    for hour in range(-48, 0):
        await world.history.add(HOUR + hour * HOUR_S, {CPU: Counted(7200, 0, 0, 300)})
    world.clock.seconds += 40 * DAY_S
    for _ in range(2):
        world.learning.foreseen(CPU, world.clock.now())
        await world.minute(1)
    world.clock.seconds -= 40 * DAY_S
    assert NOTHING == world.learning.foreseen(CPU, world.clock.now())
    await world.learning.step()
    assert 2.0 == world.learning.foreseen(CPU, world.clock.now()).expected
