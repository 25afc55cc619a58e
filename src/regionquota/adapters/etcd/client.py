"""What bootstrap makes: the ports over one connection to an etcd cluster."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from regionquota.adapters.etcd.allocations import EtcdAllocationStore
from regionquota.adapters.etcd.channel import open_channel, read_tls
from regionquota.adapters.etcd.directory import EtcdDirectory
from regionquota.adapters.etcd.gateway import Gateway
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.marks import EtcdMarkStore


class EtcdClient:
    """Belongs to the event loop in which it was connected."""

    def __init__(self, gateway: Gateway, prefix: str) -> None:
        keys = Keyspace(prefix)
        self.gateway: Final = gateway
        self.allocations: Final = EtcdAllocationStore(gateway, keys)
        self.directory: Final = EtcdDirectory(gateway, keys)
        self.marks: Final = EtcdMarkStore(gateway, keys)

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
    ) -> Self:
        """Asks etcd nothing yet. `endpoints` are `host:port`, `timeout_s` is the deadline of every single call, and
        a watch that heard nothing for `silence_s` ends. Raises `ConfigError` for files that cannot be read.
        """
        tls = read_tls(ca_file, cert_file, key_file, server_name)
        channels = [open_channel(endpoint, tls) for endpoint in endpoints]
        return cls(Gateway(channels, timeout_s=timeout_s, silence_s=silence_s), prefix)

    async def close(self) -> None:
        """Calls under way raise `EtcdUnavailable`, and so do later ones. Sessions are left to their leases."""
        await self.gateway.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
