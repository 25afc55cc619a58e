"""Many callers at once, and callers that go away."""

import asyncio
import re
import uuid
from collections import Counter

import aiohttp
import msgspec
import pytest
from tests.http.harness import Api, Server, Start, running, until

from regionquota.config import ServiceConfig
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres


async def test_fifty_equal_requests_at_once_are_one_hold_and_one_answer(server: Server, api: Api, quota: str) -> None:
    replies = await asyncio.gather(*(api.reserve(quota, 3, request_id="a") for _ in range(50)))
    assert {201} == {reply.status for reply in replies}
    assert 1 == len({reply.body["reservation_id"] for reply in replies})
    assert 2 == await server.rows("reservations", quota)  # with the one that the fixture released
    assert 3 == (await api.usage(quota))["reserved"]


async def test_all_but_the_first_of_equal_requests_are_told_that_they_were_repeated(api: Api, quota: str) -> None:
    replies = await asyncio.gather(*(api.reserve(quota, 3, request_id="a") for _ in range(20)))
    assert 19 == [reply.headers.get("Idempotency-Replayed") for reply in replies].count("true")


async def test_fifty_first_uses_at_once_are_one_counter(server: Server, api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 50)
    replies = await asyncio.gather(*(api.reserve(tenant) for _ in range(50)))
    assert {201} == {reply.status for reply in replies}
    assert 1 == await server.rows("quota_counters", tenant)
    assert 50 == (await api.usage(tenant))["reserved"]


async def test_one_of_two_hundred_gets_the_last_unit(api: Api, quota: str) -> None:
    await api.settle("commit", await api.hold(quota, 9))
    replies = await asyncio.gather(*(api.reserve(quota) for _ in range(200)))
    assert Counter({429: 199, 201: 1}) == Counter(reply.status for reply in replies)
    assert (9, 1) == ((await api.usage(quota))["used"], (await api.usage(quota))["reserved"])


async def test_commit_release_and_extend_at_once_have_one_effect(server: Server, api: Api, quota: str) -> None:
    name = await api.hold(quota, 4)
    events = ("commit", "release") * 20
    replies = await asyncio.gather(*(api.settle(event, name) for event in events))
    ended = (await api.get(f"/v1/reservations/{name}")).body["status"]
    winner = {"COMMITTED": "commit", "RELEASED": "release"}[ended]
    assert [200 if event == winner else 409 for event in events] == [reply.status for reply in replies]
    usage = await api.usage(quota)
    assert (4 if ended == "COMMITTED" else 0, 0) == (usage["used"], usage["reserved"])


async def test_the_same_adjustment_at_once_counts_once(api: Api, quota: str) -> None:
    replies = await asyncio.gather(*(api.adjust(quota, 2, request_id="a") for _ in range(30)))
    assert {200} == {reply.status for reply in replies}
    assert 2 == (await api.usage(quota))["used"]


async def test_first_limits_set_at_once_leave_the_newest(server: Server, api: Api, tenant: str) -> None:
    replies = await asyncio.gather(*(api.set_limit(tenant, n, version=n) for n in range(1, 16)))
    assert {200, 409} >= {reply.status for reply in replies}
    assert (200, 15) == (replies[-1].status, replies[-1].body["limit"])


async def test_what_cancelled_callers_reserved_is_free_after_its_time(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10_000)
    await api.hold(tenant, 1, ttl_s=1)

    async def caller(number: int) -> None:
        name = await api.hold(tenant, 1, ttl_s=1, request_id=str(number))
        await asyncio.sleep(3600)
        await api.settle("commit", name)

    async with asyncio.timeout(60):
        for part in range(4):
            callers = [asyncio.create_task(caller(part * 250 + number)) for number in range(250)]
            # The first are at work, the last have hardly been read.
            await asyncio.sleep(0.1)
            for one in callers:
                one.cancel()
            await asyncio.gather(*callers, return_exceptions=True)

    async def nothing_is_reserved() -> bool:
        return bool((await api.usage(tenant))["reserved"] == 0)

    await until(nothing_is_reserved)
    usage = await api.usage(tenant)
    assert (0, 10_000) == (usage["used"], usage["available"])


