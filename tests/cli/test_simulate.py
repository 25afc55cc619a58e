"""regionquota simulate: what it refuses, and what it answers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.cli import app

SCENARIO = """
name = "small"
shows = "Three regions follow the sun."
wait_s = 1
[regions]
eu = {}
us = {}
ap = {}
[demand]
shape = "follow_the_sun"
bins = 10
bin_s = 30
mean = 20
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(SCENARIO)
    return str(tmp_path / "small.toml")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert "Traceback" not in result.output
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--policy", "best"], 'unknown policy "best": known are oracle, static, periodic, ours, leases, pull'),
        (["--bins", "0"], "--bins"),
        (["--seed", "-1"], "--seed"),
        (["--set", "demand.bins"], "--set takes FIELD=VALUE"),
        (["--set", "demand.bins=many"], 'demand.bins takes an integer from 1 to 100000, got "many"'),
        (["--trace", "/none.csv"], "cannot read /none.csv"),
        (["--cut", "eu"], "--cut goes with --from-live: a file has [[events]]"),
        (["--for", "1h"], "--for goes with --from-live"),
        (["--from-live", "http://eu"], "give either a scenario's file, SCENARIO.toml, or --from-live URL"),
        (["--html", "/none/page.html"], "cannot write /none/page.html"),
    ],
)
def test_wrong_options_are_refused_by_name(file: str, options: list[str], says: str) -> None:
    code, output = run(file, *options)
    assert 2 == code
    assert says in " ".join(output.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give either a scenario's file"),
        (["--from-live", "eu"], "--from-live takes the URL of a region's server"),
        (["--from-live", "http://eu", "--trace", "t.csv"], "--trace goes with a scenario's file"),
        (["--from-live", "http://127.0.0.1:9", "--policy", "best"], 'unknown policy "best"'),
        (["--from-live", "http://127.0.0.1:9", "--for", "long"], "--for takes a time from 1s to 24h"),
    ],
)
def test_what_is_live_is_refused_by_name_too(options: list[str], says: str) -> None:
    code, output = run(*options)
    assert 2 == code
    assert says in " ".join(output.split())


def test_a_scenario_that_is_not_there_is_named() -> None:
    code, output = run("/none.toml")
    assert 2 == code
    assert "cannot read /none.toml" in output


def test_the_last_line_of_json_is_the_report(file: str) -> None:
    code, output = run(file, "--json")
    assert 0 == code
    told = json.loads(output.splitlines()[-1])
    assert ["oracle", "static", "periodic", "ours", "leases", "pull"] == list(told["policies"])
    assert ("small", 1, 300.0) == (told["scenario"], told["seed"], told["seconds"])
    assert 1.0 == told["policies"]["oracle"]["admitted_of_oracle"]
    assert 0 == told["policies"]["ours"]["overshoot"]


def test_only_the_policies_asked_for_are_told(file: str) -> None:
    _, output = run(file, "--policy", "static", "--json", "--bins", "3", "--seed", "7")
    told = json.loads(output.splitlines()[-1])
    assert (["static"], 3, 7) == (list(told["policies"]), told["bins"], told["seed"])


def test_the_table_says_what_the_scenario_shows_and_what_each_policy_is(file: str) -> None:
    code, output = run(file, "--bins", "3")
    assert 0 == code
    assert "small: Three regions follow the sun." in output
    assert "ours: this product as it is shipped" in output
    assert "waited and were served" in output


def test_what_happens_and_what_the_columns_mean_is_told(file: str, tmp_path: Path) -> None:
    events = (
        'events=[{what="partition", region="eu", at_s=60, until_s=90}, {what="weight", region="us", weight=7, at_s=0}]'
    )
    page = tmp_path / "page.html"
    code, output = run(
        file, "--bins", "3", "--policy", "static", "--policy", "ours", "--set", events, "--html", str(page)
    )
    assert 0 == code
    said = " ".join(output.split())
    assert "eu cut off from 1 min to 1:30 min; us has weight 7 from 0 on" in said
    assert re.search(r"requests for [0-9]+ units in 3 bins of 30 s, 3 regions, limit [0-9]+ units per bin", said)
    for told in (
        "% of oracle: ",
        "false denials: ",
        "overshoot: ",
        "Jain's index: ",
        "so that these two may admit more",
    ):
        assert told in said
    assert "so that these two may admit more" in page.read_text()


def test_what_changes_nothing_is_warned_of_everywhere(file: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    event = 'events=[{what="coordinator_down", at_s=600}]'
    words = ("--bins", "3", "--policy", "static", "--set", event, "--set", "demand.clients=3")
    code, output = run(file, *words, "--html", str(page), "--json")
    assert 0 == code
    warnings = [
        "demand.clients changes nothing: it goes with clients, and this demand is follow_the_sun",
        "events[0] (coordinator_down) begins at 600 s, but the scenario ends at 90 s: it changes nothing",
    ]
    assert warnings == json.loads(output.splitlines()[-1])["warnings"]
    for warning in warnings:
        assert f"warning: {warning}" in output
        assert warning in page.read_text()


def test_a_file_that_is_wrong_is_named_with_the_field(file: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("bin,eu,us,ap\n0,1,2,many\n")
    code, output = run(file, "--trace", str(trace))
    assert 2 == code
    said = f"error: {file}: demand.trace: {trace}: line 2, column ap: demand must be a number from 0 to 2,000,000"
    assert said in " ".join(output.split())


def test_a_quota_with_rules_is_told_region_by_region(file: str) -> None:
    rules = ("--set", "quota.regions.eu.floor=30", "--set", "quota.regions.us.cap=5")
    _, plain = run(file, "--policy", "static", "--bins", "3", "--json")
    figures = json.loads(plain)["policies"]["static"]
    assert figures["admitted"] == sum(figures["admitted_by_region"].values())
    assert {"eu", "us", "ap"} == figures["admitted_by_region"].keys()
    _, output = run(file, "--policy", "static", "--bins", "3", *rules)
    assert "static │ eu     │ floor 30 │" in output
    assert "static │ us     │ cap 5    │" in output
    assert "rules bind periodic and ours; the other policies know none" in output
    _, without = run(file, "--policy", "static", "--bins", "3")
    assert "rules" not in without


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_seed_gives_the_same_report_byte_for_byte(file: str, tmp_path: Path, hash_seed: str) -> None:
    def report(seed: str) -> tuple[bytes, bytes]:
        page = tmp_path / f"{seed}.html"
        done = subprocess.run(
            [sys.executable, "-m", "regionquota", "simulate", file, "--json", "--html", str(page)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        return done.stdout, page.read_bytes()

    assert report("0") == report(hash_seed)


def test_help_shows_examples() -> None:
    code, output = run("--help")
    assert 0 == code
    assert "simulations/partition.toml --html" in output
