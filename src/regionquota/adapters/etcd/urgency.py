"""`UrgencyBoard` over etcd: a key per server, under its lease, which coordinators watch."""

from collections.abc import AsyncGenerator, Sequence

from etcd3aio.kv import prefix_range_end

from regionquota.adapters.etcd.changes import Change
from regionquota.adapters.etcd.codec import decode_report, encode_report, unreadable
from regionquota.adapters.etcd.directory import lease_of
from regionquota.adapters.etcd.gateway import Gateway
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.reading import Reader
from regionquota.errors import EtcdUnavailable
from regionquota.ports import CompactedError, Session
from regionquota.urgency_ports import Cry


class EtcdUrgencyBoard:
    """Passes over a cry that cannot be read."""

    def __init__(self, gateway: Gateway, keys: Keyspace) -> None:
        self._gateway = gateway
        self._keys = keys
        self._reader = Reader()

    async def cry(self, session: Session, cry: Cry) -> None:
        (document,) = encode_report(cry.region, cry.words)
        await self._gateway.put(self._keys.cry(cry.region, cry.instance), document, lease_of(session))

    async def cries(self) -> AsyncGenerator[Sequence[Cry], None]:
        start = self._keys.cries
        now, _ = await self._gateway.scan(start)
        async with self._gateway.watch(start, prefix_range_end(start), now) as changes:
            while True:
                try:
                    made = [change for change in await changes.read() if change.value is not None]
                except CompactedError as error:
                    raise EtcdUnavailable("the watch of cries was overtaken by compaction") from error
                heard = tuple(self._reader.readable(made, self._cry))
                if heard:
                    yield heard

    def _cry(self, change: Change) -> Cry:
        assert change.value is not None
        region, words = decode_report(change.key, change.value)
        try:
            named, instance = self._keys.crier(change.key)
        except ValueError as error:
            raise unreadable(change.key, error) from error
        if named != region:
            raise unreadable(change.key, f"it speaks for {region}")
        return Cry(region, instance, tuple(words))
