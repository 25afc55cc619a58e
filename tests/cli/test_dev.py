"""What `regionquota dev` takes to be its own, and what it tells to try."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.cli import app
from regionquota.cli.dev import commands_to_try, settings_of
from regionquota.embedded import free_port


def test_what_is_told_to_be_tried_works_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is understood, and asks the deployment that was meant, wherever it is pasted."""
    data_dir, elsewhere = tmp_path / "data of mine", tmp_path / "elsewhere"
    data_dir.mkdir()
    elsewhere.mkdir()
    file = data_dir / "deployment.toml"
    nobody = f"127.0.0.1:{free_port()}"
    file.write_text(f'[etcd]\nendpoints = ["{nobody}"]\n[deployment]\nregions = {{ eu = {{ url = "http://e" }} }}\n')
    monkeypatch.chdir(elsewhere)
    for line in commands_to_try(file):
        program, *arguments = shlex.split(line)
        result = CliRunner().invoke(app, arguments)
        assert ("regionquota", 1) == (program, result.exit_code), result.output
        assert nobody in result.output


def test_dev_does_not_join_the_deployment_that_commands_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(
        '[etcd]\nendpoints = ["etcd.prod:2379"]\n'
        '[deployment]\nregions = { eu = { url = "http://eu.prod", dsn = "postgresql://prod/eu" } }\n'
    )
    monkeypatch.setenv("REGIONQUOTA_CONFIG", str(file))
    _, databases, endpoints = settings_of(None, None, None)
    assert ({}, ()) == (databases, endpoints)
    _, databases, endpoints = settings_of(file, None, None)
    assert (["eu"], ("etcd.prod:2379",)) == ([*databases], endpoints)
