"""Config back to TOML."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from regionquota.config.secrets import refuse_secrets
from regionquota.config.sections import Config, DeployedRegion, TruthConfig


def render(config: Config, sections: Collection[str]) -> str:
    """TOML that `load` reads back; only what differs from the defaults.

    Passwords are never written: `postgres.password` is left out, one inside a DSN raises `ConfigError`.
    """
    defaults = Config()
    lines: list[str] = []
    for section in sections:
        given, default = getattr(config, section), getattr(defaults, section)
        table = {f.name: getattr(given, f.name) for f in fields(given) if f.name != "password"}
        changed = {key: value for key, value in table.items() if value != getattr(default, key)}
        refuse_secrets(asdict(given) | {"password": None}, f"[{section}]")
        lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in changed.items()), ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    match value:
        case str() | Path():
            # JSON escapes what TOML wants escaped, but for DEL.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case bool():
            return str(value).lower()
        case DeployedRegion() | TruthConfig():
            return _toml({key: item for key, item in asdict(value).items() if item is not None})
        case Mapping():
            return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
        case _:
            return repr(value)
