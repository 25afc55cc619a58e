"""File and environment to Config, or a ConfigError that says where, what it takes and what it got."""

import difflib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from regionquota.config.secrets import refuse_secrets
from regionquota.config.sections import KINDS, Addresses, Config, Percents, TruthConfig, takes
from regionquota.errors import ConfigError

PREFIX: Final = "REGIONQUOTA_"
FILE_VARIABLE: Final = "REGIONQUOTA_CONFIG"
QUOTED: Final = '"{}"'
VARIABLES: Final = {
    f"{PREFIX}{section}__{key}".upper(): (section, key) for section, kinds in KINDS.items() for key in kinds
}
# Names that all OpenTelemetry SDKs share; our own variable wins over them.
STANDARD_VARIABLES: Final = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "otlp_endpoint"),
    "OTEL_SERVICE_NAME": ("telemetry", "service_name"),
}
# Kubernetes gives every pod such variables for a Service called regionquota; they are not meant for us.
SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)\Z")
SERVICE_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class _Setting:
    value: Any
    origin: str
    strict: bool = True  # False where the value is text that stands for a number


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Defaults, then the file (`path`, else REGIONQUOTA_CONFIG), then the environment.

    An empty variable counts as unset. Raises `ConfigError`.
    """
    if path is None and environ.get(FILE_VARIABLE):
        path = Path(environ[FILE_VARIABLE])
    settings = dict(_from_file(path)) if path is not None else {}
    settings |= _from_environment(environ)

    values: dict[str, dict[str, Any]] = {section: {} for section in KINDS}
    for (section, key), setting in settings.items():
        values[section][key] = _convert(KINDS[section][key], setting)
    classes = get_type_hints(Config)
    config = Config(**{section: classes[section](**given) for section, given in values.items()})
    _check_together(config)
    return config


def _from_file(path: Path) -> Iterator[tuple[tuple[str, str], _Setting]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for section, table in document.items():
        if section not in KINDS:
            raise ConfigError(f"{path}: unknown section [{section}]{nearest(section, KINDS, '[{}]')}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {section} takes a section [{section}], got {_shown('', table)}")
        refuse_secrets(table, f"{path}: [{section}]")
        _refuse_unknown(table, KINDS[section], f"{path}: ", f"[{section}]")
        for key, value in table.items():
            yield (section, key), _Setting(value, f"{path}: [{section}] {key}")


def _from_environment(environ: Mapping[str, str]) -> dict[tuple[str, str], _Setting]:
    settings = {}
    for variable, where in STANDARD_VARIABLES.items():
        if text := environ.get(variable):
            settings[where] = _from_text(*where, text, variable)
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or not text:
            continue
        if variable in VARIABLES:
            settings[VARIABLES[variable]] = _from_text(*VARIABLES[variable], text, variable)
        elif not SERVICE_LINK.search(variable) and not SERVICE_LINK_VALUE.match(text):
            raise ConfigError(f"unknown variable {variable}{nearest(variable, VARIABLES, '{}')}")
    return settings


def _from_text(section: str, key: str, text: str, variable: str) -> _Setting:
    kind = KINDS[section][key]
    if kind in (Addresses, Percents):
        return _Setting([part.strip() for part in text.split(",")], variable, strict=False)
    if get_origin(kind) is Mapping:
        try:
            return _Setting(tomllib.loads(f"value = {text}")["value"], variable)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{variable} takes an inline TOML table: {error}") from error
    return _Setting(text, variable, strict=False)


def _convert(kind: Any, setting: _Setting) -> Any:
    if get_origin(kind) is Mapping:
        name_kind, cls = get_args(kind)
        return _tables(name_kind, cls, setting)
    try:
        return msgspec.convert(setting.value, kind, strict=setting.strict, dec_hook=_path)
    except msgspec.ValidationError:
        # The chained error would repeat a secret, and says no more than this does.
        message = f"{setting.origin} takes {takes(kind)}, got {_shown(setting.origin, setting.value)}"
        raise ConfigError(message) from None


def _path(kind: type, value: object) -> object:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return kind(value)


def _tables(name_kind: Any, cls: Any, setting: _Setting) -> dict[str, Any]:
    kinds = get_type_hints(cls, include_extras=True)
    required = [f.name for f in fields(cls) if f.default is MISSING]
    tables = {}
    for name, entry in _convert(dict[str, Any], setting).items():
        where = f"{setting.origin}.{name}"
        _convert(name_kind, _Setting(name, f"a name in {setting.origin}"))
        if not isinstance(entry, dict) or not set(required) <= set(entry):
            raise ConfigError(f"{where} takes a table with {', '.join(required)} at least")
        _refuse_unknown(entry, kinds, "", where)
        values = {key: _convert(kinds[key], _Setting(value, f"{where}.{key}")) for key, value in entry.items()}
        tables[name] = cls(**values)
    return tables


def _refuse_unknown(table: Mapping[str, Any], known: Collection[str], prefix: str, where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f'{prefix}unknown key "{key}" in {where}{nearest(key, known, QUOTED)}')


def nearest(name: str, known: Collection[str], style: str = "{}") -> str:
    """How an error about `name` ends: the one that was meant, or all there are, each in `style`."""
    if near := difflib.get_close_matches(name, known, n=1):
        return f": did you mean {style.format(near[0])}?"
    return f": known are {', '.join(style.format(one) for one in known)}"


def _shown(origin: str, value: object) -> str:
    if origin.lower().endswith(("dsn", "password", "webhook_url")):
        return "something else (not shown: it may hold a secret)"
    return json.dumps(value, default=str, ensure_ascii=False)


def _check_together(config: Config) -> None:
    service, etcd = config.service, config.etcd
    if service.default_ttl_s > service.max_ttl_s:
        raise ConfigError(
            f"service.default_ttl_s must not exceed service.max_ttl_s, "
            f"got {service.default_ttl_s} > {service.max_ttl_s}"
        )
    if (etcd.cert_file is None) != (etcd.key_file is None):
        raise ConfigError("etcd.cert_file and etcd.key_file go together: set both, or neither")
    planner = config.planner
    if planner.smallest_pool_share > planner.largest_pool_share:
        raise ConfigError(
            f"planner.smallest_pool_share must not exceed planner.largest_pool_share, "
            f"got {planner.smallest_pool_share} > {planner.largest_pool_share}"
        )
    for name, source in config.reconcile.sources.items():
        _check_source(f"reconcile.sources.{name}", source)


def _check_source(where: str, source: TruthConfig) -> None:
    needed = ("url",) if source.kind == "http" else ("dsn", "query")
    for key in ("url", "dsn", "query", "password_file"):
        given = getattr(source, key) is not None
        if key in needed and not given:
            raise ConfigError(f'{where}.{key} is missing: kind "{source.kind}" needs {" and ".join(needed)}')
        if given and key not in needed and (source.kind == "http" or key == "url"):
            raise ConfigError(f'{where}.{key} does not belong to kind "{source.kind}": leave it out')
