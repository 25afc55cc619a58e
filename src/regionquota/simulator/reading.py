"""A scenario's file, and what is said otherwise, checked."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from regionquota.config import nearest
from regionquota.errors import InvalidRequest
from regionquota.simulator.checks import refuse_contradictions
from regionquota.simulator.misfits import SHOWN, misfit
from regionquota.simulator.scenario import Scenario

_REPLACED: Final = ("shape", "rates", "mean", "factor", "days", "clients", "scale", "skip")
"""Of a demand, where another trace takes its place."""
_ONE_OF: Final = {"demand": ("trace", "requests", "shape", "rates"), "quota": ("limit", "limit_factor")}
"""Of these the one that is said last counts."""


def read_scenario(path: Path, words: Sequence[str] = (), trace: Path | None = None) -> Scenario:
    """`words` say otherwise: `quota.limit_factor=1.0`; `trace` goes before the demand that the file names.

    Raises `InvalidRequest` that names the file or the word, the field, and what it takes.
    """
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidRequest("scenario", f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("scenario", f"{path} is not TOML: {error}") from error
    if trace is not None:
        _take_trace(plain, trace)
    return otherwise(plain, words, str(path))


def otherwise(plain: dict[str, Any], words: Sequence[str], where: str) -> Scenario:
    """`plain`, as a file would say it, but for `words`. Raises `InvalidRequest`."""
    regions = plain.get("regions")
    known = list(regions) if isinstance(regions, dict) else []
    for word in words:
        _say(plain, word, known)
    return checked(plain, where, words)


def checked(plain: object, where: str, words: Sequence[str] = ()) -> Scenario:
    """`words` are in `plain` already. Raises `InvalidRequest`."""
    found = misfit(plain, Scenario)
    if found is not None:
        path, message = found
        raise InvalidRequest("scenario", f"{_blamed(path, words) or where}: {message}")
    scenario = msgspec.convert(plain, Scenario)
    said = f" with --set {' --set '.join(map(_short, words))}" if words else ""
    refuse_contradictions(scenario, f"{where}{said}")
    return scenario


def _blamed(path: str, words: Sequence[str]) -> str | None:
    """The last that said what stands at `path`, which then is not in the file."""
    for word in reversed(words):
        name = _name(word)
        if path == name or path.startswith((f"{name}.", f"{name}[")) or name.startswith(f"{path}."):
            return f"--set {_short(word)}"
    return None


def _short(word: str) -> str:
    return word if len(word) <= SHOWN else word[:SHOWN] + "…"


def _name(word: str) -> str:
    return ".".join(part.strip() for part in word.partition("=")[0].split("."))


def _take_trace(plain: dict[str, Any], trace: Path) -> None:
    demand = plain.setdefault("demand", {})
    if isinstance(demand, dict):
        for other in _REPLACED:
            demand.pop(other, None)
        demand["requests" if "requests" in demand else "trace"] = str(trace)


def _say(plain: dict[str, Any], word: str, regions: Sequence[str]) -> None:
    _, equals, value = word.partition("=")
    if not equals:
        raise InvalidRequest("set", f'--set takes FIELD=VALUE, as in "quota.limit_factor=1.5", got "{word}"')
    *parts, last = _name(word).split(".")
    if parts[:1] == ["regions"]:
        _refuse_new_region([*parts, last][1], word, regions)
    _leave_out_others(plain, *[*parts, last][:2])
    for number, part in enumerate(parts):
        plain = plain.setdefault(part, {})
        if not isinstance(plain, dict):
            raise InvalidRequest("set", f"--set {word}: {_no_table('.'.join(parts[: number + 1]), plain)}")
    plain[last] = _read(value)


def _leave_out_others(plain: dict[str, Any], section: str, field: str = "") -> None:
    choice, there = _ONE_OF.get(section, ()), plain.get(section)
    if field in choice and isinstance(there, dict):
        for other in choice:
            if other != field:
                there.pop(other, None)


def _read(value: str) -> Any:
    """As a file would say it; text needs no quotes."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return value.strip()


def _refuse_new_region(name: str, word: str, regions: Sequence[str]) -> None:
    """A slip of the pen would be one more region, in which nobody asks for anything."""
    if name in regions:
        return
    if not regions:
        raise InvalidRequest("set", f"--set {word}: the scenario has no [regions]: name all of them there, in the file")
    raise InvalidRequest("set", f'--set {word}: unknown region "{name}"{nearest(name, regions)}; the file adds regions')


def _no_table(name: str, there: object) -> str:
    if isinstance(there, list):
        return f"{name} is a list: say all of it, as in --set '{name}=[...]', or change the file"
    return f'{name} has no fields, as in "quota.limit_factor=1.5"'
