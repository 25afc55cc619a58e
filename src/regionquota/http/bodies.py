"""What callers send, checked to the last character before anything else happens; and how times are written."""

import difflib
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT, MAX_IDENTIFIER_BYTES, is_identifier
from regionquota.errors import InvalidRequest

MAX_REASON_CHARACTERS: Final = 1000
SHOWN: Final = 80
"""Characters of a refused value that its error repeats."""

_NO_CONTROL: Final = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f])"
"""Means the same in Python and in ECMAScript, whose rules hold for the OpenAPI document."""
Identifier = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_IDENTIFIER_BYTES,
        pattern=_NO_CONTROL,
        description=f"a text of 1 to {MAX_IDENTIFIER_BYTES} bytes of UTF-8 without control characters",
    ),
]
Amount = Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"an integer from 1 to {MAX_AMOUNT}")]
Delta = Annotated[
    int,
    Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT, description=f"an integer from -{MAX_AMOUNT} to {MAX_AMOUNT}, not 0"),
]
Seconds = Annotated[int, Meta(ge=1, description="a whole number of seconds, at least 1")]  # the most is configured
Limit = Annotated[int, Meta(ge=0, le=MAX_AMOUNT, description=f"an integer from 0 to {MAX_AMOUNT}")]
Version = Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"an integer from 1 to {MAX_AMOUNT}")]
Reason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_REASON_CHARACTERS,
        pattern=_NO_CONTROL,
        description=f"a text of 1 to {MAX_REASON_CHARACTERS} characters without control characters",
    ),
]


class ReserveBody(Struct, forbid_unknown_fields=True, frozen=True):
    request_id: Identifier
    tenant_id: Identifier
    resource: Identifier
    amount: Amount
    scope: Identifier = GLOBAL_SCOPE
    ttl_s: Seconds | None = None


class BatchBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Each element is a reserve request; one that is wrong is answered for itself."""

    reservations: Annotated[list[msgspec.Raw], Meta(min_length=1, description="a list of reserve requests")]


class CommitBody(Struct, forbid_unknown_fields=True, frozen=True):
    actual_amount: Amount | None = None


class ExtendBody(Struct, forbid_unknown_fields=True, frozen=True):
    ttl_s: Seconds


class NoBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing, or an empty object."""


class AdjustBody(Struct, forbid_unknown_fields=True, frozen=True):
    request_id: Identifier
    tenant_id: Identifier
    resource: Identifier
    delta: Delta
    reason: Reason
    scope: Identifier = GLOBAL_SCOPE


class LimitBody(Struct, forbid_unknown_fields=True, frozen=True):
    """`limit` null takes an override back. `kind` left out keeps the kind, or is `allocated` for a new quota."""

    limit: Limit | None
    version: Version
    source: Literal["PLAN", "OVERRIDE"] = "PLAN"
    scope: Identifier = GLOBAL_SCOPE
    kind: Literal["allocated", "consumable"] | None = None


Body = TypeVar("Body", bound=Struct)

_AT: Final = re.compile(r" - at `\$\.?(.*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `(.+?)`")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)


def decode(raw: bytes | msgspec.Raw, kind: type[Body]) -> Body:
    """Raises `InvalidRequest` that names the field, what it takes, and what it got."""
    try:
        body = msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), bytes(raw or b"{}"), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest("body", f"the body must be JSON in UTF-8: {error}") from None
    for name in kind.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, str) and name != "reason":
            check_identifier(name, value)
    return body


def check_identifier(field: str, value: str) -> str:
    """For identifiers out of paths and queries, which no JSON decoder has seen. Returns `value`."""
    if not is_identifier(value):
        shown = value.encode(errors="replace").decode()  # bytes of a command line that are no UTF-8
        raise InvalidRequest(field, f"{field} must be {describe(Identifier)}, got {_show(shown)}")
    return value


def describe(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Annotated:
        return str(get_args(kind)[1].description)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(kind))
    return " or ".join("null" if one is type(None) else describe(one) for one in get_args(kind))


def _explain(message: str, raw: bytes, kind: type[Struct]) -> InvalidRequest:
    fields = get_type_hints(kind, include_extras=True)
    if missing := _MISSING.match(message):
        name = missing[1]
        return InvalidRequest(name, f"{name} is missing: it takes {describe(fields[name])}")
    if unknown := _UNKNOWN.match(message):
        name = unknown[1]
        near = difflib.get_close_matches(name[:SHOWN], fields, 1)
        hint = f"did you mean {near[0]}?" if near else "known are " + (", ".join(fields) or "none")
        return InvalidRequest(name[:SHOWN], f"unknown field {_show(name)}: {hint}")
    if at := _AT.search(message):
        name = at[1]
        return InvalidRequest(name, f"{name} must be {describe(fields[name])}{_got(raw, name)}")
    return InvalidRequest("body", "the body must be a JSON object")


def _got(raw: bytes, name: str) -> str:
    try:
        return f", got {_show(msgspec.json.decode(raw)[name])}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # the first mistake need not be the worst
        return ""


def _show(value: Any) -> str:
    text = msgspec.json.encode(value).decode(errors="replace")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def write_time(seconds: float) -> str:
    """RFC 3339, UTC, to the millisecond."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
