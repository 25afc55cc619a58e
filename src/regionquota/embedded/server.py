"""What the embedded servers have in common."""

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from regionquota.embedded.process import Child
from regionquota.errors import Unavailable

_PROBE_SECONDS: Final = 1.0
_START_SECONDS: Final = 60.0
_BETWEEN_PROBES_SECONDS: Final = 0.02


class Server(ABC):
    """A program that can be started again and again on the same data and port."""

    name: ClassVar[str]
    unavailable: ClassVar[type[Unavailable]]
    stop_seconds: ClassVar[float] = 20.0

    def __init__(self) -> None:
        self._child: Child | None = None

    @abstractmethod
    async def _prepare(self) -> Child:
        """Check what can be checked, and say what to run."""

    @abstractmethod
    async def _answers(self) -> bool:
        """One probe. False, TimeoutError or OSError mean not yet."""

    async def start(self) -> None:
        """Returns when it answers. If it cannot, raises with what it said last, and leaves nothing running."""
        child = await self._prepare()
        await child.start()
        self._child = child
        try:
            await self._answering(child)
        except BaseException:  # cancellation too: a server half started is nobody's
            child.kill()
            await child.wait()
            raise

    async def _answering(self, child: Child) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not await self._probe():
                    if not child.running:
                        raise self.unavailable(
                            f"{self.name} ended with {child.exit_code} before it answered:\n{child.last_lines()}"
                        )
                    await asyncio.sleep(_BETWEEN_PROBES_SECONDS)
        except TimeoutError as error:
            raise self.unavailable(
                f"{self.name} does not answer after {_START_SECONDS:g} s:\n{child.last_lines()}"
            ) from error

    async def _probe(self) -> bool:
        try:
            return await asyncio.wait_for(self._answers(), _PROBE_SECONDS)
        except (OSError, TimeoutError):
            return False

    async def stop(self) -> None:
        """Politely, then by force. No effect when it is not running."""
        if self._child is not None and self._child.running:
            await self._child.stop(self.stop_seconds)

    async def wait(self) -> int:
        """The exit code of the current run, when it ends: for a supervisor, awaited beside everything else."""
        return await self._current.wait()

    @property
    def _current(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._child

    @property
    def pid(self) -> int:
        return self._current.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.exit_code

    def last_lines(self, count: int = 20) -> str:
        return self._current.last_lines(count)
