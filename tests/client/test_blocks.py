"""Units in advance: none is lost, none is counted twice, whenever a block ends."""

import asyncio
import time

import pytest
from tests.client.front import Front
from tests.clocks import HandClock
from tests.core.builders import at
from tests.http.harness import Api, Server, Start, until

from regionquota.client import Client, Denied, Unavailable


async def balances(api: Api, tenant: str) -> tuple[int, int]:
    usage = await api.usage(tenant)
    return usage["used"], usage["reserved"]


async def test_units_are_handed_out_without_a_call_for_each(client: Client, front: Front, api: Api, quota: str) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        for _ in range(8):
            await block.take()
        assert ["POST reservations"] == front.asked
    assert (8, 0) == await balances(api, quota)


async def test_what_was_not_used_is_given_back(client: Client, api: Api, quota: str) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        await block.take(3)
        assert (0, 8) == await balances(api, quota)
    assert (3, 0) == await balances(api, quota)


async def test_a_block_of_which_nothing_is_used_asks_nobody(client: Client, front: Front, quota: str) -> None:
    async with client.block(quota, "vcpu", 8):
        pass
    assert [] == front.asked


async def test_the_last_units_of_a_limit_are_handed_out_and_no_more(client: Client, api: Api, quota: str) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        for _ in range(10):
            await block.take()
        with pytest.raises(Denied) as denied:
            await block.take()
        assert "OVER_LIMIT" == denied.value.reason
    assert (10, 0) == await balances(api, quota)


async def test_a_block_of_low_priority_takes_what_such_a_one_may_and_no_more(
    client: Client, api: Api, quota: str
) -> None:
    await api.set_limit(quota, 10, version=2, low_fill_percent=50)
    async with client.block(quota, "vcpu", 8, priority="low") as block:
        for _ in range(5):
            await block.take()
        with pytest.raises(Denied) as denied:
            await block.take()
        assert "KEPT_FOR_HIGHER_PRIORITY" == denied.value.reason
    assert (5, 0) == await balances(api, quota)


async def test_more_than_a_block_may_be_taken_at_once(client: Client, api: Api, quota: str) -> None:
    async with client.block(quota, "vcpu", 2) as block:
        await block.take()
        await block.take(9)
        with pytest.raises(Denied):
            await block.take()
    assert (10, 0) == await balances(api, quota)


async def test_many_that_take_at_once_get_the_limit_and_not_one_more(client: Client, api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 50)
    async with client.block(tenant, "vcpu", 20) as one, client.block(tenant, "vcpu", 7) as other:
        outcomes = await asyncio.gather(
            *(block.take() for block in (one, other) for _ in range(40)), return_exceptions=True
        )
        assert {type(None), Denied} == set(map(type, outcomes))
    used, reserved = await balances(api, tenant)
    assert (outcomes.count(None), 0) == (used, reserved)
    assert 30 < used <= 50


async def test_who_is_denied_asks_once_for_all_that_wait(client: Client, front: Front, api: Api, quota: str) -> None:
    await api.hold(quota, 10)
    async with client.block(quota, "vcpu", 5) as block:
        outcomes = await asyncio.gather(*(block.take() for _ in range(50)), return_exceptions=True)
    assert [Denied] * 50 == [type(one) for one in outcomes]
    assert len(front.asked) <= 2


async def test_a_block_that_nobody_needs_any_more_is_settled_within_its_time(
    client: Client, api: Api, quota: str
) -> None:
    async with client.block(quota, "vcpu", 8, ttl_s=1) as block:
        await block.take(3)

        async def is_settled() -> bool:
            return await balances(api, quota) == (3, 0)

        await until(is_settled)
        await block.take(2)
    assert (5, 0) == await balances(api, quota)


async def test_a_process_that_was_stopped_hands_out_nothing_that_is_past_its_time(
    client: Client, front: Front, quota: str
) -> None:
    async with client.block(quota, "vcpu", 4, ttl_s=1) as block:
        await block.take()
        time.sleep(1)  # noqa: ASYNC251 - as if stopped: no timer comes meanwhile
        await block.take()
        assert 2 == front.asked.count("POST reservations")


async def test_a_settlement_whose_answer_is_lost_charges_once(
    client: Client, front: Front, api: Api, quota: str
) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        await block.take(3)
        front.lose = 2
    assert (3, 0) == await balances(api, quota)


