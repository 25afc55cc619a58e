"""One limit, three regions: what a caller sees."""

import asyncio

from tests.end_to_end.support import Deployment, eventually, run


async def test_three_regions_admit_the_limit_and_not_one_more(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 90)

    async def demand(region: str) -> int:
        admitted = 0
        for _ in range(60):
            admitted += await deployment.use(region, tenant, 1)
            await asyncio.sleep(0.05)
        return admitted

    admitted = sum(await asyncio.gather(*(demand(region) for region in ("eu", "us", "ap"))))

    assert 80 <= admitted <= 90
    await deployment.is_sound()


async def test_headroom_follows_the_demand_from_an_idle_region(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 100)
    assert await deployment.use("eu", tenant, 1)

    async def us_has_most() -> bool:
        await deployment.use("us", tenant, 5)
        key = next(
            stored for stored in (await deployment.operator.allocations.list())[1] if stored.key.tenant == tenant
        )
        return key.allocation is not None and key.allocation.slice_of("us") >= 80

    await eventually(us_has_most, what="headroom moving to us")
    await deployment.is_sound()


async def test_a_region_in_use_of_a_quota_for_the_first_time_joins_at_once(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 10, region="us")

    assert 201 == (await deployment.reserve("ap", tenant, 1))[0]


async def test_an_unknown_quota_is_said_to_be_unknown(deployment: Deployment, tenant: str) -> None:
    status, problem = await deployment.reserve("ap", tenant, 1)

    assert (404, "UNKNOWN_QUOTA") == (status, problem["reason"])


async def test_a_limit_is_cut_while_it_is_in_use(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 100)
    for region, amount in (("eu", 30), ("us", 20), ("ap", 10)):
        await eventually(lambda region=region, amount=amount: deployment.use(region, tenant, amount))  # type: ignore[misc]

    answer = await deployment.set_limit(tenant, 20, version=2)
    assert (None, True) == (answer["effective_at"], answer["collecting"] > 0)

    used = {"eu": 30, "us": 20}

    async def nothing_is_admitted() -> bool:
        admitted = [region for region in used if await deployment.use(region, tenant, 1)]
        for region in admitted:
            used[region] += 1
        return not admitted

    await eventually(nothing_is_admitted, what="the cut taking effect everywhere")
    await deployment.is_sound()

    for region, amount in used.items():
        await deployment.give_back(region, tenant, amount)

    async def admits_again() -> bool:
        return await deployment.use("ap", tenant, 1)

    await eventually(admits_again, what="admission below the new limit")
    await deployment.is_sound()


async def test_weights_take_effect_in_the_next_rounds(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 1000)
    for region in ("eu", "us", "ap"):
        await eventually(lambda region=region: deployment.use(region, tenant, 1))  # type: ignore[misc]

    try:
        assert 0 == (await run("region", "weight", "eu", "300", config=deployment.file))[0]

        async def eu_has_three_times_as_much() -> bool:
            documents = (await deployment.operator.allocations.list())[1]
            allocation = next(stored.allocation for stored in documents if stored.key.tenant == tenant)
            assert allocation is not None
            return allocation.slice_of("eu") > 2.5 * allocation.slice_of("us") > 0

        await eventually(eu_has_three_times_as_much, what="weights at work")
    finally:
        await run("region", "weight", "eu", "100", config=deployment.file)


async def test_a_drained_region_gives_away_what_it_does_not_use(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 100)
    for region in ("eu", "us"):
        await eventually(lambda region=region: deployment.use(region, tenant, 2))  # type: ignore[misc]

    try:
        assert 0 == (await run("region", "drain", "us", config=deployment.file))[0]

        async def us_keeps_what_it_uses() -> bool:
            documents = (await deployment.operator.allocations.list())[1]
            allocation = next(stored.allocation for stored in documents if stored.key.tenant == tenant)
            assert allocation is not None
            return allocation.slice_of("us") == 2

        await eventually(us_keeps_what_it_uses, what="draining")
    finally:
        await run("region", "drain", "us", "--undo", config=deployment.file)
    await deployment.is_sound()
