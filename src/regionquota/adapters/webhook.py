"""Posts events to somebody else's URL, beside everything else: whoever sends waits for nothing."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from stamina import AsyncRetryingCaller

MAX_WAITING: Final = 1_000
"""Events; further ones are dropped, and the log says so."""
ATTEMPTS: Final = 3
"""At one event, about 1 and 2 s apart."""

_log = structlog.get_logger(__name__)


class _UndeliveredError(Exception):
    """Worth another attempt."""


class Webhook:
    """Belongs to the event loop in which it is entered. `timeout_s` is the deadline of one attempt, and of what still
    waits at the end; `done` hears of each event "delivered", "failed" or "dropped".

    An event may arrive more than once, with one Idempotency-Key. The URL may hold a secret: only its host is shown.
    """

    def __init__(self, url: str, *, timeout_s: float, done: Callable[[str], None] = lambda _: None) -> None:
        self._url = url
        self._host = urlsplit(url).hostname
        self._timeout_s = timeout_s
        self._done = done
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(MAX_WAITING)
        self._again = AsyncRetryingCaller(attempts=ATTEMPTS, timeout=None, wait_initial=1.0, wait_max=5.0)

    async def __aenter__(self) -> Self:
        # aiohttp's own deadline may take our cancellation for itself, and sending would not end.
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._sending = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._waiting.join()
        except TimeoutError:
            _log.error("alerts are left undelivered at the end", host=self._host, waiting=self._waiting.qsize())
        finally:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            await self._session.close()

    def send(self, name: str, event: Mapping[str, Any]) -> None:
        """`name` becomes the Idempotency-Key."""
        try:
            self._waiting.put_nowait((name, msgspec.json.encode(event)))
        except asyncio.QueueFull:
            _log.error("an alert was dropped: too many are waiting", host=self._host, alert=name)
            self._done("dropped")

    async def _send_all(self) -> None:
        while True:
            name, body = await self._waiting.get()
            try:
                await self._again.on(_UndeliveredError)(self._post, name, body)
            except _UndeliveredError as error:
                _log.error("an alert was not delivered", host=self._host, alert=name, why=str(error))
                self._done("failed")
            else:
                self._done("delivered")
            finally:
                self._waiting.task_done()

    async def _post(self, name: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": name}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _UndeliveredError(type(error).__name__) from error
        if not 200 <= status < 300:
            raise _UndeliveredError(f"it answers {status}")
