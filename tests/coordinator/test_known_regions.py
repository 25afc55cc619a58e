"""What one loop of a coordinator has read of the regions, another does not forget."""

import pytest
from tests.clocks import HandClock

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.coordinator.known_regions import KnownRegions
from regionquota.coordinator.leading import Led
from regionquota.coordinator.rounds import run_round
from regionquota.core.quota import Region
from regionquota.core.rebalancing import Policy
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Frozen, FrozenBy, RegionRecord, RegionStatus, StoredRegion
from regionquota.regions import freeze

FROZEN = Frozen(FrozenBy.OPERATOR, 1.0, "a drill")


class Late(MemoryCoordination):
    """Answers with what it was told before, if it was told to."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.answer: dict[Region, StoredRegion] | None = None
        self.loses = False

    async def regions(self) -> dict[Region, StoredRegion]:
        return dict(await super().regions()) if self.answer is None else self.answer

    async def swap_region(self, *args: object, **named: object) -> int | None:
        written = await super().swap_region(*args, **named)  # type: ignore[arg-type]
        if self.loses:
            raise EtcdUnavailable("no answer")
        return written


@pytest.fixture
async def etcd() -> Late:
    made = Late()
    await made.swap_region(RegionRecord("eu"), 0)
    await made.swap_region(RegionRecord("us"), 0)
    return made


async def test_nothing_is_known_before_it_was_read(etcd: Late) -> None:
    known = KnownRegions(etcd)
    assert {} == known.records
    await known.regions()
    assert {"eu", "us"} == known.records.keys()


async def test_what_was_read_last_stays_known(etcd: Late) -> None:
    known = KnownRegions(etcd)
    await known.regions()
    await freeze(etcd, "eu", "a drill", 1.0)
    assert known.records["eu"].frozen is None
    await known.regions()
    assert known.records["eu"].frozen is not None


async def test_an_answer_that_is_older_than_what_is_known_changes_nothing(etcd: Late) -> None:
    known = KnownRegions(etcd)
    before = await etcd.regions()
    await freeze(etcd, "eu", "a drill", 1.0)
    await known.regions()
    etcd.answer = before
    assert (await known.regions())["eu"].record.frozen is not None


async def test_what_was_written_through_it_is_known(etcd: Late) -> None:
    known = KnownRegions(etcd)
    revision = (await known.regions())["eu"].revision
    await known.swap_region(RegionRecord("eu", frozen=FROZEN), revision)
    assert FROZEN == known.records["eu"].frozen


async def test_a_write_without_an_answer_is_not_known_until_it_is_read(etcd: Late) -> None:
    known = KnownRegions(etcd)
    revision = (await known.regions())["eu"].revision
    etcd.loses = True
    with pytest.raises(EtcdUnavailable):
        await known.swap_region(RegionRecord("eu", frozen=FROZEN), revision)
    assert known.records["eu"].frozen is None
    await known.regions()
    assert FROZEN == known.records["eu"].frozen


async def test_a_round_that_looks_at_evicted_regions_again_remembers_what_it_read(etcd: Late) -> None:
    known = KnownRegions(etcd)
    fence = await etcd.lead(await etcd.open_session(10), "one")
    assert fence is not None
    gone = {"eu": RegionRecord("eu", status=RegionStatus.EVICTED)}
    await run_round(
        gone, etcd, etcd, Led(1, {0: fence}), Policy(), round_s=10.0, now=0.0, new_id=lambda: "1", regions=known
    )
    assert {"eu", "us"} == known.records.keys()
