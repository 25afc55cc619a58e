"""What is drawn of a policy: who holds what, what was asked for, who was denied, what moved."""

from collections.abc import Mapping, Sequence
from typing import Final

from regionquota.simulator.demand import Workload
from regionquota.simulator.deployment import SAMPLES_A_BIN
from regionquota.simulator.events import WORDS
from regionquota.simulator.outcome import Outcome, Span
from regionquota.simulator.plots import (
    BOTTOM,
    COLUMNS,
    TOP,
    Axes,
    Points,
    area,
    bars,
    colour,
    drawing,
    grid,
    grouped,
    key,
    lane,
    level,
    line,
    shade,
    steps,
    thinned,
    time_axis,
)
from regionquota.simulator.report import demand_by_bin, false_denials_by_bin

_LANE: Final = 24
MOST_LANES: Final = 20
_LABEL: Final = 8
_DENIALS_HIGH: Final = 220


def spans(work: Workload, outcome: Outcome) -> Sequence[Span]:
    """What happened, and what the product made of it."""
    happened = [
        Span(one.what, None if one.region < 0 else work.regions[one.region], one.begin, one.end)
        for one in work.happenings
        if one.what != "weight"
    ]
    return sorted([*happened, *outcome.spans], key=lambda span: (span.begin, span.what, span.region or ""))


def events_chart(work: Workload, outcome: Outcome) -> str:
    found = spans(work, outcome)[:MOST_LANES]
    height = TOP + BOTTOM + _LANE * len(found)
    axes = Axes(work.seconds, 1.0, height)
    rows = [
        lane(axes, TOP + _LANE * number, span.begin, span.end, f"{span.region or ''} {WORDS[span.what]}".strip())
        for number, span in enumerate(found)
    ]
    rows += [
        lane(axes, TOP - _LANE, one.begin, one.begin, f"{work.regions[one.region]} now has weight {one.weight}")
        for one in work.happenings
        if one.what == "weight"
    ]
    return drawing("What happened when", height, [time_axis(axes), *rows])


def slices_chart(work: Workload, outcome: Outcome) -> str:
    axes = Axes(work.seconds, _headroom(work.limit))
    return drawing("Which region holds how much", axes.height, _slices(axes, work, outcome))


def summary_chart(work: Workload, outcome: Outcome, oracle: Outcome) -> str:
    """Slices above denials, small enough for a document."""
    axes = Axes(work.seconds, _headroom(work.limit), columns=200)
    below = "".join(_denials(work, outcome, oracle, 200))
    height = axes.height + _DENIALS_HIGH
    parts = [*_slices(axes, work, outcome), f'<g transform="translate(0 {axes.height})">{below}</g>']
    return drawing("Which region holds how much, and who was denied", height, parts)


def _slices(axes: Axes, work: Workload, outcome: Outcome) -> list[str]:
    width = work.bin_s / SAMPLES_A_BIN
    parts = [grid(axes), *_shades(axes, work, outcome)]
    stacked = [0.0] * len(outcome.slices)
    lower: Points | None = None
    for region in range(len(work.regions)):
        stacked = [below + row[region] for below, (_, row) in zip(stacked, outcome.slices, strict=True)]
        means, _ = grouped(stacked, width, axes.columns)
        upper = [(at, value) for at, value in means if at <= work.seconds]
        parts.append(area(axes, f"area {colour(region)}", upper, lower))
        lower = upper
    names = [(colour(number), name) for number, name in enumerate(work.regions)]
    return [*parts, level(axes, "limit", work.limit), key([*names, ("limit", "the limit")])]


def demand_chart(work: Workload, outcome: Outcome) -> str:
    asked, width = grouped([sum(row) for row in demand_by_bin(work)], work.bin_s)
    admitted, _ = grouped([outcome.units_in(bin_) for bin_ in range(work.bins)], work.bin_s)
    axes = Axes(work.seconds, _headroom(max(work.limit, *(value for _, value in asked))))
    parts = [
        grid(axes),
        *_shades(axes, work, outcome),
        area(axes, "admitted", steps(admitted, width)),
        line(axes, "asked", steps(asked, width)),
        level(axes, "limit", work.limit),
        key([("asked", "asked for"), ("admitted", "admitted"), ("limit", "the limit")]),
    ]
    return drawing("What was asked for, and what was admitted", axes.height, parts)


