"""The rules of a quota beside its limit. A change of rules is a new generation; it never refills anything."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from regionquota.core.periods import UTC_MONTHS, Calendar, Period
from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT, Kind, Region
from regionquota.core.region_rules import MAX_RULED_REGIONS, RegionRules, amend_rules
from regionquota.errors import InvalidRequest


class Enforcement(StrEnum):
    HARD = "hard"
    """What does not fit is denied."""
    SOFT = "soft"
    """What does not fit is admitted, counted as overage, and worth an alert."""
    SHADOW = "shadow"
    """As soft, but only to learn what would have been denied."""


class Priority(StrEnum):
    """Of a request. Lower ones leave a part of each slice to higher ones, where the quota's policy says so."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 is served first."""
        return _RANKS[self]


_RANKS: Final = {priority: rank for rank, priority in enumerate(Priority)}


@dataclass(frozen=True, slots=True)
class Refill:
    """`amount` units per `interval_s` seconds for a burst of `per` units; a slice refills in proportion to its size.

    Fixing the ratio, not the sum, keeps the rates of all regions within the limit's whatever each has heard.
    """

    amount: int
    interval_s: int
    per: int

    def __post_init__(self) -> None:
        if min(self.amount, self.interval_s, self.per) < 1 or max(self.amount, self.per) > MAX_AMOUNT:
            raise ValueError(f"refill out of range: {self}")


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """`refill` belongs to rate quotas, `calendar` to consumable ones. None means that there is no such bound.

    `enforced_percent` (0 .. 100) of the requests are held to a hard limit, the others as in shadow. With
    `admission_open` False nothing new is admitted, while what is held is still settled. Above a debt of
    `max_overdraft` the denial says so. `parent` is another scope of the same tenant and resource that is charged,
    too (None: the global one); `guarantee` units of it are kept for this one. `regions` says of single regions what
    differs there; of those that it does not name nothing does.

    After a request of normal or low priority no more than `normal_fill_percent` or `low_fill_percent` of a slice is in
    use, held or guaranteed to others; one of high priority may fill it.
    """

    calendar: Calendar = UTC_MONTHS
    refill: Refill | None = None
    enforcement: Enforcement = Enforcement.HARD
    enforced_percent: int = 100
    admission_open: bool = True
    max_single: int | None = None
    min_ttl_s: int | None = None
    max_ttl_s: int | None = None
    max_overdraft: int | None = None
    parent: str | None = None
    guarantee: int = 0
    generation: int = 1
    regions: Mapping[Region, RegionRules] = field(default_factory=dict, hash=False)
    normal_fill_percent: int = 100
    low_fill_percent: int = 100

    def __post_init__(self) -> None:
        if not 0 <= self.enforced_percent <= 100:
            raise ValueError(f"enforced_percent is {self.enforced_percent}")
        if not 0 <= self.low_fill_percent <= self.normal_fill_percent <= 100:
            raise ValueError(f"low fills {self.low_fill_percent}, normal {self.normal_fill_percent} percent")
        amounts = (self.guarantee, self.generation, self.max_single or 1, self.max_overdraft or 0)
        if min(amounts) < 0 or max(amounts) > MAX_AMOUNT:
            raise ValueError(f"out of range: {self}")
        if self.min_ttl_s is not None and self.max_ttl_s is not None and self.min_ttl_s > self.max_ttl_s:
            raise ValueError(f"min_ttl_s {self.min_ttl_s} is above max_ttl_s {self.max_ttl_s}")
        if len(self.regions) > MAX_RULED_REGIONS:
            raise ValueError(f"rules of {len(self.regions)} regions")

    @property
    def is_hard(self) -> bool:
        return self.enforcement is Enforcement.HARD and self.enforced_percent > 0

    def may_fill(self, units: int, priority: Priority) -> int:
        """How much of a slice of so many units requests of `priority` may fill."""
        if priority is Priority.HIGH:
            return units
        percent = self.normal_fill_percent if priority is Priority.NORMAL else self.low_fill_percent
        return units * percent // 100

    def slice_for(self, amount: int, priority: Priority) -> int:
        """The least slice of which requests of `priority` may fill `amount`; `amount` itself where none would do."""
        percent = self.may_fill(100, priority)
        return -(-100 * amount // percent) if percent else amount

    def holds_to(self, tenant: str, request_id: str) -> bool:
        """Whether a request is among those that the limit is enforced upon: the same answer at every repeat."""
        if self.enforced_percent in (0, 100):
            return self.enforced_percent == 100
        word = hashlib.blake2s(f"{tenant}\0{request_id}".encode(), digest_size=4).digest()
        return int.from_bytes(word) % 100 < self.enforced_percent


DEFAULT_POLICY: Final = QuotaPolicy()


def amend(policy: QuotaPolicy | None, kind: Kind, limit: int | None, changes: Mapping[str, Any]) -> QuotaPolicy:
    """`policy` (None: of a new quota) with `changes`, named as the fields of `QuotaPolicy`; what is left out stays.

    A calendar is given as `period` and `time_zone`, a refill as `refill_amount` and `refill_interval_s`, for the
    burst `limit` (None: unlimited), `regions` as `amend_rules` takes them, or None for none at all. Raises
    `InvalidRequest` that names the field.
    """
    known = DEFAULT_POLICY if policy is None else policy
    rest = dict(changes)
    if policy is not None and rest.get("parent", policy.parent) != policy.parent:
        raise InvalidRequest(
            "parent", f"the parent is {policy.parent or GLOBAL_SCOPE} and cannot change: use another scope"
        )
    calendar = _calendar(policy, kind, rest.pop("period", None), rest.pop("time_zone", None))
    refill = _refill(known, kind, limit, rest.pop("refill_amount", None), rest.pop("refill_interval_s", None))
    if "regions" in rest:
        said = rest["regions"]
        rest["regions"] = {} if said is None else amend_rules(known.regions, said, limit)
    _check_fill(known, rest)
    try:
        amended = replace(known, calendar=calendar, refill=refill, **rest)
    except ValueError as error:
        raise InvalidRequest("min_ttl_s", str(error)) from None
    if amended.guarantee and limit is not None and amended.guarantee > limit:
        raise InvalidRequest("guarantee", f"guarantee must not be above the limit {limit}, got {amended.guarantee}")
    return amended


def _calendar(policy: QuotaPolicy | None, kind: Kind, period: str | None, zone: str | None) -> Calendar:
    known = UTC_MONTHS if policy is None else policy.calendar
    for name, value in (("period", period), ("time_zone", zone)):
        if value is not None and kind is not Kind.CONSUMABLE:
            raise InvalidRequest(name, f"{name} belongs to consumable quotas; this one is {kind}")
    wanted = known.period if period is None else Period(period)
    if policy is not None and wanted is not known.period:
        raise InvalidRequest(
            "period", f"the period is {known.period} and cannot become {wanted}: use another resource name"
        )
    try:
        return Calendar(wanted, known.time_zone if zone is None else zone)
    except ValueError as error:
        raise InvalidRequest("time_zone", f"time_zone: {error}") from None


def _check_fill(known: QuotaPolicy, changes: Mapping[str, Any]) -> None:
    normal = changes.get("normal_fill_percent", known.normal_fill_percent)
    low = changes.get("low_fill_percent", known.low_fill_percent)
    if low <= normal:
        return
    if "low_fill_percent" in changes:
        field, bound, got = "low_fill_percent", f"above normal_fill_percent {normal}", low
    else:
        field, bound, got = "normal_fill_percent", f"below low_fill_percent {low}", normal
    raise InvalidRequest(field, f"{field} must not be {bound}, got {got}: set both")


def _refill(
    known: QuotaPolicy, kind: Kind, limit: int | None, amount: int | None, interval: int | None
) -> Refill | None:
    if kind is not Kind.RATE:
        if amount is not None or interval is not None:
            raise InvalidRequest("refill_amount", f"a refill belongs to rate quotas; this one is {kind}")
        return None
    if (amount is None) != (interval is None):
        missing = "refill_amount" if amount is None else "refill_interval_s"
        raise InvalidRequest(missing, f"{missing} is missing: a refill is refill_amount units per refill_interval_s")
    if amount is None or interval is None:
        if known.refill is None and limit is not None:
            raise InvalidRequest(
                "refill_amount", "refill_amount is missing: a rate quota needs units per time, such as 100 in 60 s"
            )
        return known.refill
    if not limit:
        raise InvalidRequest("refill_amount", "a refill needs a limit above 0: that is the burst which it fills")
    return Refill(amount, interval, limit)
