"""What holds for the source as a whole and no single test of behaviour would notice."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from regionquota.adapters.postgres import statements

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "regionquota"
POSTGRES = SOURCE / "adapters" / "postgres"
LONGEST_FILE = 400
TABLES = {name: value for name, value in vars(statements).items() if name.isupper() and isinstance(value, dict)}

# Put together here, so that this file does not name what it forbids.
REGISTRIES = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npmjs" + ".org",
    "npmjs" + ".com",
    "anaconda" + ".org",
    "crates" + ".io",
    "proxy.golang" + ".org",
    "index" + "-url",
    "index" + "_url",
    "find" + "-links",
    "trusted" + "-host",
]


def sources(folder: Path = SOURCE) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    ]


def own_files() -> list[Path]:
    """What git tracks or would track; where there is no git, everything but folders that tools made."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    hidden = (".venv", ".git", "dist", "__pycache__")
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not any(part in hidden or part.endswith("_cache") for part in path.parts)
    ]


def named_in_code() -> Iterator[tuple[str, str]]:
    """Table and statement: what is looked up as TABLE["name"], or a part of a batch, {"name": _part(...)}."""
    for path in POSTGRES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(name))) if table in TABLES:
                    yield table, name
                case ast.Dict(keys=[*names], values=[ast.Call(func=ast.Name(id="_part")), *_]):
                    yield from (("STORE", name.value) for name in names if isinstance(name, ast.Constant))


def test_there_is_something_to_check() -> None:
    assert len(sources()) > 50
    assert len(own_files()) > 80
    assert len(set(named_in_code())) > 15


@pytest.mark.parametrize("table", TABLES)
def test_every_statement_is_used_and_every_statement_used_exists(table: str) -> None:
    assert set(TABLES[table]) == {name for of, name in named_in_code() if of == table}


def test_every_file_of_statements_is_loaded() -> None:
    assert {name.lower() for name in TABLES} == {path.stem for path in (POSTGRES / "sql").glob("*.sql")}


@pytest.mark.parametrize("path", sorted((POSTGRES / "sql").glob("*.sql")), ids=lambda path: path.name)
def test_statements_have_names_of_their_own_and_end_with_a_semicolon(path: Path) -> None:
    names = re.findall(r"^-- (.*) --$", path.read_text(), re.MULTILINE)
    assert len(names) == len(set(names)) == len(TABLES[path.stem.upper()])
    assert len(names) == path.read_text().count(";\n")
    assert path.read_text().startswith(f"-- {names[0]} --\n")


@pytest.mark.parametrize("table", TABLES)
def test_statements_take_parameters_and_are_never_put_together(table: str) -> None:
    for name, statement in TABLES[table].items():
        used = {int(number) for number in re.findall(r"\$(\d+)", statement)}
        assert used == set(range(1, len(used) + 1)), f"{name} does not use its parameters in a row"
        assert not re.search(r"%s|\{\w*\}", statement), f"{name} has holes to fill"


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    written = [path for path in sources() if path.name != "schema.sql"]  # pg_dump's, and nobody's to shorten
    lengths = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in written}
    assert {} == {name: lines for name, lines in lengths.items() if lines >= LONGEST_FILE}


def test_no_package_index_is_named_anywhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {needle}"
        for path in own_files()
        for needle in REGISTRIES
        if needle.encode() in path.read_bytes().lower()
    ]
    assert [] == found
