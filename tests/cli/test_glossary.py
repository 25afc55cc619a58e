"""What columns and figures mean is found where somebody looks for it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from regionquota.cli import app
from regionquota.cli.glossary import GLOSSARY

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.mark.parametrize("name", GLOSSARY)
def test_it_stands_in_the_help_and_in_the_docs(name: str) -> None:
    said = CliRunner().invoke(app, ["explain", "--help"], env={"COLUMNS": "400", "TERM": "dumb"}).output
    assert f"{name}: {GLOSSARY[name]}" in " ".join(said.split())
    assert f"| {name} | {GLOSSARY[name]} |" in OPERATIONS.read_text()
