"""`AllocationStore` over etcd: one key per allocation, compare-and-swap on its mod_revision."""

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby

from etcd3aio.kv import prefix_range_end

from regionquota.adapters.etcd.changes import Change
from regionquota.adapters.etcd.codec import decode_allocation, encode_allocation, unreadable
from regionquota.adapters.etcd.gateway import Entry, Gateway
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.reading import Reader
from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey
from regionquota.errors import UnreadableDocument
from regionquota.ports import Fence, Stored


class EtcdAllocationStore:
    """`read` raises `UnreadableDocument`, an `EtcdUnavailable`; `list` and `watch` pass over such a document."""

    def __init__(self, gateway: Gateway, keys: Keyspace) -> None:
        self._gateway = gateway
        self._keys = keys
        self._reader = Reader()

    def key_of(self, key: QuotaKey) -> bytes:
        return self._keys.allocation(key)

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        entry = await self._gateway.get(self.key_of(key))
        if entry is None:
            return 0, None
        return entry.revision, decode_allocation(entry.key, entry.value)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        return await self._gateway.swap(self.key_of(key), revision, encode_allocation(allocation), fence)

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        return await self._gateway.swap_all(
            [(self.key_of(key), revision, encode_allocation(allocation)) for key, revision, allocation in changes]
        )

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        return await self._gateway.remove(self.key_of(key), revision)

    async def list(self) -> tuple[int, Sequence[Stored]]:
        revision, entries = await self._gateway.scan(self._keys.allocations)
        return revision, list(self._reader.readable(entries, self.stored))

    async def damaged(self) -> Sequence[str]:
        _, entries = await self._gateway.scan(self._keys.allocations)
        found = []
        for entry in entries:
            try:
                self.stored(entry)
            except UnreadableDocument as error:
                found.append(str(error))
        return found

    async def watch(self, after: int) -> AsyncGenerator[Sequence[Stored], None]:
        start = self._keys.allocations
        async with self._gateway.watch(start, prefix_range_end(start), after) as changes:
            while True:
                for _, together in groupby(await changes.read(), lambda change: change.revision):
                    stored = tuple(self._reader.readable(together, self.stored))
                    if stored:
                        yield stored

    def stored(self, document: Entry | Change) -> Stored:
        try:
            key = self._keys.quota_of(document.key)
        except ValueError as error:
            raise unreadable(document.key, error) from error
        value = document.value
        allocation = None if value is None else decode_allocation(document.key, value)
        return Stored(key, document.revision, allocation)
