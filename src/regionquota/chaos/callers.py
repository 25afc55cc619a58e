"""Services that use a region over HTTP, repeat what was not answered, and write down all of it."""

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aiohttp

from regionquota.chaos.history import Answer, Ask, History, Op
from regionquota.core.quota import QuotaKey, Region

CALL_TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 0.2
"""Before the same is asked again."""
TTL_S: Final = 30
ABANDONED_TTL_S: Final = 2
ABANDONED: Final = 0.05
"""Share of holds that nobody settles: they end by themselves."""
RELEASED: Final = 0.25
STARTED: Final = 0.2
"""Share of the others that are started before they are settled: these do not end by themselves."""
WAITING: Final = 0.1
WAIT_MS: Final = 500
"""Share of reserves that wait for room, and for how long."""
LARGEST: Final = 4
KEPT: Final = 4
"""Committed reservations that a caller keeps before it gives the oldest back."""
BUSY_S: Final = 0.05
IDLE_S: Final = 0.4
SWING_S: Final = 4.0
"""How long one region is the busy one: demand moves, and slices after it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One region as its callers see it."""

    region: Region
    urls: Sequence[str]


class Callers:
    """`start` before, `stop` after the faults. `busy` names the one region with demand; None: they take turns."""

    def __init__(self, targets: Sequence[Target], keys: Sequence[QuotaKey], *, per_region: int, seed: int) -> None:
        self.history = History()
        self.busy: Region | None = None
        self._targets = targets
        self._keys = keys
        self._per_region = per_region
        self._random = random.Random(seed)  # noqa: S311 - which amounts are asked for is no secret
        self._numbers = itertools.count(1)
        self._stopping = False
        self._give_up_at = float("inf")
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
        )
        for number in range(self._per_region):
            for target in self._targets:
                caller = _Caller(self, target, self._keys[number % len(self._keys)], self._random.random())
                self._tasks.append(asyncio.create_task(caller.work()))

    async def stop(self, patience_s: float) -> None:
        """Let everybody settle and return what they have; what is not answered within `patience_s` stays unknown."""
        self._stopping = True
        self._give_up_at = time.time() + patience_s
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def try_once(self, target: Target, key: QuotaKey, within_s: float) -> bool:
        """Whether a reserve of one unit is granted within that time. It is released again."""
        self._give_up_at = float("inf")
        caller = _Caller(self, target, key, 0.0)
        by = time.time() + within_s
        while time.time() < by:
            op = caller.op(Ask.RESERVE, self.request(), 1)
            await caller.settle(op, "/v1/reservations", caller.reserve(op, TTL_S), by=by)
            if op.answer is Answer.DONE:
                await caller.release(op, by=by + CALL_TIMEOUT_S)
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def give_up_at(self) -> float:
        return self._give_up_at

    def request(self) -> str:
        return f"q{next(self._numbers)}"

    def is_busy(self, region: Region) -> bool:
        if self.busy is not None:
            return region == self.busy
        turn = int(time.monotonic() / SWING_S) % len(self._targets)
        return self._targets[turn].region == region

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session


