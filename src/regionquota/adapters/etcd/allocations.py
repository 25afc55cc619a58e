"""`AllocationStore` over etcd: one key per allocation, compare-and-swap on its mod_revision."""

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby

from etcd3aio._protobuf import Compare, RequestOp
from etcd3aio.kv import KVService

from regionquota.adapters.etcd.binding import Binding
from regionquota.adapters.etcd.changes import Change
from regionquota.adapters.etcd.codec import decode_allocation, encode_allocation, unreadable
from regionquota.adapters.etcd.gateway import Entry, Gateway, at_revision, unchanged
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.reading import Reader
from regionquota.core.allocation import Allocation
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.quota import QuotaKey
from regionquota.errors import UnreadableDocument
from regionquota.ports import Fence, Stored


class EtcdAllocationStore:
    """`read` raises `UnreadableDocument`, an `EtcdUnavailable`; `list` and `watch` pass over such a document."""

    def __init__(self, gateway: Gateway, keys: Keyspace, binding: Binding) -> None:
        self._gateway = gateway
        self._keys = keys
        self._binding = binding
        self._reader = Reader()

    def key_of(self, key: QuotaKey) -> bytes:
        return self._keys.allocation(key)

    async def read(self, key: QuotaKey) -> tuple[int, Allocation | None]:
        entry, history = await self._gateway.get_with(self.key_of(key), self._binding.key)
        self._binding.meet(history)
        if entry is None:
            return 0, None
        return entry.revision, decode_allocation(entry.key, entry.value)

    async def swap(
        self, key: QuotaKey, revision: int, allocation: Allocation, fence: Fence | None = None
    ) -> int | None:
        document = self.key_of(key)
        put = KVService.txn_op_put(document, encode_allocation(allocation))
        return await self._write(document, unchanged(document, revision, fence), [put])

    async def swap_all(self, changes: Sequence[tuple[QuotaKey, int, Allocation]]) -> int | None:
        """At most 127: etcd takes 128 comparisons, one of which is the history's."""
        documents = [(self.key_of(key), revision, allocation) for key, revision, allocation in changes]
        return await self._write(
            documents[0][0],
            [at_revision(document, revision) for document, revision, _ in documents],
            [KVService.txn_op_put(document, encode_allocation(allocation)) for document, _, allocation in documents],
        )

    async def remove(self, key: QuotaKey, revision: int) -> bool:
        document = self.key_of(key)
        done = await self._write(document, [at_revision(document, revision)], [KVService.txn_op_delete(document)])
        return done is not None

    async def _write(self, document: bytes, compares: Sequence[Compare], writes: Sequence[RequestOp]) -> int | None:
        binding = self._binding
        if binding.is_new:
            binding.meet(await self._gateway.get(binding.key))
        outcome = await self._gateway.transact(
            document, [*compares, binding.compare()], writes, [KVService.txn_op_get(binding.key)]
        )
        if outcome.succeeded:
            return outcome.revision
        binding.require(outcome.entry)
        return None

    async def list(self, buckets: range = ALL_BUCKETS) -> tuple[int, Sequence[Stored]]:
        first, behind = self._keys.allocations_in(buckets)
        while True:
            revision, entries = await self._gateway.scan(first, end=behind)
            history = await self._gateway.get(self._binding.key)
            if history is None or history.revision <= revision:
                break  # else what was read may be of before a recovery that has ended since
        self._binding.meet(history)
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

    async def watch(self, after: int, buckets: range = ALL_BUCKETS) -> AsyncGenerator[Sequence[Stored], None]:
        async with self._gateway.watch(*self._keys.allocations_in(buckets), after) as changes:
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
