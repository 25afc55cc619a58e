"""Partitions, outages, killed and stalled daemons, on real Postgres and etcd: nothing is lost, nothing is doubled."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from tests.end_to_end.support import PROGRAM, Deployment, eventually, numbers
from tests.processes import stall

from regionquota.core.groups import GROUPS, Leader

REGIONS = ("eu", "us", "ap")


@dataclass(slots=True)
class Traffic:
    """Callers that reserve, commit and give back until told to stop; `held` is what they were told they hold."""

    deployment: Deployment
    tenant: str
    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REGIONS, 0))
    admitted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REGIONS, 0))
    failures: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, region: str, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
        """Repeats with the same id until there is an answer that is one: what any caller may do."""
        for _ in range(300):
            try:
                status, answer = await self.deployment.call("POST", region, path, body)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.failures.append(f"{region} {path}: {type(error).__name__}")
            else:
                if status < 500:
                    return status, answer
                self.failures.append(f"{region} {path}: {status} {answer.get('detail')}")
            await asyncio.sleep(0.1)
        raise AssertionError(f"{region} did not recover")

    async def caller(self, region: str) -> None:
        while not self.stopping.is_set():
            body = {"request_id": f"t{next(numbers)}", "tenant_id": self.tenant, "resource": "vcpu", "amount": 1}
            status, held = await self.call(region, "/v1/reservations", body)
            if status == 201:
                await self.call(region, f"/v1/reservations/{held['reservation_id']}/commit", {})
                self.held[region] += 1
                self.admitted[region] += 1
            if self.held[region] > 5:
                await self.give_back(region, 3)
            await asyncio.sleep(0.02)

    async def give_back(self, region: str, amount: int) -> None:
        body = {
            "request_id": f"g{next(numbers)}",
            "tenant_id": self.tenant,
            "resource": "vcpu",
            "delta": -amount,
            "reason": "given back",
        }
        self.held[region] -= amount  # before the call: another caller of this region looks at it meanwhile
        status, answer = await self.call(region, "/v1/adjustments", body)
        assert status == 200, answer


@asynccontextmanager
async def traffic(deployment: Deployment, tenant: str, limit: int) -> AsyncIterator[Traffic]:
    """Traffic in all regions around a fault; afterwards the books must agree with what the callers were told."""
    await deployment.set_limit(tenant, limit)
    callers = Traffic(deployment, tenant)
    tasks = [asyncio.create_task(callers.caller(region)) for region in REGIONS for _ in range(3)]
    try:
        await eventually(lambda: _all_admit(callers), what="traffic in all regions")
        yield callers
    finally:
        callers.stopping.set()
        await asyncio.gather(*tasks)
    for region in REGIONS:
        _, usage = await deployment.call("GET", region, f"/v1/tenants/{tenant}/quotas?resource=vcpu")
        assert [callers.held[region]] == [quota["used"] for quota in usage["quotas"]], region
    await deployment.is_sound()


async def _all_reach_etcd(deployment: Deployment, tenant: str) -> bool:
    """Each region server writes a limit of its own, which only etcd can take."""
    answers = [
        await deployment.call("PUT", region, f"/v1/tenants/{tenant}/quotas/of-{region}", {"limit": 1, "version": 1})
        for region in REGIONS
    ]
    return all(status == 200 for status, _ in answers)


async def _all_admit(callers: Traffic) -> bool:
    return all(callers.admitted.values())


async def test_a_region_cut_off_from_etcd_serves_its_slice_and_thaws_when_it_is_back(
    deployment: Deployment, tenant: str
) -> None:
    async with traffic(deployment, tenant, 60) as callers:
        await deployment.control("/proxies/ap/cut")
        try:
            await eventually(lambda: deployment.frozen("ap"), what="ap freezing")
            before = callers.admitted["ap"]
            await asyncio.sleep(1)
            assert callers.admitted["ap"] > before
        finally:
            await deployment.control("/proxies/ap/heal")

        async def thawed() -> bool:
            return not await deployment.frozen("ap")

        await eventually(thawed, what="ap thawing")
    assert [] == callers.failures


async def test_a_region_that_missed_changes_which_were_compacted_lists_again_and_misses_none(
    deployment: Deployment, tenant: str
) -> None:
    await deployment.set_limit(tenant, 50)
    await eventually(lambda: deployment.use("ap", tenant, 1))
    await deployment.control("/proxies/ap/cut")
    try:
        for version in range(2, 6):
            await deployment.set_limit(tenant, 50 + version, version=version)
        revision, _ = await deployment.operator.allocations.list()
        url = f"http://{deployment.config.etcd.endpoints[0]}/v3/kv/compaction"
        async with deployment.http.post(url, json={"revision": revision}) as answer:
            assert 200 == answer.status
    finally:
        await deployment.control("/proxies/ap/heal")

    async def knows_the_newest() -> bool:
        _, usage = await deployment.call("GET", "ap", f"/v1/tenants/{tenant}/quotas")
        return [55] == [quota["limit"] for quota in usage["quotas"]]

    await eventually(knows_the_newest, what="ap hearing of the newest limit")
    await deployment.is_sound()


async def test_etcd_goes_away_under_load_and_no_reserve_fails(deployment: Deployment, tenant: str) -> None:
    async with traffic(deployment, tenant, 60) as callers:
        await deployment.control("/etcd/stop")
        try:
            before = dict(callers.admitted)
            await asyncio.sleep(6)
            assert all(callers.admitted[region] > before[region] for region in REGIONS)
        finally:
            await deployment.control("/etcd/start")

        await eventually(lambda: _all_reach_etcd(deployment, tenant), what="recovery")

        async def nobody_frozen() -> bool:
            return not any([await deployment.frozen(region) for region in REGIONS])

        await eventually(nobody_frozen, what="thawing")
    assert [] == callers.failures


async def test_a_killed_region_server_comes_back_and_its_books_are_right(deployment: Deployment, tenant: str) -> None:
    async with traffic(deployment, tenant, 60):
        for _ in range(2):
            await _kill(deployment, "region-us")
            await asyncio.sleep(1)


async def test_a_killed_postgres_comes_back_and_its_books_are_right(deployment: Deployment, tenant: str) -> None:
    async with traffic(deployment, tenant, 60):
        await _kill(deployment, "postgres-eu")
        await asyncio.sleep(2)


async def test_a_killed_coordinator_comes_back_and_leads(deployment: Deployment, tenant: str) -> None:
    async with traffic(deployment, tenant, 60):
        before = await _leaders(deployment)
        await _kill(deployment, "coordinator")

        async def another_leads() -> bool:
            return len(await _leaders(deployment) - before) == GROUPS

        await eventually(another_leads, what="a new leader")


async def test_a_killed_etcd_comes_back_and_headroom_moves_again(deployment: Deployment, tenant: str) -> None:
    async with traffic(deployment, tenant, 60):
        await _kill(deployment, "etcd")
        await eventually(lambda: _all_reach_etcd(deployment, tenant), what="recovery")


async def test_a_coordinator_stalled_past_its_lease_is_fenced_when_it_goes_on(
    deployment: Deployment, tenant: str
) -> None:
    async with traffic(deployment, tenant, 60), _second_coordinator(deployment):
        stalled = await deployment.pid("coordinator")
        before = await _leaders(deployment)
        stall(stalled)
        try:

            async def another_leads() -> bool:
                leaders = await _leaders(deployment)
                return len(leaders) == GROUPS and not any(leader.name.endswith(f"-{stalled}") for leader in leaders)

            await eventually(another_leads, what="the second coordinator taking over")
        finally:
            os.kill(stalled, signal.SIGCONT)
        await asyncio.sleep(2)
        lost = {leader for leader in before if leader.name.endswith(f"-{stalled}")}
        assert lost
        assert not lost & await _leaders(deployment)


async def test_two_servers_of_one_region_share_its_database(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 40)
    first = deployment.url("eu")
    second = f"http://127.0.0.1:{int(first.rsplit(':', 1)[1]) - 1}"
    file = deployment.file.with_name("region-eu.toml")
    env = {**os.environ, "REGIONQUOTA_REGION__PORT": second.rsplit(":", 1)[1]}
    child = await asyncio.create_subprocess_exec(*PROGRAM, "region", "--config", str(file), env=env)
    try:
        await eventually(lambda: _answers(deployment, second), what="the second server")

        async def reserve(at: int) -> int:
            body = {"request_id": f"two-{at // 2}", "tenant_id": tenant, "resource": "vcpu", "amount": 1}
            url = (first, second)[at % 2]
            async with deployment.http.post(f"{url}/v1/reservations", json=body) as answer:
                return answer.status

        statuses = await asyncio.gather(*(reserve(at) for at in range(160)))
        holding = next(iter(await deployment.operator.stores["eu"].holdings(tenant)))
        # Each request was sent to both: a hold and its replay are answered 201.
        assert holding.counter.reserved <= 40
        assert statuses.count(201) >= holding.counter.reserved
        assert {201, 429} >= set(statuses)
    finally:
        child.send_signal(signal.SIGTERM)
        assert 0 == await asyncio.wait_for(child.wait(), 20)
    await deployment.is_sound()


async def _answers(deployment: Deployment, url: str) -> bool:
    try:
        async with deployment.http.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _kill(deployment: Deployment, process: str) -> None:
    before = await deployment.pid(process)
    os.kill(before, signal.SIGKILL)

    async def restarted() -> bool:
        return await deployment.pid(process) != before

    await eventually(restarted, what=f"{process} starting again")


async def _leaders(deployment: Deployment) -> set[Leader]:
    """One for each group of buckets that has one."""
    return set((await deployment.operator.directory.leadership()).leaders.values())


@asynccontextmanager
async def _second_coordinator(deployment: Deployment) -> AsyncIterator[None]:
    file = deployment.file.with_name("coordinator.toml")
    env = {**os.environ, "REGIONQUOTA_COORDINATOR__PORT": "0"}
    child = await asyncio.create_subprocess_exec(*PROGRAM, "coordinator", "--config", str(file), env=env)
    try:
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        assert 0 == await asyncio.wait_for(child.wait(), 20)