async def test_what_could_not_be_charged_is_told(front: Front, api: Api, quota: str) -> None:
    async with Client(front.url, attempt_s=0.2, deadline_s=0.3) as client:
        with pytest.raises(Unavailable, match="used and not charged"):  # noqa: PT012 - the end of the block raises
            async with client.block(quota, "vcpu", 8) as block:
                await block.take(3)
                front.hanging = True
        assert [3] == list(block.unsettled.values())
        front.hanging = False
        await block.close()
    assert {} == block.unsettled
    assert (3, 0) == await balances(api, quota)


async def test_a_settlement_that_failed_is_made_up_for_at_the_end(front: Front, api: Api, quota: str) -> None:
    async with (
        Client(front.url, attempt_s=0.2, deadline_s=0.3) as client,
        client.block(quota, "vcpu", 8, ttl_s=1) as block,
    ):
        await block.take(3)
        front.hanging = True

        async def has_tried() -> bool:
            return front.asked.count("POST commit") > 1

        await until(has_tried)
        await asyncio.sleep(0.5)
        assert [3] == list(block.unsettled.values())
        front.hanging = False
    assert (3, 0) == await balances(api, quota)


async def test_who_fails_is_heard_before_what_could_not_be_charged(front: Front, quota: str) -> None:
    async with Client(front.url, attempt_s=0.2, deadline_s=0.3) as client:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - as above
            async with client.block(quota, "vcpu", 8) as block:
                await block.take(3)
                front.hanging = True
                raise ZeroDivisionError


async def test_one_that_is_cancelled_while_it_waits_does_not_hold_up_the_others(
    client: Client, front: Front, quota: str
) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        front.hanging = True
        first, second = (asyncio.create_task(block.take()) for _ in range(2))
        await asyncio.sleep(0.1)
        front.hanging = False
        first.cancel()
        await asyncio.wait_for(second, 10)
        assert first.cancelled()


async def test_a_closed_block_hands_out_nothing(client: Client, quota: str) -> None:
    async with client.block(quota, "vcpu", 8) as block:
        await block.take()
    with pytest.raises(RuntimeError, match="closed"):
        await block.take()


@pytest.mark.parametrize("wrong", [0, -1])
async def test_nothing_is_no_number_of_units(client: Client, quota: str, wrong: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        async with client.block(quota, "vcpu", wrong):
            pass
    async with client.block(quota, "vcpu", 1) as block:
        with pytest.raises(ValueError, match="1 or more"):
            await block.take(wrong)


# -- the end of a period --


async def used(server: Server, tenant: str) -> dict[str, int]:
    """Of the current period and of those that have ended."""
    current = await server.look.fetchval("SELECT used FROM quota_counters WHERE tenant_id = $1", tenant)
    ended = await server.look.fetch("SELECT used FROM closed_counters WHERE tenant_id = $1", tenant)
    return {"now": current, "before": sum(row["used"] for row in ended)}


@pytest.mark.parametrize("late", [False, True], ids=["settled before its end", "settled after its end"])
async def test_a_block_that_meets_the_end_of_the_period_is_charged_to_its_own_once(
    start: Start, tenant: str, late: bool
) -> None:
    """What is left of it was the old period's: the new one begins with its own limit, and nothing of it is taken."""
    ends = at(2026, 6, 15, 13)
    clock = HandClock(ends - 1)
    server = await start(clock=clock)
    api = server.api
    await api.set_limit(tenant, 10, kind="consumable", period="hour")
    async with Client(api.url) as client, client.block(tenant, "vcpu", 6, ttl_s=600) as block:
        await block.take(4)
        if late:
            clock.seconds = ends + 1
            await api.settle("release", await api.hold(tenant))

        async def is_settled() -> bool:
            return await server.look.fetchval("SELECT count(*) FROM usage_ledger WHERE tenant_id = $1", tenant) > 0

        await until(is_settled)
        assert ({"now": 0, "before": 4} if late else {"now": 4, "before": 0}) == await used(server, tenant)
        clock.seconds = ends + 1
        await block.take(3)
        assert 4 == (await api.usage(tenant))["available"]
        assert 201 == (await api.reserve(tenant, 4)).status
        assert 429 == (await api.reserve(tenant, 1)).status
    assert {"now": 3, "before": 4} == await used(server, tenant)
