"""Runs that once found something, kept in a file: tests do them again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regionquota.explorer.run import Script


def kept(file: Path) -> Mapping[str, Script]:
    """By what they found. What a run's numbers choose may have changed since; they still are a run."""
    known = json.loads(file.read_text()) if file.exists() else []
    return {one["found"]: _script(one) for one in known}


def keep(file: Path, found: Mapping[str, Script]) -> None:
    """One that found the same is replaced."""
    lines = [json.dumps(_plain(name, one)) for name, one in {**kept(file), **found}.items()]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _script(plain: Mapping[str, Any]) -> Script:
    return Script(
        plain["start"],
        tuple(plain["numbers"]),
        plain["rest"],
        plain.get("fails_over", False),
        plain.get("loses_etcd", False),
        plain.get("urgent", False),
    )


def _plain(name: str, one: Script) -> Mapping[str, Any]:
    return {
        "found": name,
        "start": one.start,
        "numbers": one.numbers,
        "rest": one.rest,
        "fails_over": one.fails_over,
        "loses_etcd": one.loses_etcd,
        "urgent": one.urgent,
    }
