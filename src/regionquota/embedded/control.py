"""A small HTTP endpoint to break things with while `regionquota dev` runs: see `ProxyControl`."""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from regionquota.embedded.proxy import TcpProxy
from regionquota.errors import RegionQuotaError


class ProxyControl:
    """Serve `app()` on loopback only: it asks nobody who they are.

    GET /proxies · POST /proxies/{name}/cut, optionally {"reset": true} · POST /proxies/{name}/heal ·
    POST /proxies/{name}/delay {"seconds": 0.05} · POST /etcd/stop · POST /etcd/start
    """

    def __init__(
        self,
        proxies: Mapping[str, TcpProxy],
        *,
        stop_etcd: Callable[[], Awaitable[None]],
        start_etcd: Callable[[], Awaitable[None]],
    ) -> None:
        self._proxies = proxies
        self._stop_etcd = stop_etcd
        self._start_etcd = start_etcd

    def app(self) -> web.Application:
        app = web.Application(middlewares=[_problems])
        app.add_routes(
            [
                web.get("/proxies", self._list),
                web.post("/proxies/{name}/cut", self._cut),
                web.post("/proxies/{name}/heal", self._heal),
                web.post("/proxies/{name}/delay", self._delay),
                web.post("/etcd/stop", self._etcd_stop),
                web.post("/etcd/start", self._etcd_start),
            ]
        )
        return app

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response({"proxies": [_state(name, proxy) for name, proxy in self._proxies.items()]})

    async def _cut(self, request: web.Request) -> web.Response:
        name, proxy = self._named(request)
        reset = (await _body(request)).get("reset", False)
        if not isinstance(reset, bool):
            raise _Problem(400, f"reset must be true or false, got {json.dumps(reset)}")
        proxy.cut(reset=reset)
        return web.json_response(_state(name, proxy))

    async def _heal(self, request: web.Request) -> web.Response:
        name, proxy = self._named(request)
        proxy.heal()
        return web.json_response(_state(name, proxy))

    async def _delay(self, request: web.Request) -> web.Response:
        name, proxy = self._named(request)
        seconds = (await _body(request)).get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise _Problem(400, f"seconds must be a number, 0 or more, got {json.dumps(seconds)}")
        proxy.delay(seconds)
        return web.json_response(_state(name, proxy))

    async def _etcd_stop(self, _request: web.Request) -> web.Response:
        await self._stop_etcd()
        return web.json_response({"etcd": "stopped"})

    async def _etcd_start(self, _request: web.Request) -> web.Response:
        await self._start_etcd()
        return web.json_response({"etcd": "started"})

    def _named(self, request: web.Request) -> tuple[str, TcpProxy]:
        name = request.match_info["name"]
        if name not in self._proxies:
            raise _Problem(404, f"unknown proxy {name}: there are {', '.join(self._proxies) or 'none'}")
        return name, self._proxies[name]


class _Problem(Exception):  # noqa: N818 - it is one of RFC 9457
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@web.middleware
async def _problems(request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except _Problem as problem:
        return _problem_response(problem.status, str(problem))
    except RegionQuotaError as error:  # etcd would not start: its last words are in the message
        return _problem_response(503, str(error))
    return response


def _problem_response(status: int, detail: str) -> web.Response:
    return web.json_response(
        {"status": status, "detail": detail}, status=status, content_type="application/problem+json"
    )


async def _body(request: web.Request) -> dict[str, Any]:
    text = await request.text()
    if not text:
        return {}
    try:
        body = json.loads(text)
    except ValueError as error:
        raise _Problem(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _Problem(400, f"the body must be an object, got {text[:100]}")
    return body


def _state(name: str, proxy: TcpProxy) -> dict[str, Any]:
    return {
        "name": name,
        "listen": proxy.endpoint,
        "target": f"{proxy.target_host}:{proxy.target_port}",
        "flow": proxy.flow.value,
        "cut": proxy.is_cut,
        "delay_seconds": proxy.delay_seconds,
        "bytes_to_target": proxy.bytes_to_target,
        "bytes_to_client": proxy.bytes_to_client,
    }
