"""What bootstrap makes: the ports over one connection to an etcd cluster."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from regionquota.adapters.etcd.allocations import EtcdAllocationStore
from regionquota.adapters.etcd.binding import Binding
from regionquota.adapters.etcd.channel import open_channel, read_tls
from regionquota.adapters.etcd.directory import EtcdDirectory
from regionquota.adapters.etcd.gateway import Gateway
from regionquota.adapters.etcd.history_store import EtcdHistoryStore
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.marks import EtcdMarkStore
from regionquota.adapters.etcd.urgency import EtcdUrgencyBoard
from regionquota.core.history import Bond, History, Seen


class EtcdClient:
    """Belongs to the event loop in which it was connected."""

    def __init__(self, gateway: Gateway, prefix: str, bond: Bond | None = None) -> None:
        keys = Keyspace(prefix)
        self._keys = keys
        self.gateway: Final = gateway
        self.allocations: Final = EtcdAllocationStore(gateway, keys, Binding(keys.history, bond))
        self.directory: Final = EtcdDirectory(gateway, keys)
        self.urgency: Final = EtcdUrgencyBoard(gateway, keys)
        self.histories: Final = EtcdHistoryStore(gateway, keys)
        self.marks: Final = EtcdMarkStore(gateway, keys)

    @property
    def seen(self) -> Seen:
        return self.gateway.seen

    def allocations_in(self, recovering: History) -> EtcdAllocationStore:
        """For a recovery, which alone writes documents until it has ended."""
        return EtcdAllocationStore(self.gateway, self._keys, Binding(self._keys.history, recovering=recovering))

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str],
        *,
        prefix: str = "/regionquota/",
        timeout_s: float = 2.0,
        silence_s: float = 10.0,
        ca_file: Path | None = None,
        cert_file: Path | None = None,
        key_file: Path | None = None,
        server_name: str | None = None,
        bond: Bond | None = None,
    ) -> Self:
        """Asks etcd nothing yet. `endpoints` are `host:port`, `timeout_s` is the deadline of every single call, and
        a watch that heard nothing for `silence_s` ends. `bond`: see `Binding`. Raises `ConfigError` for files that
        cannot be read.
        """
        tls = read_tls(ca_file, cert_file, key_file, server_name)
        channels = [open_channel(endpoint, tls) for endpoint in endpoints]
        seen = None if bond is None else bond.seen
        return cls(Gateway(channels, timeout_s=timeout_s, silence_s=silence_s, seen=seen), prefix, bond)

    async def reach(self) -> None:
        """Raises `EtcdUnavailable` if the next member to be asked does not answer; another one is asked then."""
        await self.gateway.get(self._keys.history, regardless=True)

    async def close(self) -> None:
        """Calls under way raise `EtcdUnavailable`, and so do later ones. Sessions are left to their leases."""
        await self.gateway.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
