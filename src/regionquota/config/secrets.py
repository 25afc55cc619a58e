"""Passwords come from the environment or from files of their own, never from the configuration file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from regionquota.errors import ConfigError

REMEDY: Final = "secrets do not belong in the file: name a file in password_file, or set REGIONQUOTA_POSTGRES__PASSWORD"


def read_secret(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the password file {path}: {error}") from error


def refuse_secrets(table: Mapping[str, Any], where: str) -> None:
    for key, value in table.items():
        if isinstance(value, dict):
            refuse_secrets(value, f"{where} {key}")
        elif key == "password" and value is not None:
            raise ConfigError(f"{where} holds a password; {REMEDY}")
        elif key == "dsn" and isinstance(value, str) and _has_password(value):
            raise ConfigError(f"{where} dsn holds a password; {REMEDY}")


def _has_password(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return True  # nobody can tell, and the message must not show it
    return bool(parts.password) or not parse_qs(parts.query).keys().isdisjoint({"password", "sslpassword"})
