"""regionquota simulate --from-live, of a deployment that runs."""

import asyncio
import json

from tests.end_to_end.support import Deployment, run


async def drive(deployment: Deployment, tenant: str, done: asyncio.Event) -> None:
    while not done.is_set():
        await deployment.reserve("eu", tenant, 1, resource="calls")
        await deployment.reserve("us", tenant, 1, resource="calls")
        await asyncio.sleep(0.5)


async def test_what_if_a_region_is_cut_off(deployment: Deployment, tenant: str) -> None:
    body = {"kind": "consumable", "limit": 1200, "version": 1, "period": "hour"}
    status, said = await deployment.call("PUT", "eu", f"/v1/tenants/{tenant}/quotas/calls", body)
    assert 200 == status, said
    done = asyncio.Event()
    driving = asyncio.create_task(drive(deployment, tenant, done))
    try:
        status, said, error = await run(
            "simulate", "--from-live", deployment.url("us"), "--tenant", tenant, "--resource", "calls",
            "--cut", "eu", "--for", "5m", "--policy", "ours", "--json", config=deployment.file,
        )  # fmt: skip
    finally:
        done.set()
        await driving
    assert 0 == status, error
    told = json.loads(said.splitlines()[-1])
    assert (1200, 3) == (told["limit"], told["bins"])
    assert 0 == told["policies"]["ours"]["overshoot"]
    assert told["requests"] > 1000
    assert any("eu " in note and "us " in note for note in told["notes"])


async def test_a_quota_that_is_not_consumed_is_refused_in_words(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 10)
    await deployment.use("eu", tenant, 1)
    live = ("simulate", "--from-live", deployment.url("eu"), "--tenant", tenant)
    status, _, said = await run(*live, "--resource", "vcpu", config=deployment.file)
    assert 2 == status
    assert "only consumable quotas with a limit are simulated" in said
    status, _, said = await run(*live, "--resource", "none", config=deployment.file)
    assert 1 == status
    assert "knows no quota" in said


async def test_a_server_that_does_not_answer_is_named(deployment: Deployment, tenant: str) -> None:
    status, _, said = await run(
        "simulate", "--from-live", "http://127.0.0.1:9", "--tenant", tenant, "--resource", "x", config=deployment.file
    )
    assert 1 == status
    assert "http://127.0.0.1:9) does not answer" in said
