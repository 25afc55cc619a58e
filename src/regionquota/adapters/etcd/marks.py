"""`MarkStore` over etcd: one key per quota of which something was told."""

from collections.abc import Mapping

from etcd3aio.kv import KVService

from regionquota.adapters.etcd.codec import decode_mark, encode_mark, unreadable
from regionquota.adapters.etcd.gateway import Entry, Gateway
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.reading import Reader
from regionquota.alert_ports import StoredMark
from regionquota.core.alerts import Mark
from regionquota.core.quota import QuotaKey
from regionquota.ports import Fence


class EtcdMarkStore:
    def __init__(self, gateway: Gateway, keys: Keyspace) -> None:
        self._gateway = gateway
        self._keys = keys
        self._reader = Reader()

    async def marks(self) -> Mapping[QuotaKey, StoredMark]:
        _, entries = await self._gateway.scan(self._keys.marks)
        return dict(self._reader.readable(entries, self._stored))

    async def swap_mark(self, key: QuotaKey, revision: int, mark: Mark | None, fence: Fence) -> int | None:
        where = self._keys.mark(key)
        if mark is None:
            return await self._gateway.change(where, revision, KVService.txn_op_delete(where), fence)
        return await self._gateway.swap(where, revision, encode_mark(mark), fence)

    def _stored(self, entry: Entry) -> tuple[QuotaKey, StoredMark]:
        try:
            key = self._keys.marked_quota(entry.key)
        except ValueError as error:
            raise unreadable(entry.key, error) from error
        return key, StoredMark(entry.revision, decode_mark(entry.key, entry.value))
