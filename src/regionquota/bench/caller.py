"""HTTP/1.1 calls at the least cost to the machine that is measured: keep-alive, one at a time, answers barely read."""

import asyncio
from typing import Final, cast

_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"Content-Length: "


class Caller(asyncio.Protocol):
    """One connection to `authority` (host:port), the servers' number `server`.

    Understands what our own servers answer, nothing more.
    """

    def __init__(self, authority: str, server: int) -> None:
        self.server = server
        self._authority = authority.encode()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._read = b""

    @classmethod
    async def connect(cls, authority: str, server: int = 0) -> "Caller":
        host, _, port = authority.rpartition(":")
        _, caller = await asyncio.get_running_loop().create_connection(lambda: cls(authority, server), host, int(port))
        return caller

    def post(self, path: bytes, body: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        """Status and body of the answer. Raises `ConnectionError` when the connection ends instead."""
        assert self._transport is not None
        assert self._answer is None, "one call at a time"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (path, self._authority, len(body), body)
        )
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._read += data
        head = self._read.find(_END_OF_HEAD)
        if head < 0:
            return
        at = self._read.index(_LENGTH) + len(_LENGTH)
        end = head + len(_END_OF_HEAD) + int(self._read[at : self._read.index(b"\r", at)])
        if len(self._read) < end:
            return
        status, body, self._read = int(self._read[9:12]), self._read[head + len(_END_OF_HEAD) : end], b""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result((status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))
