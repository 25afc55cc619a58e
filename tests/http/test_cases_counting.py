"""One budget, many at once: what is granted, what is told, and what is measured agree."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import differences
from tests.http.harness import Api, Server, Start, new_database, running, until

from regionquota.config import PostgresConfig, ServiceConfig
from regionquota.core.allocation import VersionedLimit
from regionquota.core.quota import QuotaKey
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres


async def exact(server: Server) -> None:
    async with fixtures.store_on(server.dsn) as store:
        assert [] == differences(await store.check_balances())


# -- the same limit, set for the first time by many --


async def test_first_limits_set_at_once_by_two_servers_are_one_limit_of_the_newest_version(
    server: Server, start: Start, tenant: str
) -> None:
    apis = [server.api, (await start(like=server)).api]
    versions = list(range(1, 21))
    Random(3).shuffle(versions)
    replies = await asyncio.gather(
        *(apis[version % 2].set_limit(tenant, 100 + version, version=version) for version in versions)
    )
    assert {200, 409} >= {reply.status for reply in replies}
    _, allocation = await server.etcd.allocations.read(QuotaKey(tenant, "vcpu"))
    assert allocation is not None
    assert (VersionedLimit(120, 20), 120) == (allocation.plan, allocation.limit)
    assert 1 == sum(key.tenant == tenant for key, _ in await server.documents())


# -- what is measured --


async def measured(api: Api) -> Mapping[str, float]:
    lines = [line for line in (await api.get("/metrics")).text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


UNITS = ("reserved", "used")


def calls(outcome: str) -> str:
    return f'regionquota_calls_total{{operation="reserve",outcome="{outcome}"}}'


async def test_denials_on_one_line_of_many_leave_metrics_that_agree_with_the_ledger(start: Start, tenant: str) -> None:
    server = await start()
    api, resource = server.api, "calls"
    await api.set_limit(tenant, 100, resource, scope="project:x")
    await api.set_limit(tenant, 5, resource, scope="user:y")
    line = {"scope": "user:y"}
    replies = [
        await api.reserve(tenant, 2, resource=resource, scope="project:x", lines=[line], request_id=f"r{n}")
        for n in range(6)
    ]
    assert [201, 201, 429, 429, 429, 429] == [reply.status for reply in replies]
    assert {"user:y"} == {reply.body["line"]["scope"] for reply in replies[2:]}
    await api.settle("commit", replies[0].body["reservation_id"])
    held = "SELECT sum(reserved) FROM quota_counters"
    explained = "SELECT sum(delta) FROM usage_ledger"
    ledger = (await server.look.fetchval(held), await server.look.fetchval(explained))
    assert (4, 4) == ledger, "two lines of 2 each are held, and two are used"

    async def agree() -> bool:
        now = await measured(api)
        shown = [now.get(f'regionquota_{name}_units{{region="eu",resource="{resource}"}}') for name in UNITS]
        return ledger == tuple(shown)

    await until(agree)
    now = await measured(api)
    assert (2, 4) == (now[calls("201")], now[calls("OVER_LIMIT")])
    await exact(server)


# -- one tenant at its peak --


async def test_a_tenant_at_its_peak_is_served_without_an_error(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10_000)
    await api.hold(tenant)
    replies = await asyncio.gather(*(api.reserve(tenant) for _ in range(1000)))
    assert {201: 1000} == Counter(reply.status for reply in replies)
    assert 1001 == (await api.usage(tenant))["reserved"]


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END';
CREATE TRIGGER slow BEFORE INSERT ON reservations FOR EACH STATEMENT EXECUTE FUNCTION slow();
"""


async def test_whoever_is_accepted_at_the_peak_waits_for_a_few_transactions_only(
    postgres: EmbeddedPostgres, etcd: EmbeddedEtcd, tenant: str
) -> None:
    """Each transaction takes 0.4 s. The queue holds two batches of 20: nobody waits for more than four."""
    sections: dict[str, Any] = {
        "postgres": PostgresConfig(dsn=await new_database(postgres), pool_size=4),
        "service": ServiceConfig(lanes=1, max_batch=20, max_queue=40, shutdown_grace_s=0.5),
    }
    async with running(postgres, etcd, **sections) as server:
        api = server.api
        await api.set_limit(tenant, 10_000)
        await api.hold(tenant)
        await server.look.execute(SLOW)

        async def caller() -> tuple[int, float, str | None]:
            began = time.monotonic()
            reply = await api.reserve(tenant)
            return reply.status, time.monotonic() - began, reply.headers.get("Retry-After")

        answers = await asyncio.gather(*(caller() for _ in range(300)))
    assert {201, 503} == {status for status, _, _ in answers}
    assert {"1"} == {after for status, _, after in answers if status == 503}
    assert 4.0 > max(seconds for _, seconds, _ in answers)  # in one queue without a bound, 300 would wait for 6 s