def denials_chart(work: Workload, outcome: Outcome, oracle: Outcome) -> str:
    return drawing("Who was denied", _DENIALS_HIGH, _denials(work, outcome, oracle, COLUMNS))


def _denials(work: Workload, outcome: Outcome, oracle: Outcome, columns: int) -> list[str]:
    false = false_denials_by_bin(outcome, oracle, work.bins)
    denied = [sum(row) for row in outcome.denied_in[: work.bins]] + [0] * (work.bins - len(outcome.denied_in))
    falsely, width = grouped(false, work.bin_s, columns)
    rightly, _ = grouped([max(0, all_ - some) for all_, some in zip(denied, false, strict=True)], work.bin_s, columns)
    most = max(some + rest for (_, some), (_, rest) in zip(falsely, rightly, strict=True))
    axes = Axes(work.seconds, _headroom(most), _DENIALS_HIGH)
    stacked = "".join(
        bars(axes, "bad", [(at, value)], width, base) for (at, value), (_, base) in zip(falsely, rightly, strict=True)
    )
    return [
        grid(axes),
        *_shades(axes, work, outcome),
        bars(axes, "quiet", rightly, width),
        stacked,
        key([("quiet", "denied because the limit was reached"), ("bad", "denied falsely")]),
    ]


def transfers_chart(work: Workload, outcome: Outcome) -> str:
    """One row for each region: up what it got, down what it gave, of as many moments as can be seen."""
    width = work.seconds / COLUMNS
    got: list[dict[int, int]] = [{} for _ in work.regions]
    gave: list[dict[int, int]] = [{} for _ in work.regions]
    for transfer in outcome.transfers:
        column = int(transfer.at / width)
        for sums, units in ((got, transfer.got), (gave, transfer.gave)):
            for name, count in units.items():
                row = sums[work.regions.index(name)]
                row[column] = row.get(column, 0) + count
    largest = max((value for row in [*got, *gave] for value in row.values()), default=1)
    height = TOP + BOTTOM + 56 * len(work.regions)
    axes = Axes(work.seconds, 2.0 * len(work.regions), height)
    parts = [time_axis(axes), *_shades(axes, work, outcome)]
    for region, name in enumerate(work.regions):
        base = 2.0 * (len(work.regions) - region) - 1
        parts.append(level(axes, "grid", base))
        parts.append(f'<text x="70" y="{axes.y(base) + 5:.1f}" text-anchor="end">{_short(name)}</text>')
        for sums, sign in ((got, 1), (gave, -1)):
            marks = [
                (column * width, sign * 0.95 * (count / largest) ** 0.5)
                for column, count in sorted(sums[region].items())
            ]
            parts.append(bars(axes, colour(region), marks, width, base))
    names = [(colour(number), name) for number, name in enumerate(work.regions)]
    return drawing("What moved between regions", height, [*parts, key(names)])


def _short(name: str) -> str:
    """Left of a plot; the key above it has all of it."""
    return name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"


def policies_chart(work: Workload, outcomes: Mapping[str, Outcome], oracle: Outcome) -> str:
    """False denials of each policy, summed up from the beginning on."""
    sums: dict[str, list[float]] = {}
    for name, outcome in outcomes.items():
        total, sums[name] = 0, []
        for count in false_denials_by_bin(outcome, oracle, work.bins):
            total += count
            sums[name].append(total)
    axes = Axes(work.seconds, _headroom(max(row[-1] for row in sums.values())))
    parts, entries = [grid(axes)], []
    for number, (name, row) in enumerate(sums.items()):
        ends = [((bin_ + 1) * work.bin_s, value) for bin_, value in enumerate(row)]
        parts.append(line(axes, f"line {colour(number)}", thinned([(0.0, 0.0), *ends])))
        entries.append((f"line {colour(number)}", name))
    return drawing("False denials by policy, summed up", axes.height, [*parts, key(entries)])


def _shades(axes: Axes, work: Workload, outcome: Outcome) -> list[str]:
    return [shade(axes, span.begin, span.end) for span in spans(work, outcome)]


def _headroom(value: float) -> float:
    return max(1.0, value * 1.06)
