"""regionquota explore: what it refuses, and what it answers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.cli import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["explore", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert "Traceback" not in result.output
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--runs", "0"], "--runs"),
        (["--seconds", "0"], "--seconds"),
        (["--workers", "0"], "--workers"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "one"], "--seed"),
        (["--ablate", "nothing"], 'unknown safeguard "nothing": known are all, older-revision'),
        (["--ablate", "digest", "--table", "x.md"], "--table goes with --ablate all"),
        (["--seed", "1", "--exhaustive"], "exclude each other"),
    ],
)
def test_wrong_options_are_refused_by_name(options: list[str], says: str) -> None:
    code, output = run(*options)
    assert 2 == code
    assert says in " ".join(output.split())


def test_the_last_line_of_json_is_the_count() -> None:
    code, output = run("--runs", "50", "--workers", "1", "--json")
    assert 0 == code
    counted = json.loads(output.splitlines()[-1])
    assert (50, 0) == (counted["runs"], counted["violations"])
    assert {"distinct_states", "seconds", "faults"} <= counted.keys()


def test_one_seed_is_told_step_by_step() -> None:
    code, output = run("--seed", "4711")
    assert 0 == code
    assert "nothing is broken" in output
    assert output == run("--seed", "4711")[1]


def test_a_safeguard_taken_out_is_missed() -> None:
    code, output = run("--ablate", "decrease-first")
    assert 0 == code
    assert "B: " in output


def test_help_shows_examples(tmp_path: Path) -> None:
    code, output = run("--help")
    assert 0 == code
    assert "regionquota explore --seed 4711" in " ".join(output.split())
