"""What is refused is demand of the quota that refused it, however many others would have let it pass."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.http.harness import Api, until

from regionquota.adapters.etcd.directory import EtcdDirectory
from regionquota.core.demand import Demand

USER, PROJECT, MARK = "user:y", "project:x", "mark"
LINES = [{"scope": PROJECT}]
WAIT_MS = 3_000


class Told:
    """What the coordinators were told of scopes, over all reports: units `granted` and `denied`."""

    def __init__(self) -> None:
        self.granted: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()

    def hear(self, tenant: str, words: Sequence[Demand]) -> None:
        for word in words:
            if word.key.tenant == tenant:
                self.granted[word.key.scope] += word.granted
                self.denied[word.key.scope] += word.denied


@pytest.fixture
async def budgets(api: Api, tenant: str) -> str:
    """The user has 5 left, the project 2 of 10, all of which this region holds."""
    await api.set_limit(tenant, 5, scope=USER)
    await api.set_limit(tenant, 10, scope=PROJECT)
    await api.settle("commit", await api.hold(tenant, 8, scope=PROJECT))
    await api.settle("release", await api.hold(tenant, scope=USER))
    return tenant


@pytest.fixture
async def told(budgets: str, monkeypatch: pytest.MonkeyPatch) -> Told:
    """From after the making of `budgets` on."""
    heard, report = Told(), EtcdDirectory.report

    async def overheard(self: EtcdDirectory, session: Any, region: str, instance: str, words: Sequence[Demand]) -> None:
        await report(self, session, region, instance, words)
        heard.hear(budgets, words)

    monkeypatch.setattr(EtcdDirectory, "report", overheard)
    return heard


async def all_is_told(api: Api, tenant: str, told: Told) -> None:
    """What is granted now is told with what was asked for before it, or later."""
    await api.set_limit(tenant, 1, scope=MARK)
    await api.hold(tenant, scope=MARK)

    async def mark_is_told() -> bool:
        return told.granted[MARK] == 1

    await until(mark_is_told)


async def test_what_passes_here_and_is_refused_above_is_demand_of_what_refused_it(
    api: Api, budgets: str, told: Told
) -> None:
    reply = await api.reserve(budgets, 4, scope=USER, lines=LINES)
    assert (429, PROJECT) == (reply.status, reply.body["line"]["scope"])
    await all_is_told(api, budgets, told)
    assert {PROJECT: 4} == +told.denied


async def test_who_waits_and_is_refused_by_another_quota_then_is_demand_of_both(
    api: Api, budgets: str, told: Told
) -> None:
    held = await api.hold(budgets, 2, scope=USER)
    waiting = asyncio.create_task(api.reserve(budgets, 4, scope=USER, lines=LINES, wait_ms=WAIT_MS))

    async def is_told_of_the_user() -> bool:
        return told.denied[USER] == 4

    await until(is_told_of_the_user)
    await api.settle("release", held)
    reply = await waiting
    assert (429, PROJECT) == (reply.status, reply.body["line"]["scope"])

    async def is_told_of_both() -> bool:
        return {USER: 4, PROJECT: 4} == +told.denied

    await until(is_told_of_both)


@pytest.mark.parametrize("rules", [{"max_single_amount": 3}, {"admission_open": False}])
async def test_what_no_capacity_would_let_pass_is_no_demand(
    api: Api, budgets: str, told: Told, rules: dict[str, Any]
) -> None:
    await api.set_limit(budgets, 5, scope=USER, version=2, **rules)
    assert 429 == (await api.reserve(budgets, 4, scope=USER)).status
    await all_is_told(api, budgets, told)
    assert not +told.denied
