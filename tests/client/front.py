"""Stands between a client and a region server, and can lose what passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web
from tests.serving import serving


@dataclass
class Front:
    """`lose`: so many answers do not arrive, though the server has done what was asked. `refuse`: so many requests are
    answered 503, and the server hears nothing of them. While `hanging`, nothing is answered; `says` is answered to all.
    """

    target: str
    url: str = ""
    lose: int = 0
    refuse: int = 0
    hanging: bool = False
    says: str | None = None
    asked: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def before(cls, target: str) -> AsyncIterator[Self]:
        front = cls(target)
        async with aiohttp.ClientSession() as front._session, serving(front._pass) as front.url:
            yield front

    async def _pass(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.rel_url.path.rpartition('/')[2]}")
        if self.hanging:
            await asyncio.sleep(3600)
        if self.says is not None:
            return web.Response(text=self.says)
        if self.refuse:
            self.refuse -= 1
            return web.Response(status=503, text="no")
        body = await request.read()
        async with self._session.request(
            request.method, self.target + str(request.rel_url), data=body, headers={"Content-Type": "application/json"}
        ) as answer:
            raw = await answer.read()
        if self.lose:
            self.lose -= 1
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, body=raw, content_type=answer.content_type)
