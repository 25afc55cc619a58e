"""What callers may send. Each field says in words what it takes; `decoding` repeats it to whoever sends otherwise."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT, MAX_IDENTIFIER_BYTES, MAX_WEIGHT
from regionquota.core.region_rules import MAX_RULED_REGIONS
from regionquota.limits import MAX_LIMITS

MAX_REASON_CHARACTERS: Final = 1000
MAX_LINES: Final = 16
"""Further lines of one request; what follows from them is not counted."""
MAX_POLICY_S: Final = 31_536_000
"""A year: the longest life of a reservation that can be configured, and the slowest refill."""
MAX_WAIT_MS: Final = 30_000
"""How long a reserve may wait for room: no longer than callers and what stands between keep a connection open."""
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
PolicySeconds = Annotated[
    int, Meta(ge=1, le=MAX_POLICY_S, description=f"a whole number of seconds from 1 to {MAX_POLICY_S}")
]
PriorityWord = Literal["high", "normal", "low"]
WaitMilliseconds = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description=f"an integer from 0 to {MAX_WAIT_MS}")]
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


Sequence = Annotated[int, Meta(ge=1, le=MAX_AMOUNT, description=f"an integer from 1 to {MAX_AMOUNT}")]
Percent = Annotated[int, Meta(ge=0, le=100, description="an integer from 0 to 100")]
Weight = Annotated[int, Meta(ge=0, le=MAX_WEIGHT, description=f"an integer from 0 to {MAX_WEIGHT}")]
Flag = Annotated[bool, Meta(description="true or false")]


class LineBody(Struct, forbid_unknown_fields=True, frozen=True):
    """A further budget. What is left out is as in the request; without `amount` it is settled like the request, too."""

    tenant_id: Identifier | None = None
    resource: Identifier | None = None
    scope: Identifier | None = None
    amount: Amount | None = None


class ReserveBody(Struct, forbid_unknown_fields=True, frozen=True):
    request_id: Identifier
    tenant_id: Identifier
    resource: Identifier
    amount: Amount
    scope: Identifier = GLOBAL_SCOPE
    ttl_s: Seconds | None = None
    wait_ms: WaitMilliseconds = 0
    priority: PriorityWord = "normal"
    lines: Annotated[
        list[LineBody], Meta(max_length=MAX_LINES, description=f"a list of up to {MAX_LINES} further lines")
    ] = []


class BatchBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Each element is a reserve request; one that is wrong is answered for itself."""

    reservations: Annotated[list[msgspec.Raw], Meta(min_length=1, description="a list of reserve requests")]


class StartBody(Struct, forbid_unknown_fields=True, frozen=True):
    operation_id: Identifier


class SettledLineBody(Struct, forbid_unknown_fields=True, frozen=True):
    """A line of the reservation, and what it is settled at."""

    actual_amount: Limit
    tenant_id: Identifier | None = None
    resource: Identifier | None = None
    scope: Identifier | None = None


class CommitBody(Struct, forbid_unknown_fields=True, frozen=True):
    """`reason` says why an operator decides it; it goes to the ledger and the log."""

    actual_amount: Amount | None = None
    reason: Reason | None = None
    lines: Annotated[
        list[SettledLineBody], Meta(max_length=MAX_LINES, description=f"a list of up to {MAX_LINES} settled lines")
    ] = []


class ExtendBody(Struct, forbid_unknown_fields=True, frozen=True):
    ttl_s: Seconds


class ReleaseBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing, or why an operator decides it."""

    reason: Reason | None = None


class AdjustBody(Struct, forbid_unknown_fields=True, frozen=True):
    request_id: Identifier
    tenant_id: Identifier
    resource: Identifier
    delta: Delta
    reason: Reason
    scope: Identifier = GLOBAL_SCOPE


class MeterBody(Struct, forbid_unknown_fields=True, frozen=True):
    """`total` is all that `source` has counted since `incarnation` began; `sequence` rises with each word."""

    tenant_id: Identifier
    resource: Identifier
    source: Identifier
    sequence: Sequence
    total: Limit
    incarnation: Identifier = "1"
    scope: Identifier = GLOBAL_SCOPE


class RegionRulesBody(Struct, forbid_unknown_fields=True, frozen=True):
    """What is left out stays as it is; null takes it away. A `weight` that was taken away is that of the region."""

    weight: Weight | UnsetType | None = UNSET
    floor: Limit | UnsetType | None = UNSET
    cap: Limit | UnsetType | None = UNSET


class PolicyBody(Struct, forbid_unknown_fields=True, frozen=True):
    """What is left out stays as it is; null takes a bound away."""

    kind: Literal["allocated", "consumable", "rate"] | None = None
    period: Literal["minute", "hour", "day", "week", "month"] | UnsetType = UNSET
    time_zone: Identifier | UnsetType = UNSET
    refill_amount: Amount | UnsetType = UNSET
    refill_interval_s: PolicySeconds | UnsetType = UNSET
    enforcement: Literal["hard", "soft", "shadow"] | UnsetType = UNSET
    enforced_percent: Percent | UnsetType = UNSET
    admission_open: Flag | UnsetType = UNSET
    max_single_amount: Amount | UnsetType | None = UNSET
    min_ttl_s: PolicySeconds | UnsetType | None = UNSET
    max_ttl_s: PolicySeconds | UnsetType | None = UNSET
    max_overdraft: Limit | UnsetType | None = UNSET
    parent: Identifier | UnsetType = UNSET
    guarantee: Limit | UnsetType = UNSET
    regions: (
        Annotated[
            dict[str, RegionRulesBody | None],
            Meta(
                max_length=MAX_RULED_REGIONS,
                description=f"an object with rules (weight, floor, cap) for up to {MAX_RULED_REGIONS} regions, by name",
            ),
        ]
        | UnsetType
        | None
    ) = UNSET
    normal_fill_percent: Percent | UnsetType = UNSET
    low_fill_percent: Percent | UnsetType = UNSET


class LimitBody(PolicyBody, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`limit` null takes an override back. `kind` left out keeps the kind, or is `allocated` for a new quota."""

    limit: Limit | Literal["unlimited"] | None
    version: Version
    source: Literal["PLAN", "OVERRIDE"] = "PLAN"
    scope: Identifier = GLOBAL_SCOPE


class NamedLimitBody(LimitBody, forbid_unknown_fields=True, frozen=True, kw_only=True):
    resource: Identifier


class LimitsBody(Struct, forbid_unknown_fields=True, frozen=True):
    """All are set, or none."""

    limits: Annotated[
        list[NamedLimitBody],
        Meta(min_length=1, max_length=MAX_LIMITS, description=f"a list of 1 to {MAX_LIMITS} limits"),
    ]
