"""The client against a real region server: what is answered, what is lost, what is cancelled."""

import asyncio
import time

import pytest
from tests.client.conftest import Connect
from tests.client.front import Front
from tests.http.harness import Api, until

from regionquota.client import Client, Conflict, Denied, Line, NotFound, Refused, Unavailable
from regionquota.embedded import free_port


async def balances(api: Api, tenant: str) -> tuple[int, int]:
    usage = await api.usage(tenant)
    return usage["used"], usage["reserved"]


# -- answers --


async def test_what_is_reserved_is_committed_and_looked_up(client: Client, quota: str) -> None:
    held = await client.reserve(quota, "vcpu", 4)
    assert ("PENDING", 4, 6, 10) == (held.status, held.amount, held.remaining, held.limit)
    done = await client.commit(held, 3)
    assert ("COMMITTED", 3) == (done.status, done.actual_amount)
    assert done == await client.status(held)
    assert done == await client.find(quota, held.request_id)
    assert await client.find(quota, "nobody's") is None


async def test_a_hold_is_started_extended_and_released(client: Client, api: Api, quota: str) -> None:
    held = await client.reserve(quota, "vcpu", 4, ttl_s=5)
    started = await client.start(held, "vm-17")
    assert ("STARTED", "vm-17") == (started.status, started.operation_id)
    assert (await client.extend(held, 600)).expires_at > held.expires_at
    assert "RELEASED" == (await client.release(held)).status
    assert (0, 0) == await balances(api, quota)


async def test_further_lines_are_charged(client: Client, api: Api, quota: str) -> None:
    await api.set_limit(quota, 5, scope="user:y")
    held = await client.reserve(quota, "vcpu", 4, lines=[Line(scope="user:y", amount=1)])
    assert [("user:y", 1)] == [(line.scope, line.amount) for line in held.lines]


async def test_usage_is_adjusted(client: Client, quota: str) -> None:
    await client.commit(await client.reserve(quota, "vcpu", 4))
    assert 1 == (await client.adjust(quota, "vcpu", -3, reason="deleted")).used


async def test_a_denial_says_why_and_when_to_come_back(client: Client, quota: str) -> None:
    with pytest.raises(Denied, match="11 of vcpu asked for") as denied:
        await client.reserve(quota, "vcpu", 11)
    assert ("OVER_LIMIT", 10.0) == (denied.value.reason, denied.value.retry_after_s)


async def test_a_caller_says_how_much_it_matters(client: Client, api: Api, quota: str) -> None:
    await api.set_limit(quota, 10, version=2, low_fill_percent=50)
    with pytest.raises(Denied) as denied:
        await client.reserve(quota, "vcpu", 6, priority="low", request_id="a")
    assert "KEPT_FOR_HIGHER_PRIORITY" == denied.value.reason
    assert 6 == (await client.reserve(quota, "vcpu", 6, priority="high", request_id="a")).amount


async def test_a_caller_may_wait_for_room(client: Client, quota: str) -> None:
    held = await client.reserve(quota, "vcpu", 10)
    waiting = asyncio.create_task(client.reserve(quota, "vcpu", 1, wait_ms=20_000))
    await asyncio.sleep(0.2)
    await client.release(held)
    assert 1 == (await waiting).amount


async def test_what_is_wrong_is_told_apart(client: Client, quota: str) -> None:
    with pytest.raises(NotFound) as missing:
        await client.reserve(quota, "nothing", 1)
    assert "UNKNOWN_QUOTA" == missing.value.reason
    with pytest.raises(Refused) as refused:
        await client.reserve(quota, "vcpu", 0)
    assert "amount" == refused.value.field
    held = await client.reserve(quota, "vcpu", 1)
    await client.commit(held)
    with pytest.raises(Conflict) as conflict:
        await client.release(held)
    assert ("WRONG_STATE", "COMMITTED") == (conflict.value.reason, conflict.value.status)


# -- lost answers --


async def test_a_reserve_whose_answer_is_lost_is_one_hold(client: Client, front: Front, api: Api, quota: str) -> None:
    front.lose = 2
    held = await client.reserve(quota, "vcpu", 4)
    assert ["POST reservations"] * 3 == front.asked
    assert (0, 4) == await balances(api, quota)
    front.lose = 2
    await client.commit(held)
    assert (4, 0) == await balances(api, quota)


async def test_a_server_that_is_not_ready_is_asked_again(client: Client, front: Front, quota: str) -> None:
    front.refuse = 3
    assert 4 == (await client.reserve(quota, "vcpu", 4)).amount


async def test_another_server_is_asked_where_one_is_away(connect: Connect, front: Front, quota: str) -> None:
    client = await connect([f"http://127.0.0.1:{free_port()}", front.url, f"http://127.0.0.1:{free_port()}"])
    for _ in range(3):
        await client.release(await client.reserve(quota, "vcpu", 10))


