"""What callers hear while Postgres or etcd is away, and after."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
from tests.http.harness import Api, Reply, Server, make_template, new_database, running, until
from tests.processes import stall

from regionquota.config import AgentConfig, PostgresConfig
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory

SOME_ID = "01a22929-0fa9-70d4-a463-013edb26b5c3"


@pytest.fixture(scope="module")
async def mortal_postgres() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        one = EmbeddedPostgres(directory / "postgres")
        await one.start()
        await make_template(one)
        yield one
        await one.kill()


@pytest.fixture(scope="module")
async def mortal_etcd() -> AsyncIterator[EmbeddedEtcd]:
    with scratch_directory() as directory:
        one = EmbeddedEtcd(directory / "etcd", unsafe_no_fsync=True)
        await one.start()
        yield one
        await one.kill()


@pytest.fixture(scope="module")
async def server(mortal_postgres: EmbeddedPostgres, mortal_etcd: EmbeddedEtcd) -> AsyncIterator[Server]:
    """On a Postgres and an etcd that may be stopped, with short deadlines."""
    sections = {
        "agent": AgentConfig(claim_share=1.0, settle_interval_s=0.05, report_interval_s=0.1, join_timeout_s=0.5),
        "postgres": PostgresConfig(
            dsn=await new_database(mortal_postgres), pool_size=4, connect_timeout_s=0.5, statement_timeout_s=1.0
        ),
    }
    async with running(mortal_postgres, mortal_etcd, **sections) as started:
        yield started


async def ready(api: Api) -> bool:
    return (await api.get("/readyz")).status == 200


@pytest.fixture
async def postgres_away(
    mortal_postgres: EmbeddedPostgres, server: Server, quota: str
) -> AsyncIterator[EmbeddedPostgres]:
    """Stopped; the test may start it again."""
    await mortal_postgres.stop()
    yield mortal_postgres
    if not mortal_postgres.running:
        await mortal_postgres.start()
    await until(partial(ready, server.api))


@pytest.fixture
async def etcd_away(mortal_etcd: EmbeddedEtcd, server: Server, quota: str) -> AsyncIterator[EmbeddedEtcd]:
    """Stopped; the test may start it again."""
    await mortal_etcd.stop()
    yield mortal_etcd
    if not mortal_etcd.running:
        await mortal_etcd.start()
    await until(partial(reachable, server.api))


async def reachable(api: Api) -> bool:
    """Whether the server has found the restarted etcd: between its attempts to connect it answers 503."""
    return (await api.set_limit("anyone", 1)).status == 200


def assert_unavailable(reply: Reply) -> None:
    assert (503, "application/problem+json") == (reply.status, reply.kind), reply
    assert 1 <= int(reply.headers["Retry-After"])
    assert "Traceback" not in reply.text


async def test_readiness_follows_postgres_and_liveness_does_not(api: Api, postgres_away: EmbeddedPostgres) -> None:
    assert (503, 200) == ((await api.get("/readyz")).status, (await api.get("/healthz")).status)
    await postgres_away.start()
    await until(partial(ready, api))
    assert 200 == (await api.get("/healthz")).status


async def test_a_reserve_without_postgres_is_told_to_come_back(
    api: Api, postgres_away: EmbeddedPostgres, quota: str
) -> None:
    assert_unavailable(await api.reserve(quota))


async def test_every_settling_without_postgres_is_told_to_come_back(api: Api, postgres_away: EmbeddedPostgres) -> None:
    for event, body in {"commit": {}, "release": {}, "extend": {"ttl_s": 5}}.items():
        assert_unavailable(await api.settle(event, SOME_ID, **body))


async def test_every_look_without_postgres_is_told_to_come_back(api: Api, postgres_away: EmbeddedPostgres) -> None:
    for path in (f"reservations/{SOME_ID}", "reservations?tenant_id=a&request_id=b", "tenants/a/quotas"):
        assert_unavailable(await api.get(f"/v1/{path}"))


async def test_bad_input_is_refused_without_postgres(api: Api, postgres_away: EmbeddedPostgres, quota: str) -> None:
    assert 400 == (await api.reserve(quota, 0)).status


async def test_the_same_request_after_a_restart_is_one_hold(
    api: Api, postgres_away: EmbeddedPostgres, quota: str
) -> None:
    assert_unavailable(await api.reserve(quota, 3, request_id="a"))
    await postgres_away.start()
    await until(partial(ready, api))
    names = {await api.hold(quota, 3, request_id="a") for _ in range(3)}
    assert 1 == len(names)
    assert 3 == (await api.usage(quota))["reserved"]


async def test_callers_across_a_crash_hold_what_they_were_told(
    api: Api, mortal_postgres: EmbeddedPostgres, tenant: str
) -> None:
    """Each repeats its request until it is granted, while Postgres dies and recovers."""
    await api.set_limit(tenant, 1000)
    await api.hold(tenant)
    heard: set[int] = set()

    async def caller(number: int) -> str:
        while True:
            reply = await api.reserve(tenant, 1, request_id=f"r{number}")
            heard.add(reply.status)
            if reply.status == 201:
                return str(reply.body["reservation_id"])
            await asyncio.sleep(0.05)

    first = asyncio.gather(*(caller(number) for number in range(20)))
    await asyncio.sleep(0.01)
    await mortal_postgres.kill()
    second = asyncio.gather(*(caller(number) for number in range(10, 30)))
    await asyncio.sleep(0.1)
    await mortal_postgres.start()
    early, late = await first, await second
    assert early[10:] == late[:10]
    assert {201, 503} >= heard
    assert 31 == (await api.usage(tenant))["reserved"]


# -- etcd --


async def test_reserves_are_served_from_the_slice_without_etcd(api: Api, etcd_away: EmbeddedEtcd, quota: str) -> None:
    got = [(await api.reserve(quota, 5)).status for _ in range(3)]
    assert [201, 201, 429] == got


async def test_holds_are_settled_without_etcd(api: Api, etcd_away: EmbeddedEtcd, quota: str) -> None:
    got = [(await api.settle(event, await api.hold(quota))).status for event in ("commit", "release")]
    assert [200, 200] == got


async def test_the_server_stays_ready_without_etcd(api: Api, etcd_away: EmbeddedEtcd) -> None:
    assert 200 == (await api.get("/readyz")).status


async def test_usage_is_shown_without_etcd(api: Api, etcd_away: EmbeddedEtcd, quota: str) -> None:
    assert 10 == (await api.usage(quota))["limit"]


async def test_the_first_use_of_a_quota_without_etcd_is_refused_in_time(
    api: Api, etcd_away: EmbeddedEtcd, tenant: str
) -> None:
    began = time.monotonic()
    assert_unavailable(await api.reserve(tenant, resource="never used"))
    assert time.monotonic() - began < 1.5


async def test_a_limit_without_etcd_is_told_to_come_back(api: Api, etcd_away: EmbeddedEtcd, tenant: str) -> None:
    assert_unavailable(await api.set_limit(tenant, 10))


async def test_a_batch_without_etcd_answers_each_reserve_for_itself(
    api: Api, etcd_away: EmbeddedEtcd, quota: str, tenant: str
) -> None:
    reserves = [
        {"request_id": f"r{number}", "tenant_id": name, "resource": resource, "amount": 1}
        for number, (name, resource) in enumerate([(quota, "vcpu"), (tenant, "never used"), (quota, "vcpu")])
    ]
    reply = await api.post("/v1/reservations/batch", {"reservations": reserves})
    assert 207 == reply.status
    assert [201, 503, 201] == [one["status"] for one in reply.body["results"]]


async def test_the_first_use_of_a_quota_is_served_when_etcd_is_back(
    api: Api, etcd_away: EmbeddedEtcd, tenant: str
) -> None:
    assert_unavailable(await api.reserve(tenant, request_id="a", resource="new"))
    await etcd_away.start()

    async def set_again() -> bool:
        return (await api.set_limit(tenant, 10, "new")).status == 200

    await until(set_again)

    async def granted() -> bool:
        return (await api.reserve(tenant, request_id="a", resource="new")).status == 201

    await until(granted)
    assert 1 == (await api.usage(tenant, "new"))["reserved"]


async def test_an_etcd_that_hangs_delays_no_reserve_from_the_slice(
    api: Api, mortal_etcd: EmbeddedEtcd, quota: str
) -> None:

    stall(mortal_etcd.pid)
    try:
        began = time.monotonic()
        await api.hold(quota)
        assert time.monotonic() - began < 1.0
    finally:
        os.kill(mortal_etcd.pid, signal.SIGCONT)


async def test_a_first_use_while_etcd_hangs_is_refused_in_time(
    api: Api, mortal_etcd: EmbeddedEtcd, tenant: str
) -> None:

    stall(mortal_etcd.pid)
    try:
        began = time.monotonic()
        assert_unavailable(await api.reserve(tenant))
        assert 0.4 < time.monotonic() - began < 1.5
    finally:
        os.kill(mortal_etcd.pid, signal.SIGCONT)


async def test_an_unknown_quota_asked_for_again_at_once_is_answered_without_etcd(
    api: Api, mortal_etcd: EmbeddedEtcd, tenant: str
) -> None:
    first = await api.reserve(tenant)
    stall(mortal_etcd.pid)
    try:
        assert (404, 404) == (first.status, (await api.reserve(tenant)).status)
    finally:
        os.kill(mortal_etcd.pid, signal.SIGCONT)
