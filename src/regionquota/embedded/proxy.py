"""A TCP proxy that can be cut: put one between a region and etcd, and the region has a partition.

Plain sockets and no streams: a transport would go on sending what it has buffered after the cut.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from regionquota.embedded.ports import LOOPBACK

_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_IN_FLIGHT: Final = 64  # per direction: with a delay, at most 4 MiB wait here and then reading stops
_LINGER_RESET: Final = struct.pack("ii", 1, 0)


class Flow(Enum):
    OPEN = "open"
    BLACK_HOLE = "black_hole"
    RESET = "reset"


class Way(Enum):
    TO_TARGET = "to_target"
    TO_CLIENT = "to_client"


class Inspector(Protocol):
    """Looks at one connection. Chunks are as they come: a message may begin in one and end in another."""

    def passes(self, way: Way, data: bytes) -> bool:
        """False: neither this chunk nor anything after it arrives, and both ends are closed."""
        ...


class TcpProxy:
    """`listen_port` 0 is chosen at the first start and kept for the life of this object.

    `inspect` makes an inspector for each connection. `target_port` may be changed, for connections to come.
    """

    def __init__(
        self,
        target_host: str,
        target_port: int,
        listen_port: int = 0,
        *,
        inspect: Callable[[], Inspector] | None = None,
    ) -> None:
        self._inspect = inspect
        self.target_host = target_host
        self.target_port = target_port
        self.listen_port = listen_port
        self.delay_seconds = 0.0
        self._passed = dict.fromkeys(Way, 0)
        self._flow = Flow.OPEN
        self._freed = asyncio.Event()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._relays: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self.listen_port}"

    @property
    def flow(self) -> Flow:
        return self._flow

    @property
    def is_cut(self) -> bool:
        return self._flow is not Flow.OPEN

    @property
    def bytes_to_target(self) -> int:
        return self._passed[Way.TO_TARGET]

    @property
    def bytes_to_client(self) -> int:
        return self._passed[Way.TO_CLIENT]

    async def start(self) -> None:
        self._listener = socket.create_server((LOOPBACK, self.listen_port), backlog=128)
        self._listener.setblocking(False)
        self.listen_port = self._listener.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def stop(self) -> None:
        tasks = [*self._connections, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def cut(self, *, reset: bool = False) -> None:
        """Partition: from now on not a byte passes, and new connections are accepted and hang.

        Bytes under way in the proxy are lost. With `reset`, connections old and new are reset instead.
        """
        self._flow = Flow.RESET if reset else Flow.BLACK_HOLE
        if reset:
            self._freed.set()
        else:
            self._freed.clear()
        for relay in self._relays:
            relay.cancel()

    def heal(self) -> None:
        """Connections caught by the cut are closed, so that clients dial again."""
        self._flow = Flow.OPEN
        self._freed.set()

    def delay(self, seconds: float) -> None:
        """Add latency one way, each way: a round trip takes twice as much longer. Bandwidth is not limited."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"delay must be a finite number of seconds, 0 or more, got {seconds}")
        self.delay_seconds = seconds

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:  # out of file descriptors, or the client gave up already
                await asyncio.sleep(0.05)
                continue
            connection = asyncio.create_task(self._serve(client))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

    async def _serve(self, client: socket.socket) -> None:
        target = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        target.setblocking(False)
        for end in (client, target):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if not self.is_cut:
                await self._until_cut(client, target)
            if self._flow is Flow.BLACK_HOLE:
                await self._freed.wait()
        finally:
            for end in (client, target):
                if self._flow is Flow.RESET:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
                end.close()

    async def _until_cut(self, client: socket.socket, target: socket.socket) -> None:
        relay = asyncio.create_task(self._relay(client, target))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        try:
            await asyncio.wait([relay])
        finally:
            relay.cancel()
            await asyncio.wait([relay])  # a socket may be closed only when nothing waits for it any more
        if not relay.cancelled():
            relay.result()

    async def _relay(self, client: socket.socket, target: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().sock_connect(target, (self.target_host, self.target_port))
            inspector = None if self._inspect is None else self._inspect()
            async with asyncio.TaskGroup() as tasks:
                for way, source, sink in (Way.TO_TARGET, client, target), (Way.TO_CLIENT, target, client):
                    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_IN_FLIGHT)
                    tasks.create_task(self._receive(source, under_way))
                    tasks.create_task(self._deliver(under_way, sink, way, inspector))
        except* OSError:
            pass  # either end broke it, or the target refused: both ends are closed now

    async def _receive(self, source: socket.socket, under_way: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        data = b"to begin with"
        while data:
            data = await loop.sock_recv(source, _CHUNK_BYTES)
            await under_way.put((loop.time() + self.delay_seconds, data))

    async def _deliver(
        self,
        under_way: asyncio.Queue[tuple[float, bytes]],
        sink: socket.socket,
        way: Way,
        inspector: Inspector | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await under_way.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if self.is_cut:  # our cancellation is on its way
                return
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            if inspector is not None and not inspector.passes(way, data):
                raise ConnectionAbortedError
            await loop.sock_sendall(sink, data)
            self._passed[way] += len(data)