async def test_a_server_that_hangs_costs_one_attempt(connect: Connect, front: Front, api: Api, quota: str) -> None:
    front.hanging = True
    client = await connect([front.url, api.url], attempt_s=0.3, deadline_s=60.0)
    for number in range(20):  # whichever is asked first
        assert 1 == (await client.reserve(quota, "vcpu", 1, request_id=f"r{number % 5}")).amount
    assert len(front.asked) < 20


@pytest.mark.parametrize("hanging", [True, False])
async def test_without_any_server_a_call_ends_in_time_and_says_if_it_may_be_done(
    connect: Connect, front: Front, quota: str, hanging: bool
) -> None:
    front.hanging = True
    client = await connect([front.url if hanging else f"http://127.0.0.1:{free_port()}"], deadline_s=0.4)
    began = time.monotonic()
    with pytest.raises(Unavailable) as unavailable:
        await client.reserve(quota, "vcpu", 1)
    assert 0.4 <= time.monotonic() - began
    assert hanging is unavailable.value.maybe_done


@pytest.mark.parametrize("said", ["<html>", "{}", "[]", '{"reservation_id": 7}'])
async def test_an_answer_of_somebody_in_between_is_none(client: Client, front: Front, quota: str, said: str) -> None:
    front.says = said
    with pytest.raises(Unavailable, match="cannot be read") as unavailable:
        await client.reserve(quota, "vcpu", 1)
    assert unavailable.value.maybe_done


# -- a hold around work --


async def test_work_that_is_done_is_charged(client: Client, api: Api, quota: str) -> None:
    async with client.reserved(quota, "vcpu", 4):
        assert (0, 4) == await balances(api, quota)
    assert (4, 0) == await balances(api, quota)


@pytest.mark.parametrize(("used", "charged"), [(3, 3), (6, 6), (0, 0)])
async def test_work_is_charged_at_what_it_took(client: Client, api: Api, quota: str, used: int, charged: int) -> None:
    async with client.reserved(quota, "vcpu", 4) as hold:
        hold.use(used)
    assert (charged, 0) == await balances(api, quota)


async def test_work_that_fails_is_given_back(client: Client, api: Api, quota: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.reserved(quota, "vcpu", 4):
            raise ZeroDivisionError
    assert (0, 0) == await balances(api, quota)


async def test_work_that_was_started_and_fails_is_left_to_who_carries_it_out(
    client: Client, api: Api, quota: str
) -> None:
    async def work() -> None:
        async with client.reserved(quota, "vcpu", 4) as hold:
            await hold.start("vm-17")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert (0, 4) == await balances(api, quota)


async def test_work_that_is_cancelled_is_given_back(client: Client, api: Api, quota: str) -> None:
    async def work() -> None:
        async with client.reserved(quota, "vcpu", 4):
            await asyncio.sleep(3600)

    task = asyncio.create_task(work())
    await until(lambda: holds(api, quota, 4))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (0, 0) == await balances(api, quota)


async def test_a_commit_goes_on_when_its_caller_is_cancelled(
    client: Client, front: Front, api: Api, quota: str
) -> None:
    async def work() -> None:
        async with client.reserved(quota, "vcpu", 4):
            front.hanging = True

    task = asyncio.create_task(work())
    await until(lambda: asked(front, "POST commit"))
    task.cancel()
    assert [asyncio.CancelledError] == [type(one) for one in await asyncio.gather(task, return_exceptions=True)]
    front.hanging = False
    await client.close()
    assert (4, 0) == await balances(api, quota)


async def holds(api: Api, tenant: str, units: int) -> bool:
    return await balances(api, tenant) == (0, units)


async def asked(front: Front, call: str) -> bool:
    return call in front.asked


# -- connections --


async def test_a_storm_of_cancelled_calls_leaves_one_connection_usable(connect: Connect, api: Api, quota: str) -> None:
    client = await connect(connections=1)
    calls = [asyncio.create_task(client.reserve(quota, "vcpu", 1, ttl_s=1)) for _ in range(200)]
    for call in calls[::-1]:
        await asyncio.sleep(0)
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert 1 == (await client.reserve(quota, "vcpu", 1, wait_ms=10_000)).amount


async def test_more_callers_than_connections_are_served_in_turn(connect: Connect, quota: str) -> None:
    client = await connect(connections=2)
    held = await asyncio.gather(*(client.reserve(quota, "vcpu", 1) for _ in range(10)))
    assert 10 == len({one.reservation_id for one in held})


async def test_a_closed_client_says_so(client: Client, quota: str) -> None:
    await client.close()
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.reserve(quota, "vcpu", 1)


def test_a_client_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Client([])


async def test_a_tenants_calls_go_to_one_server_of_several(connect: Connect, front: Front, api: Api) -> None:
    async with Front.before(front.target) as other:
        client = await connect([front.url, other.url])
        for name in "abcdefgh":
            before = len(front.asked)
            for _ in range(3):
                with pytest.raises(NotFound):
                    await client.reserve(name, "vcpu", 1)
            assert len(front.asked) - before in (0, 3)
        assert front.asked
        assert other.asked
