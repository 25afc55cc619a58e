"""What a tenant's usage tells of the last denial."""

from tests.http.harness import Api


async def test_the_last_denial_is_told_as_it_was_whatever_was_set_since(api: Api, quota: str) -> None:
    told = (await api.reserve(quota, 11)).body
    await api.set_limit(quota, 50, version=2)
    said = (await api.usage(quota))["last_denial"]
    assert (told["detail"], 10, 10, told["generation"]) == (
        said["detail"], said["limit"], said["slice"], said["generation"],
    )  # fmt: skip
    assert "more than the whole limit 10" in said["detail"]


async def test_what_a_parent_denies_is_the_last_denial_of_both_and_its_balances_are_told_there(
    api: Api, quota: str
) -> None:
    await api.set_limit(quota, 50, scope="project:x")
    told = (await api.reserve(quota, 11, scope="project:x")).body
    usage = (await api.get(f"/v1/tenants/{quota}/quotas")).body["quotas"]
    parent, child = (one["last_denial"] for one in sorted(usage, key=lambda one: str(one["scope"])))
    assert told["detail"] == parent["detail"] == child["detail"]
    assert "global" == told["line"]["scope"] == parent["line"]["scope"] == child["line"]["scope"]
    assert 10 == parent["limit"]
    assert "limit" not in child
    assert "vcpu (project:x) asked for" in (await api.reserve(quota, 51, scope="project:x")).body["detail"]
