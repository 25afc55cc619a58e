"""The agent's steps, one at a time. What happens between them is what `regionquota explore` looks at."""

from typing import Any

import pytest
from tests.clocks import Clock
from tests.core.builders import NOON, QUOTA, adjust, allocation, move

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation
from regionquota.core.quota import MAX_AMOUNT
from regionquota.ports import Stored
from regionquota.region.steps import Step, carry_out, claim, synchronise


class House:
    """etcd and the database of eu."""

    def __init__(self) -> None:
        self.etcd = MemoryCoordination(Clock(NOON))
        self.store = MemoryRegionStore("eu")

    async def put(self, document: Allocation) -> None:
        revision, _ = await self.etcd.read(QUOTA)
        assert await self.etcd.swap(QUOTA, revision, document)

    async def document(self) -> Allocation:
        _, document = await self.etcd.read(QUOTA)
        assert document is not None
        return document

    async def synchronise(self) -> Step:
        return await synchronise(QUOTA, "eu", self.etcd, self.store, NOON)

    async def claim(self, wanted: int, share: float = 1.0) -> tuple[int, Step]:
        return await claim(QUOTA, "eu", self.etcd, self.store, wanted=wanted, share=share, now=NOON)

    async def slice(self) -> int:
        held = await self.store.holding(QUOTA)
        assert held is not None
        return held.slice


@pytest.fixture
def house() -> House:
    return House()


async def test_a_quota_that_does_not_exist_has_nothing_to_carry_out(house: House) -> None:
    assert Step(None, settled=True) == await house.synchronise()
    assert await house.store.holding(QUOTA) is None


async def test_what_is_owned_is_held(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    assert (await house.synchronise()).settled
    assert 300 == await house.slice()


async def test_a_move_is_carried_out_and_handed_over(house: House) -> None:
    await house.put(allocation(1000, eu=300, moves=[move("eu", "us", 40)]))
    step = await house.synchronise()
    assert (True, 40) == (step.settled, step.gave)
    document = await house.document()
    assert (260, 40, ()) == (document.slice_of("eu"), document.slice_of("us"), document.moves)


async def test_what_is_spent_is_not_handed_over(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    await house.synchronise()
    await house.store.transact([adjust(290, request="x")], NOON)
    await house.put(allocation(1000, eu=300, moves=[move("eu", "us", 40)]))
    step = await house.synchronise()
    assert 10 == step.gave
    assert 290 == (await house.document()).slice_of("eu")


async def test_where_nothing_can_be_given_the_move_stays_requested(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    await house.synchronise()
    await house.store.transact([adjust(300, request="x")], NOON)
    await house.put(allocation(1000, eu=300, moves=[move("eu", "us", 40)]))
    assert not (await house.synchronise()).settled
    assert ["m1"] == [one.id for one in (await house.document()).moves]


async def test_an_old_document_is_left_alone(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    revision, old = await house.etcd.read(QUOTA)
    await house.put(allocation(1000, eu=200))
    await house.synchronise()
    step = await carry_out(Stored(QUOTA, revision, old), "eu", house.etcd, house.store, NOON)
    assert step.held is None
    assert 200 == await house.slice()


class Racing:
    """etcd, where somebody else changes the document before the swap."""

    def __init__(self, house: House, document: Allocation) -> None:
        self._house = house
        self._document = document

    def __getattr__(self, name: str) -> Any:
        return getattr(self._house.etcd, name)

    async def swap(self, *args: Any) -> int | None:
        await self._house.put(self._document)
        return await self._house.etcd.swap(*args)


async def test_a_document_that_changed_in_between_is_not_written_over(house: House) -> None:
    await house.put(allocation(1000, eu=300, moves=[move("eu", "us", 40)]))
    newer = allocation(1000, eu=300, us=5)
    racing: Any = Racing(house, newer)
    step = await synchronise(QUOTA, "eu", racing, house.store, NOON)
    assert not step.settled
    assert newer == await house.document()
    await house.synchronise()
    assert 300 == await house.slice()


async def test_a_claim_takes_what_is_wanted_out_of_the_pool(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    got, step = await house.claim(40)
    assert (40, 340) == (got, await house.slice())
    assert step.settled
    assert 660 == (await house.document()).pool


@pytest.mark.parametrize(("pool", "share", "expected"), [(100, 0.25, 25), (101, 0.25, 26), (1, 0.01, 1), (7, 1.0, 7)])
async def test_a_claim_takes_at_most_its_share_of_the_pool_rounded_up(
    house: House, pool: int, share: float, expected: int
) -> None:
    await house.put(allocation(1000, us=1000 - pool))
    assert expected == (await house.claim(MAX_AMOUNT, share))[0]


async def test_a_claim_on_an_empty_pool_gets_nothing_but_joins(house: House) -> None:
    await house.put(allocation(1000, us=1000))
    got, step = await house.claim(5)
    assert 0 == got
    assert step.held is not None
    assert 0 == await house.slice()


async def test_a_claim_on_a_pool_in_debt_gets_nothing(house: House) -> None:
    await house.put(allocation(1000, us=1200))
    assert 0 == (await house.claim(5))[0]


@pytest.mark.parametrize("pool", [2**53 + 3, 2**60 + 127, MAX_AMOUNT - 1, MAX_AMOUNT])
async def test_a_claim_on_a_pool_too_large_for_a_float_takes_no_more_than_there_is(house: House, pool: int) -> None:
    await house.put(allocation(pool))
    got, _ = await house.claim(MAX_AMOUNT)
    assert 0 < got <= pool
    assert pool == (await house.document()).pool + await house.slice()


async def test_a_claim_that_lost_to_a_change_gets_nothing_and_says_so(house: House) -> None:
    await house.put(allocation(1000, eu=300))
    racing: Any = Racing(house, allocation(1000, eu=300, us=5))
    got, _ = await claim(QUOTA, "eu", racing, house.store, wanted=40, share=1.0, now=NOON)
    assert 0 == got
    assert 300 == await house.slice()
