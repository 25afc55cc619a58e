"""One scenario: a deployment of its own, callers, faults, and the verdict."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from regionquota.bootstrap.operator import Operator, operator
from regionquota.chaos.callers import Callers, Target
from regionquota.chaos.check import Failover
from regionquota.chaos.cluster import Cluster, Shape, Site
from regionquota.chaos.evidence import Revisions, Verdicts, judge, leave
from regionquota.chaos.history import Answer
from regionquota.core.quota import QuotaKey, Region
from regionquota.embedded import scratch_directory
from regionquota.errors import EtcdUnavailable, RegionQuotaError, Unavailable
from regionquota.regions import set_weight

KEYS: Final = (QuotaKey("acme", "vcpu"), QuotaKey("blue", "vcpu"))
LIMIT: Final = 24
"""Of each quota; two callers of it in each region want about as much alone, so that units move and some are denied."""
CALLERS: Final = 4
WARM_UP_S: Final = 3.0
DRAIN_S: Final = 20.0
LIVENESS_S: Final = 30.0
"""Within it a reserve has to be granted in each region again, once the faults are over."""
POLL_S: Final = 0.1
EVIDENCE: Final = "evidence"


class ChaosError(RegionQuotaError):
    """A scenario could not be carried out as it was meant: it proves nothing."""


@dataclass(slots=True)
class Stage:
    """What a scenario works with. `seconds` is how long its faults may take."""

    cluster: Cluster
    callers: Callers
    revisions: Revisions
    seconds: float
    seed: int
    undo: AsyncExitStack
    operator: Operator = field(init=False)
    failovers: dict[Region, Failover] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """What a scenario itself saw that must not be."""
    _ends: float | None = None

    def goes_on(self) -> bool:
        """True the first time, and until `seconds` have passed since then."""
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds
        return time.monotonic() < self._ends

    async def connect(self) -> None:
        """As an operator who begins now, and has seen nothing of etcd yet."""
        self.operator = await self.undo.enter_async_context(operator(self.cluster.deployment(), databases=True))

    @property
    def first(self) -> Site:
        return next(iter(self.cluster.sites.values()))

    async def favour(self, region: Region | None) -> None:
        """Let demand be there alone, and what nobody needs go there. None: everywhere, as at first."""
        self.callers.busy = region
        for name in self.cluster.sites:
            await set_weight(self.operator.directory, name, 100 if region in (None, name) else 0)

    async def until(self, what: str, look: Callable[[], Awaitable[bool]], within_s: float = 20.0) -> None:
        """Raises `ChaosError`. What does not answer is not so yet."""
        by = time.monotonic() + within_s
        while True:
            with suppress(Unavailable):
                if await look():
                    return
            if time.monotonic() > by:
                raise ChaosError(f"{what} did not happen within {within_s:g} s")
            await asyncio.sleep(POLL_S)

    async def is_frozen(self, region: Region, *, wanted: bool = True) -> bool:
        """Raises `EtcdUnavailable`."""
        return ((await self.operator.directory.regions())[region].record.frozen is not None) is wanted

    async def set_limit(self, site: Site, key: QuotaKey, limit: int, version: int = 1) -> None:
        """Raises `ChaosError`, `EtcdUnavailable`: it may be set or not."""
        url = f"{site.urls[0]}/v1/tenants/{key.tenant}/quotas/{key.resource}"
        body = {"limit": limit, "version": version}
        try:
            async with self.callers.session.put(url, json=body) as answer:
                said, status = await answer.text(), answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EtcdUnavailable(f"{url} does not answer") from error
        if status >= 500:
            raise EtcdUnavailable(said)
        if status != 200:
            raise ChaosError(f"the limit cannot be set: {said}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`shows` is one sentence."""

    name: str
    shows: str
    act: Callable[[Stage], Awaitable[None]]
    shape: Shape = field(default_factory=Shape)
    seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Result:
    """`error`: the scenario could not be carried out, which counts as a finding."""

    name: str
    seconds: float
    operations: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    repeats: int = 0
    lost_with_failover: int = 0
    revisions: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[str] = ()
    notes: Sequence[str] = ()
    error: str | None = None

    @property
    def ok(self) -> bool:
        return not self.findings and self.error is None

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.ok,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "unknown": self.unknown,
            "repeats": self.repeats,
            "lost_with_failover": self.lost_with_failover,
            "revisions": self.revisions,
            "faults": dict(self.faults),
            **self.counts,
            "findings": list(self.findings),
            "notes": list(self.notes),
            "error": self.error,
            "seconds": round(self.seconds, 1),
        }


