"""The first place where a document does not fit its types: what it takes, and what it got."""

import json
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from regionquota.config import nearest, takes

SHOWN: Final = 60
"""Characters of a value that is shown in an error."""


def misfit(value: object, kind: Any, path: str = "") -> tuple[str, str] | None:
    """The path of the first field that does not fit, and what to say of it. None: `value` can be converted."""
    if _fits(value, kind):
        return None
    for within in _arms(kind):
        if isinstance(value, dict) and get_origin(within) is dict:
            found = _in_dict(value, within, path)
        elif isinstance(value, dict) and isinstance(within, type) and issubclass(within, msgspec.Struct):
            found = _in_struct(value, within, path)
        elif isinstance(value, list) and get_origin(within) is list:
            (element,) = get_args(within)
            found = next(_misfits((one, element, f"{path}[{at}]") for at, one in enumerate(value)), None)
        else:
            continue
        if found is not None:
            return found
    return path, f"{path} takes {takes(kind)}, got {_shown(value)}"


def _misfits(fields: Iterator[tuple[object, Any, str]]) -> Iterator[tuple[str, str]]:
    for field in fields:
        if (found := misfit(*field)) is not None:
            yield found


def _in_struct(table: Mapping[str, object], kind: type[msgspec.Struct], path: str) -> tuple[str, str] | None:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in table:
        if name not in fields:
            return _join(path, name), f"unknown field {_join(path, name)}{nearest(name, fields)}"
    for name, field in fields.items():
        if field.required and name not in table:
            return _join(path, name), f"{_join(path, name)} is missing: it takes {takes(field.type)}"
    return next(_misfits((one, fields[name].type, _join(path, name)) for name, one in table.items()), None)


def _in_dict(table: Mapping[str, object], kind: Any, path: str) -> tuple[str, str] | None:
    key, element = get_args(kind)
    for name in table:
        if not _fits(name, key):
            return _join(path, name), f"a name in {path} takes {takes(key)}, got {_shown(name)}"
    return next(_misfits((one, element, _join(path, name)) for name, one in table.items()), None)


def _arms(kind: Any) -> Iterator[Any]:
    """What a value may be one of, without what bounds it."""
    if get_origin(kind) is Annotated:
        yield from _arms(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _arms(one)
    else:
        yield kind


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
