"""region evict, readmit and recover from the command line, on a deployment that is well."""

import json

import aiohttp
import pytest
from tests.end_to_end.support import Deployment, eventually, run

from regionquota.core.quota import QuotaKey


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("evict", "nowhere", "--attest", "gone"), 'unknown region "nowhere"'),
        (("evict", "eu", "--attest", " "), "say how you know that eu spends no more"),
        (("evict", "eu", "--attest", "x" * 1001), "a text of 1 to 1000 characters"),
        (("evict", "eu", "--attest", "powered off"), "eu shows a sign of life"),
        (("readmit", "eu"), "eu is not evicted, it is active"),
        (("recover",), "there is nothing to recover"),
    ],
)
async def test_what_would_do_harm_to_a_healthy_deployment_is_refused(
    deployment: Deployment, arguments: tuple[str, ...], says: str
) -> None:
    code, stdout, stderr = await run("region", *arguments, config=deployment.file)
    assert (2, "") == (code, stdout)
    assert says in " ".join(stderr.split())
    assert "Traceback" not in stderr


async def test_a_recovery_of_a_healthy_deployment_changes_nothing_but_the_name(
    deployment: Deployment, tenant: str
) -> None:
    key = QuotaKey(tenant, "vcpu")
    await deployment.set_limit(tenant, 100)
    assert 201 == (await deployment.reserve("eu", tenant, 3))[0]
    _, before = await deployment.operator.allocations.read(key)
    code, stdout, stderr = await run("region", "recover", "--anyway", "--json", config=deployment.file)
    assert 0 == code, stderr
    said = json.loads(stdout)
    assert (["ap", "eu", "us"], {}) == (said["regions"], said["over"])
    _, after = await deployment.operator.allocations.read(key)
    assert before is not None
    assert after is not None
    assert before.slice_of("eu") <= before.limit == after.limit

    async def serves() -> bool:
        try:
            return (await deployment.reserve("us", tenant, 1))[0] == 201
        except aiohttp.ClientError:
            return False  # it begins anew

    await eventually(serves, 30, "a claim in the new history")
