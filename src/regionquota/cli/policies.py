"""The options of `regionquota quota set`: from words to a limit and a policy, and back to words."""

import json
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from regionquota.core.allocation import UNLIMITED, Allocation, LimitSource, VersionedLimit
from regionquota.core.periods import Period
from regionquota.core.policy import DEFAULT_POLICY, Enforcement
from regionquota.core.quota import Kind
from regionquota.errors import InvalidRequest
from regionquota.http import answers
from regionquota.http.bodies import Identifier, LimitBody, Version
from regionquota.http.decoding import decode
from regionquota.http.quota_api import limit_word
from regionquota.limits import MAX_LIMITS, LimitWord

T = TypeVar("T", bound=msgspec.Struct)

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_RULE: Final = re.compile(r"regions\.(.+)\.(weight|floor|cap)", re.DOTALL)
_REFILL: Final = re.compile(r"([0-9]{1,19})/([0-9]{1,19})([smh])")
OPTIONS: Final = {
    "kind": "--kind",
    "refill_amount": "--refill",
    "refill_interval_s": "--refill",
    "period": "--period",
    "time_zone": "--time-zone",
    "enforcement": "--enforcement",
    "enforced_percent": "--enforced-percent",
    "admission_open": "--admission",
    "max_single_amount": "--max-single",
    "min_ttl_s": "--min-ttl",
    "max_ttl_s": "--max-ttl",
    "max_overdraft": "--max-overdraft",
    "parent": "--parent",
    "guarantee": "--guarantee",
    "normal_fill_percent": "--normal-fill",
    "low_fill_percent": "--low-fill",
    "version": "--version",
    "scope": "--scope",
    "regions": "--region-weight, --region-floor, --region-cap",
}
"""What a field of the HTTP API is called here."""
_FIELDS: Final = re.compile(rf"\b({'|'.join(name for name in OPTIONS if '_' in name)})\b")
"""Those that are no words of a sentence."""
DEFAULTS: Final = answers.policy(Kind.CONSUMABLE, DEFAULT_POLICY)


class Admission(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


def _bound(what: str) -> Any:
    return typer.Option(metavar="N|none", help=what, rich_help_panel="Policy")


def _word(what: str, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=what, rich_help_panel="Policy")


KindOption = Annotated[Kind | None, _word("Of a new quota; allocated if left out.")]
RefillOption = Annotated[
    str | None, _word("Of a rate quota: units per time for the whole limit, such as 100/60s or 5000/1h.", "N/TIME")
]
PeriodOption = Annotated[Period | None, _word("Of a new consumable quota; month if left out.")]
ZoneOption = Annotated[str | None, _word("Where its periods begin at midnight: UTC, Europe/Berlin.", "ZONE")]
EnforcementOption = Annotated[
    Enforcement | None,
    _word("hard denies, soft admits and counts the overage, shadow only tells what hard had denied."),
]
PercentOption = Annotated[str | None, _word("The part of the requests that a hard limit is enforced upon.", "0..100")]
AdmissionOption = Annotated[Admission | None, _word("closed admits nothing new; what is held is still settled.")]
SingleOption = Annotated[str | None, _bound("The most that one reservation may hold.")]
MinTtlOption = Annotated[str | None, _bound("The shortest life of a reservation, in seconds.")]
MaxTtlOption = Annotated[str | None, _bound("The longest life of a reservation, in seconds.")]
OverdraftOption = Annotated[str | None, _bound("Above this debt denials say OVERDRAFT_EXCEEDED.")]
ParentOption = Annotated[
    str | None, _word("Of a new quota: the scope that is charged with it; global if left out.", "SCOPE")
]
GuaranteeOption = Annotated[str | None, _word("Units that are kept for this scope in its parent.", "N")]
NormalFillOption = Annotated[
    str | None, _word("So much of each slice requests of normal priority may fill; the rest is for high.", "0..100")
]
LowFillOption = Annotated[
    str | None, _word("The same for requests of low priority: at most what normal ones may.", "0..100")
]


def _rule(what: str) -> Any:
    return typer.Option(metavar="REGION=N|none", help=f"{what} Repeatable.", rich_help_panel="Policy")


RegionWeightOption = Annotated[
    list[str] | None, _rule("Weight of a region for this quota, 0 to 10,000,000; none: the region's own.")
]
RegionFloorOption = Annotated[
    list[str] | None, _rule("Units that a region is to own at least, before others get what they want.")
]
RegionCapOption = Annotated[list[str] | None, _rule("Units that a region is to own at most; what it uses it keeps.")]


def rules_of(**options: list[str] | None) -> Mapping[str, object]:
    """`regions`, of what is said by `weight`, `floor` and `cap`. Raises `InvalidRequest`."""
    regions: dict[str, dict[str, object]] = {}
    for name, words in options.items():
        for word in words or ():
            region, equals, text = word.rpartition("=")
            rules = regions.setdefault(region, {})
            if not (region and equals and text):
                option = f"--region-{name}"
                raise InvalidRequest(option, f"{option} takes REGION=N or REGION=none, such as eu=300, got {word!r}")
            if name in rules:
                raise InvalidRequest(f"--region-{name}", f"--region-{name} is given twice for {region}: give it once")
            rules[name] = number(text)
    return {"regions": regions} if regions else {}


def refill_of(text: str | None) -> Mapping[str, object]:
    """Raises `InvalidRequest`."""
    if text is None:
        return {}
    found = _REFILL.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            "--refill", f"--refill takes units per time, such as 100/60s, 100/1m or 100/1h, got {text!r}"
        )
    amount, interval, unit = found.groups()
    return {"refill_amount": number(amount), "refill_interval_s": int(interval) * _SECONDS[unit]}


