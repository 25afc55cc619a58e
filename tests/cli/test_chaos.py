"""regionquota chaos: what it refuses, and what it answers without breaking anything."""

import json

import pytest
from typer.testing import CliRunner

from regionquota.chaos.scenarios import SCENARIOS
from regionquota.cli import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["chaos", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert "Traceback" not in result.output
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seconds", "0"], "--seconds"),
        (["--seed", "-1"], "--seed"),
        (["--scenario", "earthquake"], 'unknown scenario "earthquake": known are region-killed, '),
    ],
)
def test_wrong_options_are_named(options: list[str], says: str) -> None:
    status, output = run(*options)
    assert 2 == status
    assert says in output


def test_the_list_says_what_each_shows() -> None:
    status, output = run("--list")
    assert 0 == status
    assert all(name in output for name in SCENARIOS)
    status, output = run("--list", "--json")
    assert list(SCENARIOS) == [one["name"] for one in json.loads(output)["scenarios"]]


def test_help_has_examples() -> None:
    assert "regionquota chaos --scenario region-killed" in run("--help")[1]
