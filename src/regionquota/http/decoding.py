"""From bytes to a checked body, or to an error that names the field, what it takes, and what it got."""

import difflib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from aiohttp import web
from msgspec import Struct

from regionquota.core.quota import is_identifier
from regionquota.errors import InvalidRequest
from regionquota.http.bodies import SHOWN, Identifier

Body = TypeVar("Body", bound=Struct)

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000
"""Elements of one page of a list."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

_AT: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `(.+?)`")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(.*?)`(?: - at `\$[^`]*`)?$", re.DOTALL)
_FREE_TEXT: Final = frozenset({"reason"})
"""Fields that are no identifiers."""


def decode(raw: bytes | msgspec.Raw, kind: type[Body]) -> Body:
    """Raises `InvalidRequest` that names the field, what it takes, and what it got."""
    try:
        body = msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), bytes(raw or b"{}"), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("body", f"the body must be JSON in UTF-8: {error}") from None
    _check_identifiers(body, "")
    return body


def _check_identifiers(body: Struct, prefix: str) -> None:
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, str) and name not in _FREE_TEXT:
            check_identifier(prefix + name, value)
        elif isinstance(value, dict):
            for key in value:
                check_identifier(prefix + name, key)
        elif isinstance(value, list):
            for place, one in enumerate(value):
                if isinstance(one, Struct):
                    _check_identifiers(one, f"{prefix}{name}[{place}].")


def check_identifier(field: str, value: str) -> str:
    """For identifiers out of paths and queries, which no JSON decoder has seen. Returns `value`."""
    if not is_identifier(value):
        shown = value.encode(errors="replace").decode()  # bytes of a command line that are no UTF-8
        raise InvalidRequest(field, f"{field} must be {describe(Identifier)}, got {_show(shown)}")
    return value


def asked(request: web.Request, field: str) -> str | None:
    """An identifier out of the query, None where it is not given."""
    value = request.query.get(field)
    return None if value is None else check_identifier(field, value)


def named(request: web.Request, part: str, field: str) -> str:
    """An identifier out of the path. aiohttp would take what is no UTF-8, %FF, for the text of an identifier, %25FF."""
    resource = request.match_info.route.resource
    assert resource is not None
    raw = request.rel_url.raw_path.split("/")[resource.canonical.split("/").index(f"{{{part}}}")]
    try:
        return check_identifier(field, unquote(raw, errors="strict"))
    except UnicodeDecodeError:
        raise InvalidRequest(field, f"{field} must be {describe(Identifier)}, percent-encoded, got {raw}") from None


def page_size(request: web.Request) -> int:
    """How many a list shows: `limit` out of the query."""
    text = request.query.get("limit")
    if text is None:
        return DEFAULT_PAGE
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_PAGE:
        raise InvalidRequest("limit", f'limit must be an integer from 1 to {MAX_PAGE}, got "{text[:SHOWN]}"')
    return int(text)


def describe(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Annotated:
        return str(get_args(kind)[1].description)
    if get_origin(kind) is Literal:
        choices = [f'"{choice}"' for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    if kind is type(None):
        return "null"
    if get_origin(kind) is None:
        return _PLAIN.get(kind, "an object")
    known = [one for one in get_args(kind) if one is not msgspec.UnsetType]
    return " or ".join(describe(one) for one in known)


_PLAIN: Final = {bool: "true or false"}


def _explain(message: str, raw: bytes, kind: type[Struct]) -> InvalidRequest:
    path = at[1] if (at := _AT.search(message)) else ""
    if missing := _MISSING.match(message):
        within = _struct_at(kind, path)
        name = f"{_found(raw, kind, path)[0]}.{missing[1]}".removeprefix(".")
        return InvalidRequest(name, f"{name} is missing: it takes {describe(_hints(within)[missing[1]])}")
    if unknown := _UNKNOWN.match(message):
        return _unknown(unknown[1], raw, kind, path)
    if path:
        name, got = _found(raw, kind, path)
        return InvalidRequest(name, f"{name} must be {describe(_type_at(kind, path))}{got}")
    return InvalidRequest("body", "the body must be a JSON object")


def _unknown(name: str, raw: bytes, kind: type[Struct], path: str) -> InvalidRequest:
    try:
        fields = _hints(_struct_at(kind, path))
    except (LookupError, RuntimeError, StopIteration):
        # The name is the caller's, and may read like the end of msgspec's message.
        fields, name, path = _hints(kind), f"{name}` - at `$.{path}", ""
    near = difflib.get_close_matches(name[:SHOWN], fields, 1)
    hint = f"did you mean {near[0]}?" if near else "known are " + (", ".join(fields) or "none")
    within = _found(raw, kind, path)[0]
    name = f"{within}.{name}" if within else name
    return InvalidRequest(name[:SHOWN], f"unknown field {_show(name)}: {hint}")


def _hints(kind: type[Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _steps(path: str) -> Iterable[str]:
    """`lines[0].amount` as lines, [0], amount."""
    return re.findall(r"\[[^\]]*\]|[^.\[\]]+", path)


def _type_at(kind: Any, path: str) -> Any:
    for step in _steps(path):
        kind = _element_of(kind) if step.startswith("[") else _hints(_struct_of(kind))[step]
    return kind


def _struct_at(kind: type[Struct], path: str) -> type[Struct]:
    return _struct_of(_type_at(kind, path))


def _struct_of(kind: Any) -> type[Struct]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next(_struct_of(one) for one in get_args(kind))


def _element_of(kind: Any) -> Any:
    """Of a list, or of an object whose names are the caller's."""
    if get_origin(kind) in (list, dict):
        return get_args(kind)[-1]
    return next(_element_of(one) for one in get_args(kind) if get_args(one))


def _found(raw: bytes, kind: Any, path: str) -> tuple[str, str]:
    """What to call the place `path`, and what stands there, if that is certain.

    msgspec says [...] for whichever element it is. Of an object it is the first that does not fit.
    """
    name = ""
    try:
        value = msgspec.json.decode(raw)
        for step in _steps(path):
            if step == "[...]" and isinstance(value, dict):
                kind = _element_of(kind)
                key = next(key for key, one in value.items() if not _fits(one, kind))
                name, value = f"{name}.{key[:SHOWN]}", value[key]
            elif step.startswith("["):
                kind, name, value = _element_of(kind), name + step, value[int(step[1:-1])]
            else:
                kind, name, value = _hints(_struct_of(kind))[step], f"{name}.{step}", value[step]
        return name.removeprefix("."), f", got {_show(value)}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, LookupError, TypeError, StopIteration):
        return path, ""  # the first mistake need not be the worst


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _show(value: Any) -> str:
    text = msgspec.json.encode(value).decode(errors="replace")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def write_time(seconds: float) -> str:
    """RFC 3339, UTC, to the millisecond."""
    whole, milliseconds = divmod(round(seconds * 1_000_000) // 1000, 1000)
    return f"{_whole_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4096)
def _whole_second(second: int) -> str:
    """Many answers name the same few seconds."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
