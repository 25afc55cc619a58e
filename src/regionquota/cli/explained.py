"""What regionquota explain prints: two tables that fit into 80 columns, and a line for each thing to know."""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from regionquota.cli.frame import named, out, print_table
from regionquota.cli.policies import rules_in_words
from regionquota.core.allocation import Allocation
from regionquota.core.explaining import Explained, Explanation, lasts, room_in_words, ruling_in_words
from regionquota.core.policy import Enforcement
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.http.decoding import write_time
from regionquota.ports import Frozen, Suspension

_FOR_WANT_OF_ROOM: Final = frozenset({"OVER_LIMIT", "KEPT_FOR_HIGHER_PRIORITY"})
_NAMES_WIDE: Final = 20
_AGES: Final = ((86_400, "d"), (3600, "h"), (60, "min"))


def show(
    key: QuotaKey,
    revision: int,
    allocation: Allocation,
    found: Explanation,
    frozen: Mapping[Region, Frozen],
    denials: Mapping[Region, Any],
    suspension: Suspension | None,
    now: float,
) -> None:
    """`denials` has None for a region that has denied nothing, and nothing for one that was not heard. `now` is in
    seconds since 1970.
    """
    _say(f"{key}: {in_words(allocation)}, revision {revision}", style="bold")
    if suspension is not None:
        _say(suspension_in_words(suspension))
    for said in policy_in_words(key, allocation):
        _say(said)
    print_table(
        ("region", "slice", "in use", "growth\nper s", "short\nper s", "lasts", "last\ndenied"),
        (
            (
                one.region, one.slice, one.in_use, _number(one.rate), _number(one.denied), _time(one),
                _last_denied(one.region, denials, now),
            )
            for one in found.regions
        ),
    )  # fmt: skip
    if seconds := rates_in_words(found.regions):
        _say(seconds, style="dim")
    print_table(
        ("region", "largest", "wants", "next size", "weight", "expected\nper s"),
        (
            (one.region, one.largest, one.wants, one.size, one.weight, _number(one.expected or None))
            for one in found.regions
        ),
    )
    _list(_shared((one.region, "; ".join(_about(one, frozen.get(one.region)))) for one in found.regions))
    if not allocation.unlimited:
        _say(pool_in_words(allocation, found))
    _say(next_in_words(found))
    if found.left_alone:
        _say(left_alone_in_words(found))
    for region, denial in denials.items():
        if denial is not None:
            _say(denial_in_words(region, denial, allocation, frozen.get(region)))


def suspension_in_words(suspension: Suspension) -> str:
    return (
        f"the tenant is suspended since {write_time(suspension.since)}: {suspension.why}; nothing is admitted until "
        f"`regionquota tenant resume {suspension.tenant}`"
    )


def _say(text: str, style: str = "") -> None:
    out.print(text, style=style, highlight=False)


