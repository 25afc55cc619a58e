"""What the command line refuses before it asks anybody, by the names of its own options, and the help it gives."""

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.cli import app
from regionquota.core.periods import Period

NOBODY = "0197d3a0-0000-7000-8000-000000000000"


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    file = tmp_path / "deployment.toml"
    file.write_text('[deployment]\nregions = { eu = { url = "http://127.0.0.1:1" } }\n')
    return file


def refusal(deployment: Path, *arguments: str) -> str:
    env = {"REGIONQUOTA_CONFIG": str(deployment), "COLUMNS": "200", "TERM": "dumb"}
    result = CliRunner().invoke(app, arguments, env=env)
    assert 2 == result.exit_code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["much"], 'limit must be an integer from 0 to 9223372036854775807 or "unlimited" or none, got "much"'),
        (["none"], "a PLAN must have a limit"),
        (["5", "--kind", "leaky"], "--kind"),
        (["5", "--refill", "5"], "--refill takes units per time, such as 100/60s"),
        (["5", "--refill", "5/s"], "--refill takes units per time, such as 100/60s"),
        (["5", "--refill", "0/60s"], "--refill must be an integer from 1"),
        (["5", "--refill", "5/0s"], "--refill must be a whole number of seconds from 1"),
        (["5", "--refill", "5/9999999h"], "--refill must be a whole number of seconds from 1"),
        (["5", "--refill", f"5/{'9' * 5000}s"], "--refill takes"),
        (["5", "--period", "year"], "--period"),
        (["5", "--enforcement", "lax"], "--enforcement"),
        (["5", "--enforced-percent", "101"], "--enforced-percent must be an integer from 0 to 100, got 101"),
        (["5", "--low-fill", "101"], "--low-fill must be an integer from 0 to 100, got 101"),
        (["5", "--enforced-percent", "none"], "--enforced-percent must be an integer from 0 to 100"),
        (["5", "--admission", "ajar"], "--admission"),
        (["5", "--max-single", "0"], "--max-single must be an integer from 1"),
        (["5", "--max-single", "few"], 'or none, got "few"'),
        (["5", "--max-single", "9" * 5000], "--max-single must be an integer from 1"),
        (["5", "--min-ttl", "-1"], "--min-ttl must be"),
        (["5", "--max-ttl", "31536001"], "--max-ttl must be a whole number of seconds from 1 to 31536000"),
        (["5", "--max-overdraft", "1.5"], "--max-overdraft must be"),
        (["5", "--time-zone", ""], "--time-zone must be"),
        (["5", "--parent", ""], "--parent must be"),
        (["5", "--guarantee", "-1"], "--guarantee must be"),
        (["5", "--region-weight", "eu"], "--region-weight takes REGION=N or REGION=none, such as eu=300, got 'eu'"),
        (["5", "--region-floor", "=5"], "--region-floor takes REGION=N"),
        (["5", "--region-cap", "eu="], "--region-cap takes REGION=N"),
        (["5", "--region-cap", "eu=1", "--region-cap", "eu=2"], "--region-cap is given twice for eu"),
        (["5", "--region-weight", "eu=10000001"], "--region-weight eu must be an integer from 0 to 10000000 or none"),
        (["5", "--region-floor", "eu=few"], 'or none, got "few"'),
        (["5", "--region-cap", "us=1", "--region-cap", "eu=-1"], "--region-cap eu must be an integer from 0"),
        (["5", "--version", "0"], "--version"),
        (["5", "--scope", ""], "scope must be"),
    ],
)
def test_a_wrong_option_of_a_limit_is_refused_by_name(deployment: Path, options: list[str], says: str) -> None:
    assert says in refusal(deployment, "quota", "set", "acme", "vcpu", *options)


