"""`HistoryStore` over etcd: one document for the history, and what the regions state while it is recovered."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from etcd3aio.kv import KVService, prefix_range_end

from regionquota.adapters.etcd.codec import decode_region
from regionquota.adapters.etcd.gateway import Gateway
from regionquota.adapters.etcd.history_codec import (
    decode_history,
    decode_statement,
    encode_history,
    encode_statement,
    owner_of,
)
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.core.history import History
from regionquota.core.quota import Region
from regionquota.core.recovery import Statement
from regionquota.ports import RegionRecord

PARTS_A_PAGE: Final = 8
"""Of statements, each of up to 1 MiB."""


class EtcdHistoryStore:
    def __init__(self, gateway: Gateway, keys: Keyspace) -> None:
        self._gateway = gateway
        self._keys = keys

    async def read(self) -> tuple[int, History | None]:
        entry = await self._gateway.get(self._keys.history, regardless=True)
        return (0, None) if entry is None else (entry.revision, decode_history(entry.key, entry.value))

    async def swap(self, history: History, revision: int) -> bool:
        value = encode_history(history)
        return await self._gateway.swap(self._keys.history, revision, value, None, regardless=True) is not None

    async def record(self, region: Region) -> RegionRecord | None:
        entry = await self._gateway.get(self._keys.region(region), regardless=True)
        return None if entry is None else decode_region(entry.key, entry.value)

    async def state(self, statement: Statement) -> None:
        """The first part is written first, and says how many belong to it: only with all others it is complete."""
        region = statement.region
        parts = [
            (self._keys.statement(region, number), part) for number, part in enumerate(encode_statement(statement))
        ]
        await self._gateway.put_parts(self._keys.statement_of(region), parts, regardless=True)

    async def statements(self) -> Sequence[Statement]:
        _, entries = await self._gateway.scan(self._keys.statements, regardless=True, page=PARTS_A_PAGE)
        found = []
        for _, parts in groupby(entries, lambda entry: owner_of(entry.key)):
            statement = decode_statement([(part.key, part.value) for part in parts])
            if statement is not None:
                found.append(statement)
        return found

    async def forget_statements(self) -> None:
        start = self._keys.statements
        end = prefix_range_end(start)
        await self._gateway.transact(start, (), [KVService.txn_op_delete(start, range_end=end)], regardless=True)
