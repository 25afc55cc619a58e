import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from regionquota.embedded import TcpProxy
from regionquota.embedded.proxy import Way

QUIET_SECONDS = 0.2


class Line:
    """A client of the proxy, in the reader's words."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, text: bytes) -> None:
        self.writer.write(text)
        await self.writer.drain()

    async def hear(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), 5)

    async def hears_nothing(self) -> bool:
        try:
            await asyncio.wait_for(self.reader.read(1), QUIET_SECONDS)
        except TimeoutError:
            return True
        return False

    async def is_closed(self) -> bool:
        try:
            return b"" == await asyncio.wait_for(self.reader.read(), 5)
        except ConnectionError:
            return True


class Dialler:
    def __init__(self) -> None:
        self.lines: list[Line] = []

    async def __call__(self, proxy: TcpProxy) -> Line:
        self.lines.append(Line(*await asyncio.open_connection("127.0.0.1", proxy.listen_port)))
        return self.lines[-1]

    async def hang_up(self) -> None:
        for line in self.lines:
            line.writer.close()
        await asyncio.gather(*(line.writer.wait_closed() for line in self.lines), return_exceptions=True)


@pytest.fixture
async def dial() -> AsyncIterator[Dialler]:
    dialler = Dialler()
    yield dialler
    await dialler.hang_up()


@pytest.fixture
async def heard() -> list[bytes]:
    return []


@pytest.fixture
async def proxy(heard: list[bytes]) -> AsyncIterator[TcpProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                heard.append(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.stop()
    server.close()
    await server.wait_closed()


async def test_bytes_pass_both_ways_and_are_counted(proxy: TcpProxy, dial: Dialler) -> None:
    line = await dial(proxy)
    await line.say(b"hello")
    assert b"hello" == await line.hear(5)
    assert (5, 5) == (proxy.bytes_to_target, proxy.bytes_to_client)


async def test_megabytes_pass_in_order(proxy: TcpProxy, dial: Dialler) -> None:
    line = await dial(proxy)
    sent = b"".join(number.to_bytes(4, "big") for number in range(2_000_000))
    saying = asyncio.create_task(line.say(sent))
    assert sent == await line.hear(len(sent))
    await saying


async def test_the_end_of_one_direction_is_passed_on(proxy: TcpProxy, dial: Dialler) -> None:
    line = await dial(proxy)
    await line.say(b"last words")
    line.writer.write_eof()
    assert b"last words" == await asyncio.wait_for(line.reader.read(), 5)


async def test_a_cut_swallows_what_is_said(proxy: TcpProxy, dial: Dialler, heard: list[bytes]) -> None:
    line = await dial(proxy)
    await line.say(b"before")
    await line.hear(6)
    proxy.cut()
    await line.say(b"after")
    assert await line.hears_nothing()
    assert [b"before"] == heard
    assert proxy.is_cut


async def test_a_cut_accepts_newcomers_and_lets_them_hang(proxy: TcpProxy, dial: Dialler) -> None:
    proxy.cut()
    line = await dial(proxy)
    await line.say(b"anybody?")
    assert await line.hears_nothing()


async def test_healing_closes_what_was_cut_and_serves_who_dials_again(
    proxy: TcpProxy, dial: Dialler, heard: list[bytes]
) -> None:
    old = await dial(proxy)
    await old.say(b"x")
    await old.hear(1)
    proxy.cut()
    newcomer = await dial(proxy)
    await newcomer.say(b"lost")
    proxy.heal()
    assert (True, True) == tuple(await asyncio.gather(old.is_closed(), newcomer.is_closed()))
    again = await dial(proxy)
    await again.say(b"again")
    assert b"again" == await again.hear(5)
    assert [b"x", b"again"] == heard


async def test_a_cut_by_reset_closes_at_once(proxy: TcpProxy, dial: Dialler) -> None:
    old = await dial(proxy)
    await old.say(b"x")
    await old.hear(1)
    proxy.cut(reset=True)
    assert await old.is_closed()
    assert await (await dial(proxy)).is_closed()


async def test_a_delay_is_added_each_way(proxy: TcpProxy, dial: Dialler) -> None:
    line = await dial(proxy)
    proxy.delay(0.1)
    started = asyncio.get_running_loop().time()
    await line.say(b"slow")
    await line.hear(4)
    assert 0.2 <= asyncio.get_running_loop().time() - started < 2


async def test_what_is_under_way_when_the_cut_comes_is_lost(proxy: TcpProxy, dial: Dialler, heard: list[bytes]) -> None:
    line = await dial(proxy)
    proxy.delay(0.1)
    await line.say(b"late")
    await asyncio.sleep(0.03)
    proxy.cut()
    await asyncio.sleep(0.2)
    assert [] == heard


async def test_a_sender_is_held_back_when_nobody_reads(dial: Dialler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        proxy = TcpProxy("127.0.0.1", deaf.getsockname()[1])
        await proxy.start()
        line = await dial(proxy)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.say(bytes(64 * 1024 * 1024)), 1)
        assert proxy.bytes_to_target < 16 * 1024 * 1024
        line.writer.transport.abort()
        await proxy.stop()


async def test_no_target_is_a_closed_connection(dial: Dialler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    proxy = TcpProxy("127.0.0.1", port)
    await proxy.start()
    assert await (await dial(proxy)).is_closed()
    await proxy.stop()


async def test_a_stopped_proxy_starts_again_on_its_port_also_when_cut(proxy: TcpProxy, dial: Dialler) -> None:
    endpoint = proxy.endpoint
    line = await dial(proxy)
    proxy.cut()
    await proxy.stop()
    assert await line.is_closed()
    proxy.heal()
    await proxy.start()
    assert endpoint == proxy.endpoint
    again = await dial(proxy)
    await again.say(b"hello")
    assert b"hello" == await again.hear(5)


class Censor:
    """Stops a connection at the first chunk towards the client that holds a word."""

    def __init__(self, word: bytes) -> None:
        self._word = word

    def passes(self, way: Way, data: bytes) -> bool:
        return way is not Way.TO_CLIENT or self._word not in data


async def test_an_inspector_closes_a_connection_at_what_must_not_pass(proxy: TcpProxy, dial: Dialler) -> None:
    censored = TcpProxy("127.0.0.1", proxy.listen_port, inspect=lambda: Censor(b"secret"))
    await censored.start()
    try:
        line = await dial(censored)
        await line.say(b"hello")
        assert b"hello" == await line.hear(5)
        await line.say(b"a secret")
        assert await line.is_closed()
    finally:
        await censored.stop()