@pytest.mark.parametrize("period", Period)
def test_each_period_is_an_option(deployment: Path, period: Period) -> None:
    """Nothing is wrong with it but that nobody is there to take it."""
    env = {"REGIONQUOTA_CONFIG": str(deployment)}
    given = ("quota", "set", "acme", "calls", "5", "--kind", "consumable", "--period", period.value)
    assert 1 == CliRunner().invoke(app, given, env=env).exit_code


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits", "is not TOML"),
        ("", "limits is missing"),
        ("limits = []", "limits must be a list of 1 to 100 limits"),
        ("[[limits]]\nresource = 'r'\nlimit = 1", "limits[0].tenant_id is missing"),
        ("[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = 1\nlimt = 5", 'unknown field "limits[0].limt": did'),
        (
            "[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = 1\nregions = { eu = { flor = 5 } }",
            "[0].regions.eu.flor",
        ),
        ("[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = 1\nmax_ttl_s = 0", "limits[0].max_ttl_s must be"),
        ("[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = nan", "limits[0].limit null takes an OVERRIDE back"),
        ("[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = 2024-01-01", "limits[0].limit must be"),
        ("[[limits]]\ntenant_id = 't'\nresource = 'r'\nlimit = 1\n" * 2, "limits must name each quota once"),
        ("[[limits]]\ntenant_id = ''\nresource = 'r'\nlimit = 1", "limits[0].tenant_id must be"),
    ],
)
def test_a_wrong_file_of_limits_is_refused_with_the_place(
    deployment: Path, tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(text)
    said = refusal(deployment, "quota", "set-many", str(file))
    assert says in said
    assert str(file) in said.replace(" ", "")


@pytest.mark.parametrize("name", ["nowhere.toml", "nowhere.json", "."])
def test_a_file_that_cannot_be_read_is_named(deployment: Path, tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(deployment, "quota", "set-many", str(tmp_path / name))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["quota", "set", "acme", "vcpu", "\udcff"], "limit must be"),
        (["quota", "set", "acme", "vcpu", "5", "--parent", "\udcff"], "--parent must be"),
        (["quota", "set", "acme", "vcpu", "5", "--max-ttl", "\udcff"], "--max-ttl must be"),
        (["quota", "set", "acme", "vcpu", "5", "--region-floor", "eu=\udcff"], "--region-floor eu must be"),
        (["quota", "set", "acme", "vcpu", "5", "--region-floor", "\udcff=1"], "--region-weight, --region-floor"),
        (["explain", "\udcff", "vcpu"], "tenant must be"),
        (["explain", "acme", "vcpu", "--scope", "\udcff"], "scope must be"),
        (["explain", "acme", "a" * 257], "resource must be"),
        (["simulate", "--from-live", "http://127.0.0.1:1", "--tenant", "\udcff", "--resource", "r"], "tenant must be"),
        (["simulate", "--from-live", "http://127.0.0.1:1", "--resource", "\udcff"], "resource must be"),
        (["region", "freeze", "eu", "--why", "\udcff"], "--why must be"),
        (["region", "evict", "eu", "--attest", "\udcff"], "--attest must be"),
    ],
)
def test_bytes_that_are_no_text_are_refused_by_name(deployment: Path, arguments: list[str], says: str) -> None:
    assert says in refusal(deployment, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ledger", "list", "acme", "--region", "a\nb"], 'unknown region "a\\nb": known are eu'),
        (["region", "list", "--config", "\x1b[31mred"], "cannot read \\x1b[31mred"),
        (["demo", "--regions", "\udcff"], '--regions takes 1 to 63 characters of a-z, 0-9 and -, got "\\udcff"'),
    ],
)
def test_what_was_given_does_not_break_the_line(deployment: Path, arguments: list[str], says: str) -> None:
    env = {"REGIONQUOTA_CONFIG": str(deployment)}
    result = CliRunner().invoke(app, arguments, env=env)
    (line,) = result.output.splitlines()
    assert (2, True) == (result.exit_code, says in line), line


def test_what_dev_left_where_one_may_not_look_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "exists", forbidden)
    result = CliRunner().invoke(app, ["region", "list"], env={"REGIONQUOTA_CONFIG": ""})
    assert 2 == result.exit_code
    assert "deployment.toml: Permission denied; name a configuration with --config" in result.output


