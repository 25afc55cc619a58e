"""How long a jump of demand waits that the idle slice of another region has to serve, with etcd far from everybody."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from regionquota.bench.load import Measured
from regionquota.bootstrap.operator import Operator, operator
from regionquota.client import Client, Denied
from regionquota.config import Config, load
from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.rebalancing import Policy
from regionquota.dev import Options as DevOptions
from regionquota.dev import Stack
from regionquota.errors import RegionQuotaError
from regionquota.limits import MAX_LIMITS, LimitWord, put_limits
from regionquota.regions import set_weight

IDLE: Final = "eu"
NEEDY: Final = "us"
REGIONS: Final = (IDLE, NEEDY, "ap")
WEIGHTS: Final = {IDLE: 1_000_000, NEEDY: 1, "ap": 1}
"""So that what nobody asks for lies in one region, but for the pool."""
RESOURCE: Final = "vcpu"
LIMIT: Final = 1000
JUMP: Final = LIMIT // 2
OWNED: Final = int(LIMIT * (1 - 2 * Policy().pool_share))
"""What the idle region owns before any jump, at least."""
ROUND_TRIPS: Final = 3
ALLOWANCE_MS: Final = 100
"""A jump is to be served within so many round trips, and this."""
APART_S: Final = 0.5
"""Between two jumps: each is served for itself."""
SETTLED_WITHIN_S: Final = 90.0
LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class JumpOptions:
    """`wait_ms` is how long a caller waits for room before it is denied."""

    jumps: int = 50
    rtt_ms: int = 100
    wait_ms: int = 5000

    @property
    def bound_ms(self) -> int:
        return ROUND_TRIPS * self.rtt_ms + ALLOWANCE_MS


@dataclass(frozen=True, slots=True)
class JumpResult:
    """`denied` were not served while their caller waited; `waits` are those of the others."""

    options: JumpOptions
    waits: Measured
    denied: int

    @property
    def within(self) -> int:
        return sum(1000 * one <= self.options.bound_ms for one in self.waits.latencies_s)

    def plain(self) -> dict[str, Any]:
        options, waits = self.options, self.waits
        return {
            "rtt_ms": options.rtt_ms,
            "bound_ms": options.bound_ms,
            "jumps": options.jumps,
            "served": len(waits.latencies_s),
            "within_bound": self.within,
            "served_ms": {f"p{percent}": round(waits.percentile_ms(percent), 1) for percent in (50, 90, 99)}
            | {"max": round(1000 * max(waits.latencies_s, default=0.0), 1)},
            "served_round_trips_p50": round(waits.percentile_ms(50) / options.rtt_ms, 2) if options.rtt_ms else None,
        }


class Jumps:
    """`say` hears what is under way."""

    def __init__(self, options: JumpOptions, base: Config, scratch: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._base = base
        self._scratch = scratch
        self._say = say

    async def run(self) -> JumpResult:
        """Raises `RegionQuotaError` if the deployment does not come to where the jumps begin."""
        options = self._options
        stack = Stack(DevOptions(self._scratch / "data", REGIONS, self._base, etcd_rtt_ms=options.rtt_ms))
        keys = [QuotaKey(f"jump-{number}", RESOURCE) for number in range(1, options.jumps + 1)]
        async with (
            stack.running(self._say),
            operator(load(stack.deployment_file, {})) as etcd,
            Client(stack.servers[IDLE]) as idle,
            Client(stack.servers[NEEDY]) as needy,
        ):
            self._say(f"setting {len(keys)} quotas of {LIMIT}, which both regions use, and {IDLE} owns")
            await self._set(etcd, keys)
            await asyncio.gather(*(_use(client, key) for key in keys for client in (idle, needy)))
            await self._settle(etcd, keys)
            return await self._jump(needy, keys)

    async def _set(self, etcd: Operator, keys: Sequence[QuotaKey]) -> None:
        while not WEIGHTS.keys() <= (await etcd.directory.regions()).keys():  # noqa: ASYNC110 - etcd does not tell
            await asyncio.sleep(LOOK_S)
        for region, weight in WEIGHTS.items():
            await set_weight(etcd.directory, region, weight)
        words = [LimitWord(key, LimitSource.PLAN, VersionedLimit(LIMIT, 1), Kind.ALLOCATED) for key in keys]
        for start in range(0, len(words), MAX_LIMITS):
            await put_limits(etcd.allocations, words[start : start + MAX_LIMITS])

    async def _settle(self, etcd: Operator, keys: Sequence[QuotaKey]) -> None:
        """Until rounds have moved what nobody uses."""
        wanted = set(keys)
        until = time.monotonic() + SETTLED_WITHIN_S
        while True:
            _, documents = await etcd.allocations.list()
            open_ = [
                one.key
                for one in documents
                if one.key in wanted
                and one.allocation is not None
                and (one.allocation.slice_of(IDLE) < OWNED or one.allocation.moves)
            ]
            if not open_:
                return
            if time.monotonic() > until:
                raise RegionQuotaError(f"{IDLE} did not come to own {OWNED} of {open_[0]} in {SETTLED_WITHIN_S:g} s")
            await asyncio.sleep(LOOK_S)

    async def _jump(self, needy: Client, keys: Sequence[QuotaKey]) -> JumpResult:
        options, waits, denied = self._options, Measured(), 0
        for number, key in enumerate(keys, 1):
            if number % 10 == 1:
                self._say(f"jump {number} of {len(keys)}")
            await asyncio.sleep(APART_S)
            began = time.perf_counter()
            try:
                await needy.reserve(key.tenant, key.resource, JUMP, wait_ms=options.wait_ms)
            except Denied:
                denied += 1
            else:
                waits.latencies_s.append(time.perf_counter() - began)
        return JumpResult(options, waits, denied)


async def _use(client: Client, key: QuotaKey) -> None:
    """A unit, for a moment: the region has used the quota, and is at rest."""
    await client.release(await client.reserve(key.tenant, key.resource, 1, wait_ms=5000))
