"""Real faults on real processes, in short: what is asserted is only that nothing was lost, doubled or passed."""

from dataclasses import replace
from pathlib import Path

import pytest

from regionquota.chaos.callers import Callers
from regionquota.chaos.cluster import Shape
from regionquota.chaos.history import Answer, Ask
from regionquota.chaos.run import Scenario, Stage, run
from regionquota.chaos.scenarios import SCENARIOS

ONE_REGION = Shape(regions=("eu",))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regionquota.chaos.run.WARM_UP_S", 0.5)


@pytest.mark.parametrize("name", ["region-killed", "commit-cut"])
async def test_a_scenario_finds_nothing(name: str) -> None:
    result = await run(SCENARIOS[name], seconds=2)
    assert result.ok, (result.findings, result.error)
    assert result.acknowledged > 0
    assert sum(result.faults.values()) > 0


async def test_what_a_scenario_finds_is_told_and_its_histories_are_kept(tmp_path: Path) -> None:
    async def forge(stage: Stage) -> None:
        """A caller believes what nobody told it."""
        await stage.until("a reserve is granted", lambda: has_a_hold(stage.callers))
        told = next(op for op in stage.callers.history.ops if (op.ask, op.answer) == (Ask.RESERVE, Answer.DONE))
        stage.callers.history.ops.append(replace(told, name="never asked", reservation_id="never granted"))

    result = await run(Scenario("forged", "The checker can fail.", forge, ONE_REGION), keep=tmp_path)
    assert not result.ok
    assert 1 == result.counts["lost"]
    assert "never asked" in result.findings[0]
    assert {"history.json", "books.json", "region-eu-1.log"} <= {path.name for path in (tmp_path / "forged").iterdir()}


async def has_a_hold(callers: Callers) -> bool:
    return any((op.ask, op.answer) == (Ask.RESERVE, Answer.DONE) for op in callers.history.ops)


async def test_a_scenario_that_cannot_be_carried_out_proves_nothing() -> None:
    async def nothing(_stage: Stage) -> None:
        pass

    shape = Shape(regions=("eu",), etcd_options=("--no-such-flag",))
    result = await run(Scenario("stumbling", "It does not come to it.", nothing, shape))
    assert not result.ok
    assert "etcd ended with 2" in str(result.error)
