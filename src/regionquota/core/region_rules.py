"""What a quota says of single regions: its own weight there, a floor, a cap.

For planning only. Nothing that keeps the slices within the limit reads them.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT, Region
from regionquota.errors import InvalidRequest

MAX_RULED_REGIONS: Final = 64
"""Of one quota: all of them stand in its document, and in its row in every region."""


class RegionRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """`weight` 0 .. 10^7, None: the region's own. Before others get what they want, the region is to own `floor` units;
    more than `cap` (None: no cap) only as far as it is in use.
    """

    weight: int | None = None
    floor: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        if self.weight is not None and not 0 <= self.weight <= MAX_WEIGHT:
            raise ValueError(f"weight is {self.weight}")
        if not 0 <= self.floor <= MAX_AMOUNT or not 0 <= (self.cap or 0) <= MAX_AMOUNT:
            raise ValueError(f"out of range: {self}")
        if self.cap is not None and self.floor > self.cap:
            raise ValueError(f"floor {self.floor} is above cap {self.cap}")


NO_RULES: Final = RegionRules()
RulesSaid: TypeAlias = Mapping[Region, Mapping[str, int | None] | None]
"""Named as the fields of `RegionRules`. None takes a rule away, or all rules of a region."""


def amend_rules(
    known: Mapping[Region, RegionRules], changes: RulesSaid, limit: int | None
) -> Mapping[Region, RegionRules]:
    """`known` with `changes`; what is left out stays. `limit` None: unlimited.

    Raises `InvalidRequest` that names the field. A limit that is lowered below the floors later is no error: the
    planner scales them down.
    """
    rules = dict(known)
    for region, said in changes.items():
        rules[region] = NO_RULES if said is None else _amended(region, rules.get(region, NO_RULES), said)
    rules = {region: rules[region] for region in sorted(rules) if rules[region] != NO_RULES}
    if len(rules) > MAX_RULED_REGIONS:
        raise InvalidRequest("regions", f"regions takes rules for up to {MAX_RULED_REGIONS} regions, got {len(rules)}")
    raised = next((region for region, said in changes.items() if said and said.get("floor")), None)
    floors = sum(one.floor for one in rules.values())
    if raised is not None and limit is not None and floors > limit:
        field = f"regions.{raised}.floor"
        raise InvalidRequest(
            field, f"{field}: the floors add up to {floors}, above the limit {limit}: lower some, or raise the limit"
        )
    return rules


def _amended(region: Region, known: RegionRules, said: Mapping[str, int | None]) -> RegionRules:
    weight, floor, cap = (said.get(name, getattr(known, name)) for name in ("weight", "floor", "cap"))
    floor = floor or 0
    if cap is not None and floor > cap:
        field = f"regions.{region}.{'floor' if 'floor' in said else 'cap'}"
        raise InvalidRequest(field, f"{field}: the floor {floor} must not be above the cap {cap}")
    return RegionRules(weight, floor, cap)
