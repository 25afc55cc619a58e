"""Named SQL statements, read once from the .sql files beside this one."""

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- ([a-z_]+) --$", re.MULTILINE)


def load(file: str) -> dict[str, str]:
    """Statements of `sql/{file}.sql` by name."""
    text = (files(__package__) / "sql" / f"{file}.sql").read_text()
    pieces = _NAME.split(text)[1:]
    return {name: body.strip().removesuffix(";") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


LEDGER: Final = load("ledger")
STORE: Final = load("store")
SLICES: Final = load("slices")
READS: Final = load("reads")
STANDING: Final = load("standing")
SUSPENSIONS: Final = load("suspensions")
PARTITIONS: Final = load("partitions")
USAGE: Final = load("usage")
CASES: Final = load("cases")
DEMAND: Final = load("demand")