@pytest.mark.parametrize("name", ["", "a\nb", "\udcff", "a" * 257])
@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("quota list --tenant NAME", "tenant must be a text"),
        ("reservation list --tenant NAME", "tenant must be a text"),
        (f"reconcile approve {NOBODY} --by NAME --reason x", "--by must be a text"),
        ("reconcile run --source NAME", "--source must be a text"),
    ],
)
def test_what_can_be_no_name_is_refused_by_its_option(deployment: Path, command: str, what: str, name: str) -> None:
    arguments = [name if word == "NAME" else word for word in command.split()]
    assert what in refusal(deployment, *arguments)


def test_a_reason_that_is_no_text_is_refused_by_its_option(deployment: Path) -> None:
    said = refusal(deployment, "reconcile", "reject", NOBODY, "--by", "ann", "--reason", "\udcff")
    assert "--reason must be a text" in said


def test_what_was_given_is_shown_as_it_was_given(deployment: Path) -> None:
    said = refusal(deployment, "quota", "set", "acme", "vcpu", "5", "--max-ttl", "max_ttl_s")
    assert said.endswith('got "max_ttl_s"')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list", "--state", "pending"], "--state takes unknown"),
        (["list", "--region", "mars"], 'unknown region "mars": known are eu'),
        (["list", "--limit", "0"], "--limit"),
        (["show", "nobody"], "ID must be a reservation id"),
        (["show", "../tenants"], "ID must be a reservation id"),
        (["commit", NOBODY], "--reason"),
        (["commit", NOBODY, "--reason", ""], "--reason must be a text of 1 to 1000 characters"),
        (["commit", NOBODY, "--reason", "x", "--actual", "0"], "--actual must be an integer from 1"),
        (["commit", NOBODY, "--reason", "x", "--actual", "-3"], "--actual must be an integer from 1"),
        (["commit", NOBODY, "--reason", "x", "--actual", "9" * 5000], "--actual must be an integer from 1"),
        (["release", NOBODY, "--reason", "a\nb"], "--reason must be"),
        (["release", NOBODY, "--reason", "\udcff"], "--reason must be"),
    ],
)
def test_a_wrong_word_on_a_reservation_is_refused_by_name(deployment: Path, arguments: list[str], says: str) -> None:
    assert says in refusal(deployment, "reservation", *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["suspend", "acme"], "--why"),
        (["suspend", "acme", "--why", ""], "--why must be a text of 1 to 1000 characters"),
        (["suspend", "", "--why", "x"], "tenant must be"),
        (["resume", "a\nb"], "tenant must be"),
    ],
)
def test_a_wrong_word_on_a_tenant_is_refused_by_name(deployment: Path, arguments: list[str], says: str) -> None:
    assert says in refusal(deployment, "tenant", *arguments)


@pytest.mark.parametrize(
    "command",
    [
        "quota set",
        "quota set-many",
        "quota suspend",
        "quota remove",
        "quota get",
        "quota list",
        "reservation list",
        "reservation show",
        "reservation commit",
        "reservation release",
        "tenant suspend",
        "tenant resume",
        "tenant list",
    ],
)
def test_help_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert 0 == result.exit_code
    assert f"regionquota {command}" in " ".join(result.output.split())


@pytest.mark.parametrize("width", [60, 100])
def test_help_is_as_wide_as_the_terminal_and_not_as_our_source(width: int) -> None:
    """A line ends where the next word would not fit."""
    result = CliRunner().invoke(app, ["tenant", "suspend", "--help"], env={"COLUMNS": str(width), "TERM": "dumb"})
    said = result.output[result.output.index("Let a tenant") : result.output.index("Arguments")]
    lines = [line.strip() for line in said.splitlines()[:-1]]
    for line, following in pairwise(line for line in lines if line):
        assert line.endswith(".") or len(line) + len(following.split()[0]) >= width - 4


@pytest.mark.parametrize(
    ("command", "section"),
    [("tenant suspend", "[agent] report_interval_s"), ("reconcile run", "Its name in [reconcile]")],
)
def test_help_names_sections_of_the_configuration(command: str, section: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert section in result.output


def test_the_columns_of_transfers_are_explained() -> None:
    result = CliRunner().invoke(app, ["transfers", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    for column in ("slice", "change", "to", "took"):
        assert f"{column}: " in result.output
