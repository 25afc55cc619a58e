"""The first use of a quota here, and what a server knows at once of what it was told itself."""

import asyncio
import logging

import pytest
from tests.http.harness import Api, Server, Start

from regionquota.config import AgentConfig
from regionquota.core.quota import QuotaKey
from regionquota.http import server as server_module


async def test_a_first_reserve_gets_all_it_asks_for_and_a_share_of_the_pool_otherwise(
    start: Start, tenant: str
) -> None:
    api = (await start(agent=AgentConfig(claim_share=0.5))).api
    await api.set_limit(tenant, 10)
    assert 201 == (await api.reserve(tenant, 10)).status
    await api.set_limit(tenant, 100, resource="disk")
    reply = await api.reserve(tenant, 1, resource="disk")
    assert (201, 49) == (reply.status, reply.body["remaining"])


async def test_a_quota_that_was_asked_for_in_vain_is_known_as_soon_as_it_is_set(api: Api, tenant: str) -> None:
    assert 404 == (await api.reserve(tenant)).status
    await api.set_limit(tenant, 10)
    assert 201 == (await api.reserve(tenant)).status


async def test_a_limit_that_was_just_set_is_shown(api: Api, tenant: str) -> None:
    for version in range(1, 6):
        await api.set_limit(tenant, version, version=version)
        assert version == (await api.usage(tenant))["limit"]


async def test_another_kind_is_refused_by_name(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10)
    reply = await api.set_limit(tenant, 10, version=2, kind="consumable")
    assert (409, "kind") == (reply.status, reply.body["field"])


async def test_an_override_of_nothing_cannot_be_taken_back(server: Server, api: Api, tenant: str) -> None:
    reply = await api.set_limit(tenant, None, source="OVERRIDE")
    assert (400, "limit") == (reply.status, reply.body["field"])
    assert (0, None) == await server.etcd.allocations.read(QuotaKey(tenant, "vcpu"))


async def test_a_body_that_does_not_arrive_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_WITHIN_S", 0.2)
    reader, writer = await asyncio.open_connection(*api.address)
    try:
        writer.write(b"POST /v1/reservations HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(1000), 5)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"field":"body"' in answer
    finally:
        writer.close()
        await writer.wait_closed()


async def test_what_is_no_http_leaves_no_traceback_in_the_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "aiohttp.server"):
        assert (await api.say(b"GARBAGE\r\n\r\n")).startswith(b"HTTP/1.")
    assert [] == [record for record in caplog.records if record.exc_info]
