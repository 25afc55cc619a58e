"""The operators' command line against a running deployment."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from tests.end_to_end.support import PROGRAM, Deployment, eventually, run


async def ask(deployment: Deployment, *arguments: str) -> Any:
    status, said, error = await run(*arguments, "--json", config=deployment.file)
    assert 0 == status, error
    return json.loads(said)


async def test_a_limit_is_set_got_and_listed(deployment: Deployment, tenant: str) -> None:
    assert 500 == (await ask(deployment, "quota", "set", tenant, "vcpu", "500"))["limit"]
    assert {"amount": 500, "version": 1} == (await ask(deployment, "quota", "get", tenant, "vcpu"))["plan"]
    assert ["vcpu"] == [quota["resource"] for quota in await ask(deployment, "quota", "list", "--tenant", tenant)]


async def test_an_override_is_over_the_plan_until_it_is_taken_back(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500")
    assert 90 == (await ask(deployment, "quota", "set", tenant, "vcpu", "90", "--override"))["limit"]
    assert 500 == (await ask(deployment, "quota", "set", tenant, "vcpu", "none", "--override"))["limit"]


async def test_an_older_version_is_refused(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500", "--version", "7")
    status, _, said = await run("quota", "set", tenant, "vcpu", "400", "--version", "6", config=deployment.file)
    assert 1 == status
    assert "version 6 does not replace version 7" in said


async def test_rules_for_regions_are_set_taken_back_and_carried_out(deployment: Deployment, tenant: str) -> None:
    options = ("--region-floor", "eu=40", "--region-cap", "us=10", "--region-weight", "us=300")
    said = await ask(deployment, "quota", "set", tenant, "vcpu", "100", *options)
    assert {"weight": 300, "floor": 0, "cap": 10} == said["policy"]["regions"]["us"]

    async def has_its_floor() -> bool:
        slices = (await ask(deployment, "quota", "get", tenant, "vcpu"))["slices"]
        return bool(slices.get("eu", 0) >= 40)

    await eventually(has_its_floor)
    said = await ask(
        deployment, "quota", "set", tenant, "vcpu", "--region-cap", "us=none", "--region-weight", "us=none"
    )
    assert {"eu": {"weight": None, "floor": 40, "cap": None}} == said["policy"]["regions"]
    status, _, said = await run("quota", "set", tenant, "vcpu", "--region-floor", "mars=1", config=deployment.file)
    assert (2, True) == (status, "region mars is no region that has ever run: known are" in said)


async def test_regions_are_frozen_and_thawed_by_hand(deployment: Deployment) -> None:
    try:
        assert "work" == (await ask(deployment, "region", "freeze", "ap", "--why", "work"))["frozen"]["why"]
        await asyncio.sleep(2.5)  # rounds pass, and do not thaw what an operator froze
        listed = {one["region"]: one for one in (await ask(deployment, "region", "list"))["regions"]}
        assert "operator" == listed["ap"]["frozen"]["by"]
    finally:
        assert (await ask(deployment, "region", "thaw", "ap"))["frozen"] is None


async def test_transfers_tell_who_received_what(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 100)
    assert await deployment.use("eu", tenant, 1)
    found = [one for one in await ask(deployment, "transfers", "-n", "1000") if one["tenant_id"] == tenant]
    assert ("eu", 0) == (found[0]["region"], found[0]["before"])


async def test_transfers_are_followed_until_told_to_stop(deployment: Deployment, tenant: str) -> None:
    child = await asyncio.create_subprocess_exec(
        *PROGRAM, "transfers", "--follow", "--json", "--config", str(deployment.file), stdout=asyncio.subprocess.PIPE
    )
    try:
        await deployment.set_limit(tenant, 100)
        await deployment.use("us", tenant, 1)
        assert child.stdout is not None
        async with asyncio.timeout(20):
            while True:
                line = json.loads(await child.stdout.readline())
                if line["tenant_id"] == tenant:
                    break
        assert "us" == line["region"]
    finally:
        child.terminate()
        await child.wait()


async def test_audit_says_what_it_checked(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 100)
    await deployment.use("us", tenant, 1)
    status, said, _ = await run("audit", config=deployment.file)
    assert 0 == status
    assert "invariant A" in said
    assert "no difference" in said


@pytest.mark.parametrize(
    ("change", "undo", "difference"),
    [
        ("slice = slice + 7, available = available + 7", "slice = slice - 7, available = available - 7", "owns"),
        ("used = used + 1, available = available - 1", "used = used - 1, available = available + 1", "says used"),
    ],
)
async def test_audit_prints_the_first_difference_and_fails(
    deployment: Deployment, tenant: str, change: str, undo: str, difference: str
) -> None:
    await deployment.set_limit(tenant, 10)
    await eventually(lambda: deployment.use("us", tenant, 1))
    await asyncio.sleep(2)  # until the planner has nothing left to move
    await deployment.control("/proxies/us/cut")  # else the region may put right what it finds, before the audit looks
    database = await asyncpg.connect(deployment.config.deployment.regions["us"].dsn)
    try:
        await database.execute(f"UPDATE quota_counters SET {change} WHERE tenant_id = $1", tenant)
        status, said, _ = await run("audit", config=deployment.file)
        await database.execute(f"UPDATE quota_counters SET {undo} WHERE tenant_id = $1", tenant)
    finally:
        await database.close()
        await deployment.control("/proxies/us/heal")
    assert 1 == status
    assert "first difference: " in said
    assert difference in said
    assert tenant in said.replace("\n", "")
    await deployment.is_sound()


async def test_a_short_replay_holds_every_promise(deployment: Deployment) -> None:
    status, said, error = await run(
        "replay", "--bins", "10", "--bin-seconds", "0.5", "--scale", "0.3", "--json", config=deployment.file
    )
    assert 0 == status, error
    report = json.loads(said)
    assert ("held", "held", 0) == (report["invariant_a"], report["invariant_b"], report["overshoot"])
    assert report["admitted"] > 0
    await deployment.is_sound()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["quota", "set", "acme", "vcpu", "-5"], 2, "limit must be an integer from 0"),
        (["region", "weight", "eu", "-5"], 2, "weight must be an integer from 0"),
        (["quota", "set", "acme", "vcpu", "much"], 2, "limit must be an integer from 0"),
        (["quota", "set", "acme", "vcpu", str(2**63)], 2, "limit must be an integer from 0"),
        (["quota", "set", "", "vcpu", "5"], 2, "tenant must be"),
        (["quota", "set", "\udcff", "vcpu", "5"], 2, "tenant must be"),
        (["quota", "get", "nobody", "nothing"], 1, "unknown quota nobody/nothing"),
        (["region", "weight", "mars", "5"], 2, 'unknown region "mars": known are ap, eu, us'),
        (["region", "weight", "eu", "10000001"], 2, "weight must be an integer from 0"),
        (["replay", "/nowhere.csv"], 2, "/nowhere.csv"),
        (["replay", "--partition", "mars:1s-2s"], 2, "mars"),
        (["replay", "--partition", "ap:later"], 2, "partition"),
        (["nonsense"], 2, "nonsense"),
    ],
)
async def test_bad_input_is_answered_in_one_line(
    deployment: Deployment, arguments: list[str], status: int, says: str
) -> None:
    got, _, said = await run(*arguments, config=deployment.file)
    assert status == got
    assert says in said
    assert "Traceback" not in said
