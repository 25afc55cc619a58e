"""Time that passes while somebody is away: the sweeper, the caller, or etcd."""

from collections.abc import AsyncIterator

import pytest
from tests.clocks import HandClock
from tests.core.builders import NOON, at
from tests.http.harness import Api, Server, Start, running, until

from regionquota.config import SweeperConfig
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory


@pytest.fixture
async def unswept(start: Start) -> tuple[Api, HandClock]:
    """A server whose sweeper does not come, and its clock."""
    clock = HandClock(NOON)
    server = await start(clock=clock, sweeper=SweeperConfig(interval_s=3600))
    clock.seconds += 1  # what is due at the start is swept then
    return server.api, clock


async def test_a_reserve_takes_what_a_hold_past_its_time_held_although_no_sweeper_came(
    unswept: tuple[Api, HandClock], tenant: str
) -> None:
    api, clock = unswept
    await api.set_limit(tenant, 10)
    await api.hold(tenant, 10, ttl_s=5)
    clock.seconds += 5
    assert 201 == (await api.reserve(tenant, 10)).status


async def test_usage_shows_a_hold_past_its_time_as_free_although_no_sweeper_came(
    unswept: tuple[Api, HandClock], tenant: str
) -> None:
    api, clock = unswept
    await api.set_limit(tenant, 10)
    await api.hold(tenant, 10, ttl_s=5)
    clock.seconds += 5
    usage = await api.usage(tenant)
    assert (0, 10) == (usage["reserved"], usage["available"])


async def test_a_hold_within_its_time_is_taken_from_nobody(unswept: tuple[Api, HandClock], tenant: str) -> None:
    api, clock = unswept
    await api.set_limit(tenant, 10)
    await api.hold(tenant, 10, ttl_s=5)
    clock.seconds += 4.9
    assert 429 == (await api.reserve(tenant, 1)).status
    assert 10 == (await api.usage(tenant))["reserved"]


# -- a partition that outlives the period --


@pytest.fixture
async def mortal_etcd() -> AsyncIterator[EmbeddedEtcd]:
    with scratch_directory() as directory:
        one = EmbeddedEtcd(directory / "etcd", unsafe_no_fsync=True)
        await one.start()
        yield one
        await one.kill()


async def used(server: Server, tenant: str) -> dict[str, int]:
    """Of the current period and of those that have ended."""
    current = await server.look.fetchval("SELECT used FROM quota_counters WHERE tenant_id = $1", tenant)
    ended = await server.look.fetch("SELECT used FROM closed_counters WHERE tenant_id = $1", tenant)
    return {"now": current, "before": sum(row["used"] for row in ended)}


async def test_what_was_used_before_a_partition_that_outlives_the_period_stays_in_its_period(
    postgres: EmbeddedPostgres, mortal_etcd: EmbeddedEtcd, tenant: str
) -> None:
    clock = HandClock(at(2026, 5, 31, 23, 50))
    async with running(postgres, mortal_etcd, clock=clock) as server:
        api = server.api
        await api.set_limit(tenant, 10, kind="consumable")
        await api.settle("commit", await api.hold(tenant, 6))
        open_ = await api.hold(tenant, 3, ttl_s=3600)
        await mortal_etcd.stop()
        clock.seconds = at(2026, 6, 1, 0, 10)
        await api.settle("commit", await api.hold(tenant, 8))
        await api.settle("commit", open_)
        assert 429 == (await api.reserve(tenant, 3)).status
        assert {"now": 8, "before": 9} == await used(server, tenant)

        await mortal_etcd.start()

        async def heard_again() -> bool:
            return (await api.set_limit(tenant, 12, version=2)).status == 200

        async def raised() -> bool:
            return bool((await api.usage(tenant))["slice"] == 12)

        await until(heard_again)
        await api.reserve(tenant, 4, request_id="more")
        await until(raised)
        assert {"now": 8, "before": 9} == await used(server, tenant)
        assert (201, 429) == ((await api.reserve(tenant, 4)).status, (await api.reserve(tenant, 1)).status)
