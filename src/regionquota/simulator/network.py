"""etcd as a process far away sees it: every call takes its time, and some are never answered."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from regionquota.adapters.memory.coordination import MemoryCoordination, MemorySession
from regionquota.core.allocation import Allocation
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, Leadership
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Fence, Presence, RegionRecord, Session, Stored, StoredRegion, Suspension
from regionquota.urgency_ports import Cry

T = TypeVar("T")


@dataclass
class Link:
    """Between one place and etcd. `round_trip_s` is there and back; a call that is not answered takes `timeout_s`."""

    round_trip_s: float
    timeout_s: float
    is_cut: bool = False
    writes: int = 0

    def cut(self) -> None:
        self.is_cut = True

    def restore(self) -> None:
        self.is_cut = False

    async def call(self, method: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._travel()
        answer = await method(*args)
        await self._travel()
        return answer

    async def write(self, method: Callable[..., Awaitable[T]], *args: Any) -> T:
        self.writes += 1
        return await self.call(method, *args)

    async def hear(self, source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """What is said there arrives half a round trip later, however much is under way."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, T]] = asyncio.Queue()

        async def send() -> None:
            async with aclosing(source) as words:
                async for word in words:
                    under_way.put_nowait((loop.time() + self.round_trip_s / 2, word))

        sender = asyncio.create_task(send())
        try:
            while True:
                due, word = await under_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if self.is_cut:
                    raise EtcdUnavailable("cut off")
                yield word
        finally:
            sender.cancel()

    async def _travel(self) -> None:
        """What is under way when the link is cut is lost."""
        if self.round_trip_s and not self.is_cut:
            await asyncio.sleep(self.round_trip_s / 2)
        if self.is_cut:
            await asyncio.sleep(self.timeout_s)
            raise EtcdUnavailable("cut off")


class _FarSession:
    def __init__(self, link: Link, session: MemorySession) -> None:
        self.session = session
        self._link = link

    async def keep(self) -> bool:
        return await self._link.call(self.session.keep)

    async def close(self) -> None:
        if not self._link.is_cut:
            await self.session.close()


class FarEtcd:
    """`AllocationStore` and `Directory` over a link."""

    def __init__(self, etcd: MemoryCoordination, link: Link) -> None:
        self._etcd = etcd
        self._link = link

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        return await self._link.call(self._etcd.read, key)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        return await self._link.write(self._etcd.swap, key, revision, allocation, fence)

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        return await self._link.write(self._etcd.swap_all, changes)

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        return await self._link.write(self._etcd.remove, key, revision)

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        return await self._link.call(self._etcd.list, buckets)

    async def damaged(self) -> Sequence[str]:
        return await self._link.call(self._etcd.damaged)

    async def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        """What happens while the link is cut is heard of when it is restored, by the next list."""
        async with aclosing(self._link.hear(self._etcd.watch(after, buckets))) as changes:
            async for batch in changes:
                yield batch

    async def open_session(self, ttl_s: int) -> Session:
        return _FarSession(self._link, await self._link.call(self._etcd.open_session, ttl_s))

    async def regions(self) -> Mapping[Region, StoredRegion]:
        return await self._link.call(self._etcd.regions)

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        written = partial(self._etcd.swap_region, record, revision, fence, unless_present=unless_present)
        return await self._link.write(written)

    async def announce(self, session: Session, presence: Presence) -> None:
        await self._link.write(self._etcd.announce, _near(session), presence)

    async def present(self) -> Sequence[Presence]:
        return await self._link.call(self._etcd.present)

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        await self._link.write(self._etcd.report, _near(session), region, instance, demand)

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]:
        return await self._link.call(self._etcd.demand, buckets)

    async def cry(self, session: Session, cry: Cry) -> None:
        await self._link.write(self._etcd.cry, _near(session), cry)

    async def cries(self) -> AsyncGenerator[Sequence[Cry], None]:
        async with aclosing(self._link.hear(self._etcd.cries())) as cries:
            async for heard in cries:
                yield heard

    async def stand(self, session: Session, name: str) -> None:
        await self._link.write(self._etcd.stand, _near(session), name)

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        return await self._link.call(self._etcd.lead, _near(session), name, group)

    async def resign(self, fence: Fence) -> None:
        await self._link.write(self._etcd.resign, fence)

    async def leadership(self) -> Leadership:
        return await self._link.call(self._etcd.leadership)

    async def suspend(self, tenant: str, since: float, why: str) -> None:
        await self._link.write(self._etcd.suspend, tenant, since, why)

    async def resume(self, tenant: str) -> bool:
        return await self._link.write(self._etcd.resume, tenant)

    async def suspensions(self) -> Mapping[str, Suspension]:
        return await self._link.call(self._etcd.suspensions)


def _near(session: Session) -> Session:
    assert isinstance(session, _FarSession)
    return session.session