COUNTED: Final = ("lost", "doubled", "phantom", "overshoot")


async def run(scenario: Scenario, *, seconds: float | None = None, seed: int = 1, keep: Path | None = None) -> Result:
    """`seconds` instead of the scenario's own; `keep`: where logs and histories go if something is found."""
    began = time.monotonic()
    with scratch_directory("regionquota-chaos-") as directory:
        try:
            result = await _run(scenario, directory, began, seconds or scenario.seconds, seed)
        except Exception as error:  # noqa: BLE001 - one that fails must not hide what the others find
            result = Result(scenario.name, time.monotonic() - began, error=f"{type(error).__name__}: {error}")
        if keep is not None and not result.ok:
            for what in ("logs", EVIDENCE):
                if (directory / what).exists():
                    shutil.copytree(directory / what, keep / scenario.name, dirs_exist_ok=True)
    return result


async def _run(scenario: Scenario, directory: Path, began: float, seconds: float, seed: int) -> Result:
    cluster = Cluster(directory, scenario.shape)
    async with cluster.running(), AsyncExitStack() as undo:
        targets = [Target(site.name, site.urls) for site in cluster.sites.values()]
        callers = Callers(targets, KEYS, per_region=CALLERS, seed=seed)
        stage = Stage(cluster, callers, Revisions(KEYS), seconds, seed, undo)
        try:
            await stage.connect()
            callers.start()
            for key in KEYS:
                await stage.set_limit(stage.first, key, LIMIT)
            await asyncio.sleep(WARM_UP_S)
            await scenario.act(stage)
            await callers.stop(DRAIN_S)
            dead = await _not_alive(callers, targets)
            verdicts = await judge(
                stage.operator,
                {name: site.dsn for name, site in cluster.sites.items()},
                callers.history,
                stage.revisions,
                stage.failovers,
            )
        finally:
            await callers.close()
    result = _result(scenario.name, began, stage, verdicts, dead)
    if not result.ok:
        leave(directory / EVIDENCE, callers.history, verdicts, stage.revisions, stage.failovers)
    return result


async def _not_alive(callers: Callers, targets: Sequence[Target]) -> Sequence[str]:
    tried = [(target, key) for target in targets for key in KEYS]
    alive = await asyncio.gather(*(callers.try_once(target, key, LIVENESS_S) for target, key in tried))
    return [
        f"not alive: {target.region} grants nothing of {key} {LIVENESS_S:g} s after the faults"
        for (target, key), granted in zip(tried, alive, strict=True)
        if not granted
    ]


def _result(name: str, began: float, stage: Stage, verdicts: Verdicts, dead: Sequence[str]) -> Result:
    history = stage.callers.history
    found = verdicts.findings
    return Result(
        name,
        time.monotonic() - began,
        operations=len(history.ops),
        acknowledged=history.count(Answer.DONE),
        refused=history.count(Answer.REFUSED),
        unknown=history.count(Answer.UNKNOWN),
        repeats=sum(op.doubts for op in history.ops),
        lost_with_failover=len(found.expected),
        revisions=verdicts.revisions,
        faults=Counter(stage.cluster.faults),
        counts={
            "lost": len(found.lost),
            "doubled": len(found.doubled),
            "phantom": len(found.phantom),
            "overshoot": len(found.overshoot),
        },
        findings=[*verdicts.lines, *dead, *stage.findings],
        notes=stage.notes,
    )
