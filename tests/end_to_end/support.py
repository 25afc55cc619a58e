"""Driving a real deployment: over HTTP, through its command line, and by looking into etcd and the databases."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from regionquota.audit import Verdict, audit
from regionquota.bootstrap.operator import Operator
from regionquota.config import Config
from regionquota.errors import Unavailable

PROGRAM = [sys.executable, "-m", "regionquota"]
numbers = itertools.count()


async def run(*arguments: str, config: Path | None = None) -> tuple[int, str, str]:
    """A command of ours: exit status, standard output, standard error."""
    env = {**os.environ, "COLUMNS": "200"}
    if config is not None:
        env["REGIONQUOTA_CONFIG"] = str(config)
    child = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await asyncio.wait_for(child.communicate(), 90)
    assert child.returncode is not None
    return child.returncode, stdout.decode(), stderr.decode()


async def eventually(look: Callable[[], Awaitable[bool]], within_s: float = 20.0, what: str = "it") -> None:
    """`look` until it is true. What does not answer yet is not true yet."""
    deadline = time.monotonic() + within_s

    async def is_true() -> bool:
        try:
            return await look()
        except Unavailable:
            return False

    while not await is_true():
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s"
        await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Deployment:
    file: Path
    config: Config
    http: aiohttp.ClientSession
    operator: Operator

    def url(self, region: str) -> str:
        return self.config.deployment.regions[region].url

    async def call(self, method: str, region: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        async with self.http.request(method, f"{self.url(region)}{path}", json=body) as answer:
            return answer.status, await answer.json(content_type=None)

    async def reserve(
        self, region: str, tenant: str, amount: int, *, resource: str = "vcpu"
    ) -> tuple[int, dict[str, Any]]:
        body = {"request_id": f"r{next(numbers)}", "tenant_id": tenant, "resource": resource, "amount": amount}
        return await self.call("POST", region, "/v1/reservations", body)

    async def use(self, region: str, tenant: str, amount: int) -> bool:
        """Reserve and commit; False: denied."""
        status, held = await self.reserve(region, tenant, amount)
        assert status in (201, 429), held
        if status == 201:
            status, held = await self.call("POST", region, f"/v1/reservations/{held['reservation_id']}/commit")
            assert status == 200, held
            return True
        return False

    async def give_back(self, region: str, tenant: str, amount: int) -> None:
        body = {
            "request_id": f"a{next(numbers)}",
            "tenant_id": tenant,
            "resource": "vcpu",
            "delta": -amount,
            "reason": "given back",
        }
        status, answer = await self.call("POST", region, "/v1/adjustments", body)
        assert status == 200, answer

    async def set_limit(self, tenant: str, limit: int, version: int = 1, *, region: str = "eu") -> dict[str, Any]:
        path = f"/v1/tenants/{tenant}/quotas/vcpu"
        status, answer = await self.call("PUT", region, path, {"limit": limit, "version": version})
        assert status == 200, answer
        return answer

    async def control(self, path: str) -> None:
        async with self.http.post(f"{self.config.deployment.proxies_url}{path}") as answer:
            assert answer.status == 200, await answer.text()

    async def pid(self, process: str) -> int:
        async with self.http.get(f"{self.config.deployment.proxies_url}/processes") as answer:
            return int((await answer.json())[process])

    async def frozen(self, region: str) -> bool:
        return (await self.operator.directory.regions())[region].record.frozen is not None

    async def is_sound(self) -> None:
        findings = [one async for one in audit(self.operator.allocations, self.operator.stores)]
        assert [] == [one for one in findings if one.verdict is not Verdict.HOLDS]


@asynccontextmanager
async def dev(data_dir: Path, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """A running `regionquota dev`; at the end it is asked to stop, and must."""
    child = await asyncio.create_subprocess_exec(
        *PROGRAM, "dev", "--json", "--data-dir", str(data_dir), *options, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), 60)
        assert line, "dev ended before it was ready"
        yield child, json.loads(line)
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(child.wait(), 60)


@asynccontextmanager
async def begun(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command under way, with its output in pipes."""
    child = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def read_until(child: asyncio.subprocess.Process, what: str) -> None:
    assert child.stdout is not None
    while what not in (line := (await asyncio.wait_for(child.stdout.readline(), 60)).decode()):
        assert line, f"it ended without saying {what}"