class _Caller:
    def __init__(self, callers: Callers, target: Target, key: QuotaKey, seed: float) -> None:
        self._callers = callers
        self._target = target
        self._key = key
        self._random = random.Random(seed)  # noqa: S311
        self._kept: deque[Op] = deque()
        self._urls = itertools.cycle(target.urls)

    async def work(self) -> None:
        while not self._callers.stopping:
            await self._round()
            await asyncio.sleep(BUSY_S if self._callers.is_busy(self._target.region) else IDLE_S)
        while self._kept:
            await self._give_back()

    async def _round(self) -> None:
        if len(self._kept) >= KEPT:
            await self._give_back()
        abandoned = self._random.random() < ABANDONED
        hold = self.op(Ask.RESERVE, self._callers.request(), self._random.randint(1, LARGEST))
        body = self.reserve(hold, ABANDONED_TTL_S if abandoned else TTL_S)
        if self._random.random() < WAITING:
            body["wait_ms"] = WAIT_MS
        await self.settle(hold, "/v1/reservations", body)
        if hold.answer is not Answer.DONE:
            if self._kept and hold.answer is Answer.REFUSED and self._random.random() < 0.5:
                await self._give_back()
            return
        if abandoned:
            return
        if self._random.random() < STARTED:
            await self._start(hold)
        if self._random.random() < RELEASED:
            await self.release(hold)
            return
        commit = self.op(Ask.COMMIT, str(hold.reservation_id), self._random.randint(1, hold.amount))
        await self.settle(commit, f"/v1/reservations/{commit.name}/commit", {"actual_amount": commit.amount})
        if commit.answer is Answer.DONE:
            self._kept.append(commit)

    async def _start(self, hold: Op) -> None:
        start = self.op(Ask.START, str(hold.reservation_id), hold.amount)
        start.operation_id = f"work-{hold.name}"
        await self.settle(start, f"/v1/reservations/{start.name}/start", {"operation_id": start.operation_id})

    async def release(self, hold: Op, *, by: float | None = None) -> None:
        release = self.op(Ask.RELEASE, str(hold.reservation_id), hold.amount)
        await self.settle(release, f"/v1/reservations/{release.name}/release", {}, by=by)

    async def _give_back(self) -> None:
        commit = self._kept.popleft()
        give = self.op(Ask.ADJUST, self._callers.request(), commit.amount)
        give.gives_back = commit.name
        body = {**self._named(give), "delta": -give.amount, "reason": "given back"}
        await self.settle(give, "/v1/adjustments", body)

    def op(self, ask: Ask, name: str, amount: int) -> Op:
        op = Op(self._target.region, self._key, ask, name, amount, time.time())
        self._callers.history.ops.append(op)
        return op

    def reserve(self, op: Op, ttl_s: int) -> dict[str, Any]:
        return {**self._named(op), "amount": op.amount, "ttl_s": ttl_s}

    def _named(self, op: Op) -> dict[str, Any]:
        return {
            "request_id": op.name,
            "tenant_id": op.key.tenant,
            "resource": op.key.resource,
            "scope": op.key.scope,
        }

    async def settle(self, op: Op, path: str, body: Mapping[str, Any], *, by: float | None = None) -> None:
        """Ask until there is an answer, or nobody may wait any longer."""
        while True:
            answer, said = await self._send(op, path, body)
            if answer is Answer.UNKNOWN and op.doubts and op.ask is Ask.RESERVE:
                answer, said = await self._look(op)
            if answer is not Answer.UNKNOWN:
                op.answered_at = time.time()
                op.answer = answer
                if op.ask is Ask.RESERVE and answer is Answer.DONE:
                    op.reservation_id = said["reservation_id"]
                    op.expires_at = datetime.fromisoformat(said["expires_at"]).timestamp()
                return
            if time.time() > min(self._callers.give_up_at, float("inf") if by is None else by):
                return
            await asyncio.sleep(PAUSE_S)

    async def _look(self, op: Op) -> tuple[Answer, Mapping[str, Any]]:
        """What became of it? That it is not there says nothing: it may be under way."""
        params = {"tenant_id": op.key.tenant, "request_id": op.name}
        try:
            async with self._callers.session.get(f"{next(self._urls)}/v1/reservations", params=params) as response:
                said = await response.json(content_type=None)
                return (Answer.DONE if response.status == 200 else Answer.UNKNOWN), said
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return Answer.UNKNOWN, {}

    async def _send(self, op: Op, path: str, body: Mapping[str, Any]) -> tuple[Answer, Mapping[str, Any]]:
        try:
            async with self._callers.session.post(next(self._urls) + path, json=body) as response:
                said = await response.json(content_type=None)
                status = response.status
        except aiohttp.ClientConnectorError:
            return Answer.UNKNOWN, {}  # it was not sent
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            op.doubts += 1
            return Answer.UNKNOWN, {}
        if status in {200, 201}:
            return Answer.DONE, said
        if status >= 500:
            op.doubts += 1
            return Answer.UNKNOWN, {}
        return Answer.REFUSED, said
