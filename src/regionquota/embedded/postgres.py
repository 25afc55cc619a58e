"""Postgres from a wheel, as a child process."""

import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import asyncpg

from regionquota.embedded.cluster import prepare, settle
from regionquota.embedded.install import postgres_programs
from regionquota.embedded.ports import LOOPBACK, free_port, require_free
from regionquota.embedded.process import Child
from regionquota.embedded.server import Server
from regionquota.errors import StoreUnavailable

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fsync": "on",
        "synchronous_commit": "on",
        "shared_buffers": "64MB",
        "max_connections": "100",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "idle_in_transaction_session_timeout": "5s",
        "unix_socket_directories": "",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] ",
    }
)


class EmbeddedPostgres(Server):
    """A cluster in `data_dir`, made on the first start, listening on loopback only.

    Whoever can connect to 127.0.0.1 on this machine is superuser (trust authentication): for development and tests.
    `port` 0 chooses one at the first start and keeps it for the life of this object. `settings` overrides SETTINGS.
    As root it runs as another user: see `regionquota.embedded.install` for what that asks of `data_dir`.
    """

    name = "Postgres"
    unavailable = StoreUnavailable

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        programs: Path | None = None,
    ) -> None:
        super().__init__()
        self.data_dir = data_dir.resolve()
        self.port = port
        self.log_path = log_path or self.data_dir.with_name(self.data_dir.name + ".log")
        self._settings = {**SETTINGS, **(settings or {})}
        self._programs = programs

    @property
    def dsn(self) -> str:
        """Known before the first start only if the port was given."""
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    async def _prepare(self) -> Child:
        await settle(self.data_dir)
        self.port = self.port or free_port()
        require_free(self.port, self.name)
        installation = await prepare(self.data_dir, self._programs or postgres_programs())
        command = [str(installation.programs / "postgres"), "-D", str(self.data_dir)]
        for name, value in {**self._settings, "listen_addresses": LOOPBACK, "port": str(self.port)}.items():
            command += ["-c", f"{name}={value}"]
        return Child(
            self.name,
            command,
            output=self.log_path,
            user=installation.user,
            stop_signal=signal.SIGINT,  # fast shutdown: open sessions are ended, not waited for
            death_signal=signal.SIGQUIT,  # immediate shutdown: takes the backends along, which SIGKILL cannot
        )

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.dsn, ssl=False)
        except (asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):  # starting up, or recovering
            return False
        await connection.close()
        return True

    async def kill(self, *, hard: bool = False) -> None:
        """A crash: immediate shutdown, or SIGKILL to the postmaster if `hard`. The next start recovers.

        Returns when all its processes are gone (elsewhere than on Linux: when the postmaster is).
        """
        if self.running:
            self._current.send(signal.SIGKILL if hard else signal.SIGQUIT)
            await self._current.wait()
            await settle(self.data_dir)
