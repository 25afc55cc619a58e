"""One request, to any of several servers of a region, until one answers or the time is up."""

import asyncio
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import aiohttp

from regionquota.client.errors import Unavailable

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between two rounds over all servers: doubled each time, less a random half."""
AVOIDED_FOR_S: Final = 1.0
"""A server that failed is asked last for so long."""
REQUEST_TIMEOUT: Final = 408
"""The server has not got the request whole."""


class Transport:
    """Belongs to the event loop in which it is first used. Requests must be safe to repeat.

    A tenant's requests prefer one server, which is fastest: servers remember the rows they work on.
    """

    def __init__(
        self, urls: Sequence[str], *, attempt_s: float, connections: int, headers: Mapping[str, str] | None
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._attempt_s = attempt_s
        self._connections = connections
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._avoided: dict[str, float] = {}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, path: str, body: bytes | None, *, affinity: str, deadline_s: float, wait_s: float = 0.0
    ) -> tuple[int, bytes]:
        """Status below 500, and the answer. `wait_s`: so much longer the server may take for it.

        Raises `Unavailable` when `deadline_s` and `wait_s` have passed.
        """
        now = asyncio.get_running_loop().time
        ends = now() + deadline_s + wait_s
        maybe_done, said, pause = False, "there was no time to ask", FIRST_PAUSE_S
        while True:
            for url in self._order(affinity, now()):
                left = min(self._attempt_s + wait_s, ends - now())
                if left <= 0:
                    raise Unavailable(f"no server answers {method} {path} in time: {said}", maybe_done=maybe_done)
                try:
                    status, answer = await self._send(method, url + path, body, left)
                except aiohttp.ClientConnectorError as error:
                    said = str(error)
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    maybe_done, said = True, f"{url}: {str(error) or type(error).__name__}"
                else:
                    if status < 500 and status != REQUEST_TIMEOUT:
                        self._avoided.pop(url, None)
                        return status, answer
                    maybe_done, said = True, f"{url} answers {status}"
                self._avoided[url] = now() + AVOIDED_FOR_S
            await asyncio.sleep(min(pause * random.uniform(0.5, 1.0), max(0.0, ends - now())))  # noqa: S311
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send(self, method: str, url: str, body: bytes | None, within_s: float) -> tuple[int, bytes]:
        async with (
            asyncio.timeout(within_s),
            self._opened().request(method, url, data=body, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.read()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                # Deadlines are our own: aiohttp's may take a cancellation for themselves.
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
            )
        return self._session

    def _order(self, affinity: str, now: float) -> Iterator[str]:
        """Those that failed a moment ago come last."""
        first = zlib.crc32(affinity.encode()) % len(self._urls)
        turn = self._urls[first:] + self._urls[:first]
        yield from sorted(turn, key=lambda url: self._avoided.get(url, 0.0) > now)
