"""What operators decide from the command line: policies, unknown work, suspension."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.support import Deployment, eventually, run


async def ask(deployment: Deployment, *arguments: str) -> Any:
    status, said, error = await run(*arguments, "--json", config=deployment.file)
    assert 0 == status, error
    return json.loads(said)


async def refusal(deployment: Deployment, *arguments: str, status: int = 2) -> str:
    got, _, said = await run(*arguments, config=deployment.file)
    assert status == got, said
    assert "Traceback" not in said
    return " ".join(said.split())


# -- policies --


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (
            ["100", "--kind", "rate", "--refill", "10/1m"],
            {"refill_amount": 10, "refill_interval_s": 60, "refill_per": 100},
        ),
        (
            ["100", "--kind", "consumable", "--period", "day", "--time-zone", "Europe/Berlin"],
            {"period": "day", "time_zone": "Europe/Berlin"},
        ),
        (
            ["100", "--enforcement", "soft", "--enforced-percent", "5", "--admission", "closed"],
            {"enforcement": "soft", "enforced_percent": 5, "admission_open": False},
        ),
        (
            ["100", "--max-single", "7", "--min-ttl", "10", "--max-ttl", "30", "--max-overdraft", "0"],
            {"max_single_amount": 7, "min_ttl_s": 10, "max_ttl_s": 30, "max_overdraft": 0},
        ),
        (
            ["100", "--scope", "project:x", "--parent", "folder:f", "--guarantee", "40"],
            {"parent": "folder:f", "guarantee": 40},
        ),
    ],
)
async def test_all_of_a_policy_is_set_and_shown(
    deployment: Deployment, tenant: str, options: list[str], policy: dict[str, Any]
) -> None:
    said = (await ask(deployment, "quota", "set", tenant, "vcpu", *options))["policy"]
    assert policy == {name: said[name] for name in policy}
    [listed] = await ask(deployment, "quota", "list", "--tenant", tenant)
    assert said == listed["policy"]


async def test_unlimited_is_set_and_shown_as_a_word(deployment: Deployment, tenant: str) -> None:
    said = await ask(deployment, "quota", "set", tenant, "vcpu", "unlimited")
    assert (None, True, {"amount": "unlimited", "version": 1}) == (said["limit"], said["unlimited"], said["plan"])
    for command in (["quota", "get", tenant, "vcpu"], ["quota", "list", "--tenant", tenant]):
        _, text, _ = await run(*command, config=deployment.file)
        assert "unlimited" in text


async def test_without_a_limit_only_the_policy_changes(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500", "--max-single", "7")
    said = await ask(deployment, "quota", "set", tenant, "vcpu", "--enforcement", "shadow")
    assert (500, 7, "shadow", 2) == (
        said["limit"],
        said["policy"]["max_single_amount"],
        said["policy"]["enforcement"],
        said["policy"]["generation"],
    )


async def test_none_takes_a_bound_away(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500", "--max-single", "7")
    said = await ask(deployment, "quota", "set", tenant, "vcpu", "--max-single", "none")
    assert said["policy"]["max_single_amount"] is None


async def test_only_what_differs_from_the_default_is_shown_to_people(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500", "--max-single", "7")
    _, text, _ = await run("quota", "get", tenant, "vcpu", config=deployment.file)
    assert "generation" in text
    assert "max_single_amount" in text
    assert "enforcement" not in text


async def test_a_quota_is_suspended_and_admits_again(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 10)
    await eventually(lambda: deployment.use("eu", tenant, 1))
    assert (await ask(deployment, "quota", "suspend", tenant, "vcpu"))["policy"]["admission_open"] is False

    async def closed() -> bool:
        return (await deployment.reserve("eu", tenant, 1))[1].get("reason") == "ADMISSION_CLOSED"

    await eventually(closed, what="the end of admission")
    await ask(deployment, "quota", "suspend", tenant, "vcpu", "--undo")
    await eventually(lambda: deployment.use("eu", tenant, 1), what="admission")


async def test_a_quota_that_nobody_holds_is_removed(deployment: Deployment, tenant: str) -> None:
    await ask(deployment, "quota", "set", tenant, "vcpu", "500")
    assert (await ask(deployment, "quota", "remove", tenant, "vcpu"))["removed"]
    assert "unknown quota" in await refusal(deployment, "quota", "remove", tenant, "vcpu", status=1)


async def test_a_quota_in_use_is_not_removed(deployment: Deployment, tenant: str) -> None:
    await deployment.set_limit(tenant, 10)
    await eventually(lambda: deployment.use("eu", tenant, 1))
    assert "is not drained" in await refusal(deployment, "quota", "remove", tenant, "vcpu", status=1)


LIMITS = """
[[limits]]
tenant_id = "{tenant}"
resource = "vcpu"
limit = 500
max_single_amount = 7

