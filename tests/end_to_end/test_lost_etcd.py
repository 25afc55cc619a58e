"""An etcd that is restored from an older snapshot, and regions that are lost: nothing is ever admitted twice."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from tests.http.harness import Api, make_template, new_database, until

from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.audit import audit
from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.connections import connect_etcd
from regionquota.bootstrap.region import region_server
from regionquota.config import AgentConfig, Config, EtcdConfig, PostgresConfig, RegionConfig, ServiceConfig
from regionquota.core.allocation import Allocation
from regionquota.core.history import Phase
from regionquota.core.quota import QuotaKey
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory
from regionquota.embedded.ports import free_ports
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.evictions import Evicted, Readmitted, evict_region, readmit_region
from regionquota.recovery import await_statements, begin_recovery, end_recovery, rebuild_documents
from regionquota.telemetry import configure_metrics

KEY: Final = QuotaKey("acme", "vcpu")
LIMIT: Final = 1000
CLOCK: Final = SystemClock()


@dataclass
class Deployment:
    """Region servers in this event loop, each of which begins anew when it has to."""

    etcd: EmbeddedEtcd
    postgres: EmbeddedPostgres
    session: aiohttp.ClientSession
    etcd_config: EtcdConfig
    configs: dict[str, Config] = field(default_factory=dict)
    tasks: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    async def add(self, region: str) -> None:
        self.configs[region] = Config(
            region=RegionConfig(name=region, port=free_ports(1)[0]),
            postgres=PostgresConfig(dsn=await new_database(self.postgres), pool_size=4),
            etcd=self.etcd_config,
            agent=AgentConfig(claim_share=0.3, liveness_ttl_s=2, settle_interval_s=0.1, report_interval_s=0.2),
            service=ServiceConfig(shutdown_grace_s=0.2),
        )

    async def start(self, region: str) -> None:
        self.tasks[region] = asyncio.create_task(self._supervise(region))
        await until(lambda: self.is_up(region))

    async def stop(self, region: str) -> None:
        task = self.tasks.pop(region)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _supervise(self, region: str) -> None:
        telemetry = configure_metrics("test")
        try:
            while True:
                ended = asyncio.Event()
                async with region_server(self.configs[region], telemetry, ended.set):
                    await ended.wait()
        finally:
            telemetry.shutdown()

    def api(self, region: str) -> Api:
        return Api(f"http://127.0.0.1:{self.configs[region].region.port}", self.session)

    async def is_up(self, region: str) -> bool:
        try:
            return (await self.api(region).get("/healthz")).status == 200
        except aiohttp.ClientError:
            return False

    async def trouble(self, region: str) -> str:
        """Why nothing moves there, as a probe tells it."""
        with suppress(aiohttp.ClientError):
            return str((await self.api(region).get("/readyz")).body.get("nothing_moves", ""))
        return ""

    async def take(self, region: str, units: int) -> list[str]:
        """One unit at a time, claiming what is missing; waits for what moves by itself."""
        held: list[str] = []

        async def one() -> bool:
            with suppress(aiohttp.ClientError):
                reply = await self.api(region).reserve("acme", 1, ttl_s=3600)
                if reply.status == 201:
                    held.append(str(reply.body["reservation_id"]))
                return reply.status == 201
            return False

        for _ in range(units):
            await until(one, within_s=20)
        return held

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Any]:
        client = connect_etcd(self.etcd_config)
        try:
            yield client
        finally:
            await client.close()

    async def document(self) -> Allocation:
        async with self.operator() as client:
            _, found = await client.allocations.read(KEY)
        assert found is not None
        return found

    async def restore(self, snapshot: Path) -> None:
        await self.etcd.stop()
        shutil.rmtree(self.etcd.data_dir)
        shutil.copytree(snapshot, self.etcd.data_dir)
        await self.etcd.start()

    async def snapshot(self, into: Path) -> Path:
        await self.etcd.stop()
        shutil.copytree(self.etcd.data_dir, into)
        await self.etcd.start()
        return into

    async def evict(self, region: str) -> Evicted:
        async with self.operator() as client:
            return await evict_region(client.allocations, client.directory, client.histories, region, "off", CLOCK)

    async def readmit(self, region: str, **evidence: bool) -> Readmitted:
        said = {"database_lost": False, "nothing_used": False} | evidence
        async with self.operator() as client:
            return await readmit_region(client.allocations, client.directory, client.histories, region, CLOCK, **said)

    async def recover(self, patience_s: float = 15.0) -> None:
        async with self.operator() as client:
            history = await begin_recovery(client.histories, "a test", CLOCK.now())
            stated = await await_statements(client.histories, client.directory, history, [], patience_s=patience_s)
            documents = client.allocations_in(history)
            _, _, wanted = await rebuild_documents(documents, client.directory, stated, CLOCK)
            await end_recovery(client.histories, client.directory, history, wanted, stated)

    async def phase(self) -> Phase | None:
        async with self.operator() as client:
            with suppress(Unavailable):
                _, history = await client.histories.read()
                return None if history is None else Phase(history.phase)
        return None

    async def differences(self) -> list[str]:
        deadlines = Deadlines(statement=10)
        async with AsyncExitStack() as stack:
            stores = {}
            for region, config in self.configs.items():
                pool = await open_pool(config.postgres.dsn, password=None, size=1, deadlines=deadlines)
                stack.callback(pool.terminate)
                stores[region] = PostgresRegionStore(pool, region, deadlines)
            client = await stack.enter_async_context(self.operator())
            return [one.difference async for one in audit(client.allocations, stores) if one.difference]

    async def held(self, region: str) -> tuple[int, int]:
        """Slice, and what is in use."""
        usage = await self.api(region).usage("acme")
        return int(usage["slice"]), int(usage["used"]) + int(usage["reserved"])


@pytest.fixture(scope="module")
async def shared_postgres() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        await server.start()
        await make_template(server)
        yield server
        await server.kill()


@pytest.fixture
async def deployment(shared_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deployment]:
    monkeypatch.setattr("regionquota.bootstrap.history.HISTORY_INTERVAL_S", 0.2)
    monkeypatch.setattr("regionquota.region.history_watch.STATE_INTERVAL_S", 0.5)
    with scratch_directory() as directory:
        etcd = EmbeddedEtcd(directory / "etcd", unsafe_no_fsync=True)
        await etcd.start()
        config = EtcdConfig(endpoints=(etcd.endpoint,), prefix=f"/{uuid.uuid4()}/", timeout_s=2.0)
        async with aiohttp.ClientSession() as session:
            made = Deployment(etcd, shared_postgres, session, config)
            for region in ("eu", "us"):
                await made.add(region)
                await made.start(region)
            assert 200 == (await made.api("eu").set_limit("acme", LIMIT)).status
            yield made
            for region in list(made.tasks):
                await made.stop(region)
        await etcd.kill()


def eventually(look: Callable[[], Awaitable[bool]]) -> Awaitable[None]:
    return until(look, within_s=30, every_s=0.1)


async def is_halted(deployment: Deployment) -> bool:
    return await deployment.phase() is Phase.HALTED


async def test_an_etcd_restored_from_a_snapshot_moves_nothing_until_it_is_recovered(
    deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.take("eu", 3)
    snapshot = await deployment.snapshot(tmp_path / "snapshot")
    await deployment.take("us", 3)
    before = await deployment.document()
    await deployment.restore(snapshot)
    await eventually(lambda: is_halted(deployment))
    assert {} == {name: size for name, size in (await deployment.document()).slices.items() if name == "us"}

    for region in ("eu", "us"):
        await deployment.take(region, 2)  # of what they hold already
        await eventually(lambda region=region: has_trouble(deployment, region))  # type: ignore[misc]
    refused = await deployment.api("eu").set_limit("acme", 2 * LIMIT, version=2)
    assert 503 == refused.status
    assert "region recover" in str(refused.body)

    await deployment.recover()
    assert before.slices == (await deployment.document()).slices
    assert [] == await deployment.differences()
    await eventually(lambda: moves(deployment, "us", before.slice_of("us")))
    assert [] == await deployment.differences()


async def has_trouble(deployment: Deployment, region: str) -> bool:
    return "was halted" in await deployment.trouble(region)


async def moves(deployment: Deployment, region: str, beyond: int) -> bool:
    """Takes until its slice has grown."""
    await deployment.take(region, 20)
    return (await deployment.document()).slice_of(region) > beyond


async def test_a_region_that_a_recovery_cannot_reach_is_named(deployment: Deployment, tmp_path: Path) -> None:
    await deployment.take("us", 1)
    snapshot = await deployment.snapshot(tmp_path / "snapshot")
    await deployment.take("eu", 400)
    await deployment.stop("us")
    await deployment.restore(snapshot)
    await eventually(lambda: is_halted(deployment))
    with pytest.raises(InvalidRequest, match="no word from us: start a server of each"):
        await deployment.recover(patience_s=1)


async def test_a_region_lost_together_with_the_newest_of_etcd(deployment: Deployment, tmp_path: Path) -> None:
    await deployment.take("us", 1)
    snapshot = await deployment.snapshot(tmp_path / "snapshot")
    held = await deployment.take("us", 400)
    await deployment.take("eu", 1)
    us = await deployment.held("us")
    await deployment.stop("us")
    await deployment.restore(snapshot)
    await eventually(lambda: is_halted(deployment))
    await until(lambda: is_silent(deployment, "us"))
    assert (await deployment.evict("us")).record.eviction is not None

    await deployment.recover()
    rebuilt = await deployment.document()
    assert 0 == rebuilt.pool
    assert rebuilt.retired["us"].units >= us[0]  # nobody knows how much: all that nobody else holds

    await deployment.start("us")
    await eventually(lambda: slice_is(deployment, "us", 0))
    denied = await deployment.api("us").reserve("acme", 1)
    assert 201 != denied.status
    await eventually(lambda: can_be_readmitted(deployment, "us"))
    back = await deployment.document()
    assert len(held) + 1 == us[1]
    assert ({}, us[1]) == (back.retired, back.slice_of("us"))
    assert [] == await deployment.differences()
    await deployment.take("us", 1)
    assert [] == await deployment.differences()


async def is_silent(deployment: Deployment, region: str) -> bool:
    async with deployment.operator() as client:
        return all(one.region != region for one in await client.directory.present())


async def slice_is(deployment: Deployment, region: str, size: int) -> bool:
    with suppress(aiohttp.ClientError, AssertionError):
        return (await deployment.held(region))[0] == size
    return False


async def can_be_readmitted(deployment: Deployment, region: str) -> bool:
    try:
        await deployment.readmit(region)
    except InvalidRequest as error:
        if "has not said yet" not in str(error):
            raise
        return False
    return True


async def test_an_evicted_region_comes_back_with_what_it_uses(deployment: Deployment) -> None:
    await deployment.take("us", 5)
    await deployment.take("eu", 5)
    owned = (await deployment.document()).slice_of("us")
    with pytest.raises(InvalidRequest, match="shows a sign of life"):
        await deployment.evict("us")
    await deployment.stop("us")
    await until(lambda: is_silent(deployment, "us"))
    assert {KEY: owned} == (await deployment.evict("us")).retired
    gone = await deployment.document()
    assert (owned, 0, LIMIT) == (
        gone.retired_units, gone.slice_of("us"), gone.pool + gone.retired_units + sum(gone.slices.values())
    )  # fmt: skip
    await deployment.start("us")
    await eventually(lambda: slice_is(deployment, "us", 0))
    await eventually(lambda: can_be_readmitted(deployment, "us"))
    back = await deployment.document()
    assert (5, {}) == (back.slice_of("us"), back.retired)
    await deployment.take("us", 20)
    assert [] == await deployment.differences()


async def test_a_region_that_comes_back_with_a_new_database(deployment: Deployment) -> None:
    await deployment.take("us", 5)
    owned = (await deployment.document()).slice_of("us")
    await deployment.stop("us")
    await until(lambda: is_silent(deployment, "us"))
    await deployment.evict("us")
    config = deployment.configs["us"]
    lost = replace(config.postgres, dsn=await new_database(deployment.postgres))
    deployment.configs["us"] = replace(config, postgres=lost)
    await deployment.start("us")

    async def is_told() -> bool:
        try:
            await deployment.readmit("us")
        except InvalidRequest as error:
            return "is new, it does not know" in str(error)
        return False

    await eventually(is_told)
    back = await deployment.readmit("us", database_lost=True)
    assert {KEY: owned} == back.still_retired
    await deployment.take("us", 3)
    assert owned == (await deployment.document()).retired_units
    assert [] == await deployment.differences()
