"""Capacity that one region lent to another, and wants back while it is still spent there."""

from collections.abc import Sequence

from tests.clocks import Clock
from tests.core.builders import NOON, QUOTA, allocation, move, reservation_name, reserve

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, request_moves
from regionquota.core.commands import Command, Granted, Outcome, Release
from regionquota.region.steps import synchronise

LIMIT = 100


class Lending:
    """`eu` lent 60 of its 100 to `us`, which spends 50 of them."""

    def __init__(self) -> None:
        self.etcd = MemoryCoordination(Clock(NOON))
        self.stores = {name: MemoryRegionStore(name) for name in ("eu", "us")}

    async def begin(self) -> None:
        await self.etcd.swap(QUOTA, 0, allocation(LIMIT, eu=40, us=60))
        await self.step("eu", "us")
        assert await self.reserve("us", 50, 1)

    async def document(self) -> Allocation:
        _, document = await self.etcd.read(QUOTA)
        assert document is not None
        return document

    async def ask_back(self) -> None:
        revision, _ = await self.etcd.read(QUOTA)
        assert await self.etcd.swap(QUOTA, revision, request_moves(await self.document(), [move("us", "eu", 60)]))

    async def step(self, *names: str) -> None:
        for name in names:
            await synchronise(QUOTA, name, self.etcd, self.stores[name], NOON)

    async def slices(self) -> Sequence[int]:
        """What each may spend: that is never more than the limit."""
        held = [await store.holding(QUOTA) for store in self.stores.values()]
        found = [0 if one is None else one.slice for one in held]
        assert sum(found) <= LIMIT
        return found

    async def submit(self, name: str, command: Command) -> Outcome:
        return (await self.stores[name].transact([command], NOON))[0]

    async def reserve(self, name: str, amount: int, number: int) -> bool:
        return isinstance(await self.submit(name, reserve(amount, name=reservation_name(number))), Granted)


async def test_what_was_lent_comes_back_only_after_the_borrower_has_let_go_of_it() -> None:
    world = Lending()
    await world.begin()
    await world.ask_back()

    await world.step("eu")
    assert [40, 60] == await world.slices()
    await world.step("us", "eu")
    assert [50, 50] == await world.slices()
    assert await world.reserve("eu", 50, 2)
    assert not await world.reserve("us", 1, 3)

    await world.submit("us", Release(reservation_name(1)))
    await world.ask_back()
    await world.step("eu")
    assert [50, 50] == await world.slices()
    assert not await world.reserve("eu", 1, 4)
    await world.step("us", "eu")
    assert [100, 0] == await world.slices()
    assert await world.reserve("eu", 50, 5)


async def test_a_borrower_that_is_gone_keeps_what_it_was_lent() -> None:
    world = Lending()
    await world.begin()
    await world.ask_back()
    for _ in range(3):
        await world.step("eu")
    assert [40, 60] == await world.slices()
    assert not await world.reserve("eu", 41, 2)
    assert 60 == (await world.document()).slice_of("us")