def number(text: str) -> object:
    """An integer, or null for none; all else stays what it is, for the edge to refuse."""
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def given(**options: str | None) -> Mapping[str, object]:
    """The fields that were given."""
    return {name: number(text) for name, text in options.items() if text is not None}


def read_fields(fields: Mapping[str, object], kind: type[T]) -> T:
    """As the same request over HTTP would be read. Raises `InvalidRequest` that names the option."""
    try:
        return decode(msgspec.json.encode(_readable(fields)), kind)
    except InvalidRequest as error:
        raise as_option(error) from None


def _readable(value: Any) -> Any:
    """With what no field takes in place of bytes that are no UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass").decode(errors="replace")
    return {_readable(name): _readable(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def as_option(error: InvalidRequest) -> InvalidRequest:
    """The same, for somebody who gave an option and not a field."""
    if rule := _RULE.fullmatch(error.field):
        option = f"--region-{rule[2]} {rule[1]}"
    else:
        option = OPTIONS.get(error.field, error.field.replace("regions.", "region "))
    takes, got, given_ = str(error).partition(", got ")
    said = takes.replace(" null", " none")
    rest = said.removeprefix(error.field)
    named = _FIELDS.sub(lambda found: OPTIONS[found[0]], rest) + got + given_
    return InvalidRequest(option, f"{option}: {named}" if rest == said else option + named)


def check(fields: Mapping[str, object]) -> None:
    """All that can be known to be wrong without knowing the quota. Raises `InvalidRequest`."""
    word_for("", "", read_fields({"limit": 0, "version": 1, **fields}, LimitBody))


def word_for(tenant: str, resource: str, body: LimitBody) -> LimitWord:
    """As the same request over HTTP would be understood. Raises `InvalidRequest` that names the option."""
    try:
        return limit_word(tenant, resource, body)
    except InvalidRequest as error:
        raise as_option(error) from None


def complete(fields: Mapping[str, object], known: Allocation | None, source: LimitSource) -> LimitBody:
    """With the limit as it is and the next version, where they were not given. Raises `InvalidRequest`."""
    word = word_of(known, source)
    if word is None and "limit" not in fields:
        whose = "a new quota needs one" if known is None else f"the quota has no {source} yet"
        raise InvalidRequest("limit", f"limit is missing: {whose}")
    kept = {} if word is None else {"limit": "unlimited" if word.amount is UNLIMITED else word.amount}
    return read_fields({"version": 1 if word is None else word.version + 1, **kept, **fields}, LimitBody)


class NamedLimit(LimitBody, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One limit of a file. `version` left out is the next."""

    tenant_id: Identifier
    resource: Identifier
    version: Version | None = None  # type: ignore[assignment]  # what the HTTP API leaves to its callers


class LimitsFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    limits: Annotated[
        list[NamedLimit],
        msgspec.Meta(min_length=1, max_length=MAX_LIMITS, description=f"a list of 1 to {MAX_LIMITS} limits"),
    ]


def read_limits(path: Path) -> list[NamedLimit]:
    """Raises `InvalidRequest` that names the place in the file."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".toml":
            raw = msgspec.json.encode(tomllib.loads(raw.decode()))
        return decode(raw, LimitsFile).limits
    except OSError as error:
        raise InvalidRequest("FILE", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidRequest("FILE", f"{path} is not TOML: {error}") from error
    except InvalidRequest as error:
        raise InvalidRequest(error.field, f"{path}: {error}") from None


def word_of(allocation: Allocation | None, source: LimitSource) -> VersionedLimit | None:
    if allocation is None:
        return None
    return allocation.plan if source is LimitSource.PLAN else allocation.override


def in_words(allocation: Allocation) -> list[tuple[str, object]]:
    """The generation, and what of the policy is not the default."""
    policy = answers.policy(allocation.kind, allocation.policy)
    rows: list[tuple[str, object]] = [("generation", policy.pop("generation"))]
    ruled = policy.pop("regions")
    refill = allocation.policy.refill
    if refill is not None:
        rows.append(("refill", f"{refill.amount:,} per {refill.interval_s:,} s for a burst of {refill.per:,}"))
    rows += [
        (name, json.dumps(value) if isinstance(value, bool) else value)
        for name, value in policy.items()
        if not name.startswith("refill") and value != DEFAULTS[name]
    ]
    return rows + [(f"in {region}", rules_in_words(**rules)) for region, rules in ruled.items()]


def rules_in_words(*, weight: int | None, floor: int, cap: int | None) -> str:
    said = (("weight", weight), ("floor", floor or None), ("cap", cap))
    return ", ".join(f"{name} {value:,}" for name, value in said if value is not None)