async def test_more_callers_than_may_wait_are_told_to_come_back_and_hold_nothing(start: Start, tenant: str) -> None:
    api = (await start(service=ServiceConfig(lanes=1, max_queue=2, max_batch=1, shutdown_grace_s=0.5))).api
    await api.set_limit(tenant, 1000)
    await api.hold(tenant)
    replies = await asyncio.gather(*(api.reserve(tenant) for _ in range(100)))
    assert {201, 503} == {reply.status for reply in replies}
    assert {"1"} == {reply.headers["Retry-After"] for reply in replies if reply.status == 503}
    granted = [reply.status for reply in replies].count(201)
    assert 1 + granted == (await api.usage(tenant))["reserved"]


async def test_a_server_that_stops_answers_whom_it_has_accepted(
    postgres: EmbeddedPostgres, etcd: EmbeddedEtcd, tenant: str
) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with running(postgres, etcd) as server:
            api = Api(server.api.url, session)
            await api.set_limit(tenant, 1000)
            await api.hold(tenant)
            callers = [asyncio.create_task(api.reserve(tenant)) for _ in range(50)]
            while not any(one.done() for one in callers):
                await asyncio.sleep(0)
        replies = await asyncio.gather(*callers)
    assert [201] * 50 == [reply.status for reply in replies]


async def test_equal_ids_for_different_amounts_at_once_grant_one_amount(api: Api, quota: str) -> None:
    replies = await asyncio.gather(*(api.reserve(quota, 1 + n % 3, request_id="a") for n in range(30)))
    assert {201: 10, 409: 20} == Counter(reply.status for reply in replies)
    assert 1 == len({reply.body["amount"] for reply in replies if reply.status == 201})


def request(tenant: str, request_id: str) -> bytes:
    body = msgspec.json.encode(
        {"request_id": request_id, "tenant_id": tenant, "resource": "vcpu", "amount": 1, "ttl_s": 1}
    )
    return b"POST /v1/reservations HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_a_hold_whose_caller_dropped_the_connection_expires_unaided(api: Api, quota: str) -> None:
    _, writer = await asyncio.open_connection(*api.address)
    writer.write(request(quota, "dropped"))
    await writer.drain()
    writer.transport.abort()

    async def state() -> str | None:
        found = await api.get(f"/v1/reservations?tenant_id={quota}&request_id=dropped")
        return found.body["status"] if found.status == 200 else None

    async def expired() -> bool:
        return await state() == "EXPIRED"

    await until(expired)
    assert 0 == (await api.usage(quota))["reserved"]


@pytest.mark.parametrize("part", [30, 60, 100, 150])
async def test_a_request_that_broke_off_holds_nothing(server: Server, api: Api, quota: str, part: int) -> None:
    before = await server.contents()
    _, writer = await asyncio.open_connection(*api.address)
    writer.write(request(quota, "broken")[:part])
    await writer.drain()
    writer.transport.abort()
    assert 404 == (await api.get(f"/v1/reservations?tenant_id={quota}&request_id=broken")).status
    assert before == await server.contents()


async def test_a_request_that_broke_off_is_no_error_of_the_servers(
    api: Api, quota: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection(*api.address)
    writer.write(request(quota, "broken")[:-10])
    await writer.drain()
    writer.transport.abort()
    await asyncio.sleep(0.1)
    assert "a call failed" not in capsys.readouterr().out
    assert [] == caplog.records


async def test_a_caller_that_timed_out_learns_its_outcome_by_repeating(api: Api, quota: str) -> None:
    body = {"request_id": "a", "tenant_id": quota, "resource": "vcpu", "amount": 3}
    url = f"{api.url}/v1/reservations"
    with pytest.raises(TimeoutError):
        async with api.session.post(url, json=body, timeout=aiohttp.ClientTimeout(total=0.0005)):
            pass
    assert 201 == (await api.reserve(quota, 3, request_id="a")).status
    assert 3 == (await api.usage(quota))["reserved"]


async def test_requests_in_one_pipeline_are_answered_in_order(api: Api, quota: str) -> None:
    names = [uuid.uuid4().hex for _ in range(12)]
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    heard = await api.say(b"".join(request(quota, name) for name in names) + last)
    assert [b"201"] * 10 + [b"429"] * 2 + [b"200"] == re.findall(rb"HTTP/1\.1 (\d+) ", heard)
    places = [heard.find(name.encode()) for name in names[:10]]
    assert sorted(places) == places
    assert -1 not in places