[[limits]]
tenant_id = "{tenant}-2"
resource = "calls"
limit = "unlimited"
{more}
"""


async def test_several_limits_are_set_from_a_file_and_again(
    deployment: Deployment, tenant: str, tmp_path: Path
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(LIMITS.format(tenant=tenant, more=""))
    for version in (1, 2):
        one, two = await ask(deployment, "quota", "set-many", str(file))
        assert (500, 7, version) == (one["limit"], one["policy"]["max_single_amount"], one["plan"]["version"])
        assert two["unlimited"]


async def test_several_limits_are_set_from_json(deployment: Deployment, tenant: str, tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    file.write_text(json.dumps({"limits": [{"tenant_id": tenant, "resource": "vcpu", "limit": 5}]}))
    assert [5] == [one["limit"] for one in await ask(deployment, "quota", "set-many", str(file))]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('period = "day"', "period belongs to consumable quotas"),
        ("version = 0", "limits[1].version must be"),
    ],
)
async def test_one_wrong_limit_of_a_file_sets_none(
    deployment: Deployment, tenant: str, tmp_path: Path, more: str, says: str
) -> None:
    name = f"{tenant.partition('[')[0]}-{uuid.uuid4().hex}"
    file = tmp_path / "limits.toml"
    file.write_text(LIMITS.format(tenant=name, more=more.format(tenant=name)))
    assert says in await refusal(deployment, "quota", "set-many", str(file))
    assert [] == await ask(deployment, "quota", "list", "--tenant", name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["5", "--kind", "rate"], "--refill is missing"),
        (["5", "--refill", "5/60s"], "--refill: a refill belongs to rate quotas"),
        (["5", "--kind", "consumable", "--time-zone", "Mars"], "--time-zone: Mars is no IANA time zone"),
        (["5", "--min-ttl", "60", "--max-ttl", "30"], "--min-ttl"),
        (["5", "--guarantee", "6"], "--guarantee must not be above the limit 5"),
        (["--enforcement", "soft"], "limit is missing: a new quota needs one"),
    ],
)
async def test_what_does_not_fit_the_quota_is_refused_by_the_options_name(
    deployment: Deployment, tenant: str, options: list[str], says: str
) -> None:
    assert says in await refusal(deployment, "quota", "set", tenant, "vcpu", *options)


# -- unknown work --


async def unknown_work(deployment: Deployment, region: str, tenant: str) -> str:
    """The id of started work of 3 whose deadline passed."""
    body = {"request_id": uuid.uuid4().hex, "tenant_id": tenant, "resource": "vcpu", "amount": 3, "ttl_s": 1}
    _, held = await deployment.call("POST", region, "/v1/reservations", body)
    name = str(held["reservation_id"])
    await deployment.call("POST", region, f"/v1/reservations/{name}/start", {"operation_id": f"op-{name}"})

    async def is_unknown() -> bool:
        return (await deployment.call("GET", region, f"/v1/reservations/{name}"))[1]["status"] == "UNKNOWN"

    await eventually(is_unknown, what="the end of its time")
    return name


@pytest.fixture
async def quota(deployment: Deployment, tenant: str) -> str:
    await deployment.set_limit(tenant, 100)
    for region in ("eu", "us"):
        await eventually(lambda region=region: deployment.use(region, tenant, 1))  # type: ignore[misc]
    return tenant


async def test_unknown_work_is_listed_over_all_regions_and_of_one(deployment: Deployment, quota: str) -> None:
    eu, us = [await unknown_work(deployment, region, quota) for region in ("eu", "us")]
    listed = await ask(deployment, "reservation", "list", "--tenant", quota)
    assert [("eu", eu), ("us", us)] == [(one["region"], one["reservation_id"]) for one in listed]
    assert [us] == [
        one["reservation_id"]
        for one in await ask(deployment, "reservation", "list", "--tenant", quota, "--region", "us")
    ]
    status, text, _ = await run("reservation", "list", "--state", "unknown", config=deployment.file)
    assert 0 == status
    assert f"op-{us}" in text


async def test_an_operator_commits_unknown_work_wherever_it_is(deployment: Deployment, quota: str) -> None:
    name = await unknown_work(deployment, "us", quota)
    said = await ask(deployment, "reservation", "commit", name, "--actual", "2", "--reason", "2 of 3 run")
    assert ("us", "COMMITTED", 2) == (said["region"], said["status"], said["actual_amount"])
    assert said == await ask(deployment, "reservation", "show", name)
    await deployment.is_sound()


async def test_an_operator_releases_unknown_work(deployment: Deployment, quota: str) -> None:
    name = await unknown_work(deployment, "eu", quota)
    said = await ask(deployment, "reservation", "release", name, "--reason", "nothing was made")
    assert ("eu", "RELEASED") == (said["region"], said["status"])
    assert [] == await ask(deployment, "reservation", "list", "--tenant", quota)
    refused = await refusal(deployment, "reservation", "commit", name, "--reason", "oh", status=1)
    assert "cannot commit: it is RELEASED" in refused


NOBODY = "0197d3a0-0000-7000-8000-000000000000"


async def test_a_reservation_that_nobody_has_is_said_to_be_nowhere(deployment: Deployment) -> None:
    said = await refusal(deployment, "reservation", "show", NOBODY, status=1)
    assert f"no reservation {NOBODY} in ap, eu, us" in said


async def test_a_region_that_does_not_answer_is_said_to_be_silent_and_the_others_are_shown(
    deployment: Deployment, quota: str, tmp_path: Path
) -> None:
    name = await unknown_work(deployment, "eu", quota)
    urls = {"eu": deployment.url("eu"), "us": "http://127.0.0.1:1"}
    file = tmp_path / "deployment.toml"
    regions = ", ".join(f'{region} = {{ url = "{url}" }}' for region, url in urls.items())
    file.write_text(f"[deployment]\nregions = {{ {regions} }}\n")
    status, said, error = await run("reservation", "list", "--tenant", quota, "--json", config=file)
    assert (1, [name]) == (status, [one["reservation_id"] for one in json.loads(said)])
    assert "us (http://127.0.0.1:1) does not answer" in error
    status, _, error = await run("reservation", "show", NOBODY, config=file)
    assert (1, True) == (status, "us (http://127.0.0.1:1) does not answer" in error)


# -- suspension --


async def test_a_suspended_tenant_reserves_nothing_in_any_region_until_it_is_resumed(
    deployment: Deployment, quota: str
) -> None:
    assert (await ask(deployment, "tenant", "suspend", quota, "--why", "unpaid"))["suspended"]
    try:

        async def denied() -> bool:
            answers = [await deployment.reserve(region, quota, 1) for region in ("eu", "us", "ap")]
            return all(said.get("reason") == "TENANT_SUSPENDED" for _, said in answers)

        await eventually(denied, what="suspension everywhere")
        assert ["unpaid"] == [
            one["why"] for one in await ask(deployment, "tenant", "list") if one["tenant_id"] == quota
        ]
        status, text, _ = await run("tenant", "list", config=deployment.file)
        assert (0, True) == (status, "unpaid" in text)
    finally:
        await ask(deployment, "tenant", "resume", quota)
    await eventually(lambda: deployment.use("eu", quota, 1), what="the first reserve")


async def test_a_tenant_that_is_not_suspended_is_not_resumed(deployment: Deployment) -> None:
    assert "tenant nobody is not suspended" in await refusal(deployment, "tenant", "resume", "nobody", status=1)
