from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from regionquota.embedded import ProxyControl, TcpProxy
from regionquota.errors import EtcdUnavailable

Client = TestClient[web.Request, web.Application]


class Etcd:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken = False

    async def stop(self) -> None:
        self.calls.append("stop")

    async def start(self) -> None:
        if self.broken:
            raise EtcdUnavailable("etcd ended with 1 before it answered")
        self.calls.append("start")


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


@pytest.fixture
def proxies() -> dict[str, TcpProxy]:
    return {"eu": TcpProxy("127.0.0.1", 2379, 15001), "us": TcpProxy("127.0.0.1", 2379, 15002)}


@pytest.fixture
async def http(proxies: dict[str, TcpProxy], etcd: Etcd) -> AsyncIterator[Client]:
    app = ProxyControl(proxies, stop_etcd=etcd.stop, start_etcd=etcd.start).app()
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_proxies_are_listed(http: Client) -> None:
    listed = (await (await http.get("/proxies")).json())["proxies"]
    assert ["eu", "us"] == [entry["name"] for entry in listed]
    assert ("127.0.0.1:15001", "127.0.0.1:2379", False) == tuple(listed[0][key] for key in ("listen", "target", "cut"))


async def test_one_proxy_is_cut_and_healed(http: Client, proxies: dict[str, TcpProxy]) -> None:
    assert (await (await http.post("/proxies/eu/cut")).json())["cut"]
    assert [True, False] == [proxy.is_cut for proxy in proxies.values()]
    await http.post("/proxies/eu/heal")
    assert not proxies["eu"].is_cut


async def test_a_cut_may_reset(http: Client) -> None:
    answer = await http.post("/proxies/eu/cut", json={"reset": True})
    assert "reset" == (await answer.json())["flow"]


async def test_a_delay_is_set(http: Client, proxies: dict[str, TcpProxy]) -> None:
    assert 200 == (await http.post("/proxies/us/delay", json={"seconds": 0.05})).status
    assert 0.05 == proxies["us"].delay_seconds


@pytest.mark.parametrize("body", ["", "{}", '{"seconds": -1}', '{"seconds": "1"}', '{"seconds": NaN}', "[]", "{"])
async def test_a_delay_that_is_none_is_a_problem(http: Client, body: str) -> None:
    answer = await http.post("/proxies/us/delay", data=body)
    assert (400, "application/problem+json") == (answer.status, answer.content_type)


@pytest.mark.parametrize("action", ["cut", "heal", "delay"])
async def test_an_unknown_proxy_is_a_problem(http: Client, action: str) -> None:
    answer = await http.post(f"/proxies/mars/{action}", json={})
    assert (404, "application/problem+json") == (answer.status, answer.content_type)
    assert "unknown proxy mars: there are eu, us" == (await answer.json())["detail"]


async def test_etcd_can_be_unplugged(http: Client, etcd: Etcd) -> None:
    await http.post("/etcd/stop")
    await http.post("/etcd/start")
    assert ["stop", "start"] == etcd.calls


async def test_an_etcd_that_does_not_start_is_a_problem_with_its_last_words(http: Client, etcd: Etcd) -> None:
    etcd.broken = True
    answer = await http.post("/etcd/start")
    assert (503, "application/problem+json") == (answer.status, answer.content_type)
    assert "etcd ended with 1 before it answered" == (await answer.json())["detail"]