def _shared(said: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Each text once, with the names of all that it is said of."""
    names: dict[str, list[str]] = {}
    for name, text in said:
        names.setdefault(text, []).append(name)
    return [(", ".join(all_), text) for text, all_ in names.items()]


def _list(said: Iterable[tuple[str, str]]) -> None:
    """What does not fit into a line goes on below its own beginning."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(overflow="fold", max_width=_NAMES_WIDE)
    grid.add_column(overflow="fold")
    for name, text in said:
        grid.add_row(Text(f"{name}:"), Text(text))
    out.print(grid)


def _about(one: Explained, frozen: Frozen | None) -> Iterable[str]:
    yield one.situation.value + ("" if frozen is None else f" ({frozen_in_words(frozen)})")
    if rules := rules_in_words(weight=one.own_weight, floor=one.floor, cap=one.cap):
        yield f"the quota's rules here: {rules}"
    yield from ruling_in_words(one)
    yield from room_in_words(one)
    parts = ((one.denied_high, "high"), (one.denied_low, "low"))
    if said := " and ".join(f"{_number(rate)} at {name}" for rate, name in parts if rate):
        yield f"of what is short per s, {said} priority"


def rates_in_words(regions: Iterable[Explained]) -> str:
    """Which time they are of: nothing, if nothing was reported."""
    known = [one.seconds for one in regions if one.seconds and math.isfinite(one.seconds)]
    if not known:
        return ""
    shortest, longest = (f"{span:.2g}" if span < 99.5 else f"{span:,.0f}" for span in (min(known), max(known)))
    span = shortest if shortest == longest else f"{shortest} to {longest}"
    return f"per s: over the {span} s of each region's last report; what was short before is not in it"


def next_in_words(found: Explanation) -> str:
    steps = [f"grant {amount:,} to {region}" for region, amount in found.next.grants.items()]
    steps += [f"ask {move.source} for {move.amount:,} for {move.target or 'the pool'}" for move in found.next.moves]
    return f"the next plan would {', '.join(steps) or 'change nothing'}"


def left_alone_in_words(found: Explanation) -> str:
    who = ", ".join(found.left_alone)
    keep = "keeps its slice" if len(found.left_alone) == 1 else "keep their slices"
    return (
        f"{who} {keep} although the next size differs: less than {found.smallest:,} is not moved to a region that "
        f"lacks what it wants but denies nothing, less than {found.idle:,} not to one that has it, or back to the pool"
    )


def in_words(allocation: Allocation) -> str:
    limit = "unlimited" if allocation.unlimited else f"limit {allocation.limit:,}{_kind_in_words(allocation)}"
    pool = allocation.pool
    rest = f"{pool:,} in the pool" if pool >= 0 else f"{-pool:,} above it still to be given back"
    retired = f", {allocation.retired_units:,} retired with evicted regions" if allocation.retired else ""
    policy = allocation.policy
    fills = (("normal", policy.normal_fill_percent), ("low", policy.low_fill_percent))
    kept = "".join(f", {name} priority may fill {percent} %" for name, percent in fills if percent < 100)
    return f"{limit}, {rest}{retired}{kept}"


def _kind_in_words(allocation: Allocation) -> str:
    policy = allocation.policy
    if allocation.kind is Kind.CONSUMABLE:
        return f" per {policy.calendar.period.value} ({policy.calendar.time_zone})"
    refill = policy.refill
    return "" if refill is None else f", refilled by {refill.amount:,} per {refill.interval_s:,} s"


def policy_in_words(key: QuotaKey, allocation: Allocation) -> Iterator[str]:
    """What of the quota's policy decides whether a request is denied, whatever is free."""
    policy = allocation.policy
    if not policy.admission_open:
        yield f"admission is closed: nothing is admitted until `regionquota quota suspend {named(key)} --undo`"
    if policy.enforcement is not Enforcement.HARD:
        yield f"enforcement is {policy.enforcement.value}: what does not fit is admitted, and counted as overage"
    elif policy.enforced_percent < 100:
        yield f"{policy.enforced_percent} % of the requests are held to the limit, the others are admitted in any case"
    if policy.max_single is not None:
        yield f"one request may hold {policy.max_single:,} at most"


def pool_in_words(allocation: Allocation, found: Explanation) -> str:
    """Of a limited quota."""
    share = f" ({found.pool / allocation.limit:.0%} of the limit)" if allocation.limit else ""
    why = (
        f"busy minutes ask {found.scatters:,.0f} beyond the mean"
        if found.scatters
        else "nothing is learnt of bursts yet"
    )
    return f"while the needs fit the pool is to hold {found.pool:,}{share}: {why}"


def frozen_in_words(frozen: Frozen) -> str:
    return f"by {frozen.by} since {write_time(frozen.since)}: {frozen.why}"


def denial_in_words(region: Region, denial: Mapping[str, Any], allocation: Allocation, frozen: Frozen | None) -> str:
    """`denial` as `last_denial` of the HTTP API: what the caller was told, what else was so, what has changed since."""
    told = denial.get("detail")
    if told is None:
        told = "{amount} asked for, {available} available in a slice of {slice} ({reason})".format(**denial)
    said = [*_elsewhere(denial, frozen), *_changes(denial, allocation)] if "pool" in denial else [_whose(denial)]
    return "; ".join([f'{region} last denied at {denial["at"]}: "{told}"', *said])


def _whose(denial: Mapping[str, Any]) -> str:
    line = denial["line"]
    key = QuotaKey(line["tenant_id"], line["resource"], line["scope"])
    return f"so says {key}, which is charged, too: regionquota explain {named(key)}"


def _elsewhere(denial: Mapping[str, Any], frozen: Frozen | None) -> Iterator[str]:
    pool, limit = denial["pool"], denial.get("limit")
    if pool is None or denial["reason"] not in _FOR_WANT_OF_ROOM or (limit is not None and denial["amount"] > limit):
        return  # no pool can serve that
    if pool < 0:
        yield f"{-pool:,} above the limit were still to be given back"
    elif pool == 0:
        yield "the pool was empty"
    elif frozen is not None and frozen.since <= datetime.fromisoformat(denial["at"]).timestamp():
        yield f"the pool held {pool:,}, out of its reach as it was frozen"
    elif not denial.get("takes_part", True):
        yield f"the pool held {pool:,}, out of its reach as it was frozen, draining or evicted"
    else:
        yield f"the pool held {pool:,}{_of_which(denial, pool)}"


def _of_which(denial: Mapping[str, Any], pool: int) -> str:
    reach = denial.get("pool_within_reach")
    if reach is None:
        return ""
    if reach == pool:
        return ", which it claims from for the next try"
    lacking = ", ".join(denial["below_floor"])
    rest = f"kept for what {lacking} lacked of a floor" if lacking else "beyond its cap"
    return f", {reach:,} of it within its reach: the rest was {rest}"


def _changes(denial: Mapping[str, Any], allocation: Allocation) -> Iterator[str]:
    now = None if allocation.unlimited else allocation.limit
    if "limit" not in denial:
        yield "a server of an older release, it does not say what the limit was"
    elif denial["limit"] != now:
        yield f"the limit was {_limit(denial['limit'])} then, it is {_limit(now)} now"
    elif denial["generation"] != allocation.policy.generation:
        yield "the quota's policy was changed since"


def _limit(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"


def _last_denied(region: Region, denials: Mapping[Region, Any], now: float) -> str:
    if region not in denials:
        return "not heard"
    denial = denials[region]
    return "-" if denial is None else f"{age(now - datetime.fromisoformat(denial['at']).timestamp())} ago"


def age(seconds: float) -> str:
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3g}"


def _time(one: Explained) -> str:
    seconds = lasts(one)
    return "-" if seconds is None else f"{seconds:,.0f} s"
