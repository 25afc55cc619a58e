"""The report as one page that needs nothing else, for a person who has never seen this product."""

from html import escape
from importlib.resources import files
from typing import Final

from regionquota.simulator.charts import (
    MOST_LANES,
    demand_chart,
    denials_chart,
    events_chart,
    policies_chart,
    slices_chart,
    spans,
    transfers_chart,
)
from regionquota.simulator.policies import ABOUT, WAITING
from regionquota.simulator.report import Figures, Report
from regionquota.simulator.scenario import RulesPart

_HEADS: Final = (
    "policy", "admitted", "% of oracle", "false denials", "overshoot", "moves per 1,000", "etcd writes per 1,000",
    "Jain's index", "what it does",
)  # fmt: skip


def page(found: Report) -> str:
    scenario = found.scenario
    body = [
        f"<h1>{escape(scenario.name)}</h1>",
        f'<p class="lead">{escape(scenario.shows)}</p>',
        _what(found),
        _table(found),
        *_priorities(found),
        *_regions(found),
        *_policies(found),
        *_plots(found),
        _assumptions(found),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(scenario.name)} - regionquota simulate</title>"
        f"<style>{stylesheet('plots')}{stylesheet('page')}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def stylesheet(name: str) -> str:
    return files("regionquota.simulator").joinpath(f"{name}.css").read_text(encoding="utf-8")


def _what(found: Report) -> str:
    work = found.work
    waits = f" A caller waits up to {found.scenario.wait_s:g} s for room." if found.scenario.wait_s else ""
    units = sum(request.used for request in work.requests)
    return (
        f"<p>{len(work.regions)} regions ({escape(', '.join(work.regions))}) share one limit of "
        f"<b>{work.limit:,} units in every {_span(work.bin_s)}</b>. They are asked {len(work.requests):,} times, for "
        f"{units:,} units.{waits} Each region answers on its own, from the slice of "
        "the limit that it holds; what differs between the policies is how slices come to be where demand is.</p>"
    )


def _table(found: Report) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEADS)
    rows = "".join(_row(name, figures) for name, figures in found.figures.items())
    return (
        f'<h2>The policies side by side</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        "<p><b>% of oracle</b>: what was admitted within the limit, as a part of what one exact counter for the whole "
        "world admits. <b>False denials</b>: units that it admits and this policy denies. <b>Overshoot</b>: the most "
        "by which any period exceeded the limit; anything but 0 is a broken promise. <b>Moves</b>: times that a "
        "region was given or gave up units. <b>Etcd writes</b>: of all regions and the coordinator. Both are for 1,000 "
        "units admitted. <b>Jain's index</b>: 1 if every region got the same part of its fair share.</p>"
    )


def _priorities(found: Report) -> list[str]:
    """Where requests are of several."""
    rows = "".join(
        f"<tr{' class=ours' if name == 'ours' else ''}><td>{name}</td><td>{priority}</td>"
        f"<td>{units['admitted']:,}</td><td>{units['denied']:,}</td></tr>"
        for name, figures in found.figures.items()
        for priority, units in (figures.by_priority or {}).items()
    )
    if not rows:
        return []
    quota = found.scenario.quota
    text = (
        f"Requests of normal priority may fill {quota.normal_fill_percent} % of each region's slice, those of low "
        f"priority {quota.low_fill_percent} %, those of high priority all."
    )
    head = "<th>policy</th><th>priority</th><th>admitted</th><th>denied</th>"
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return ["<h2>By priority</h2>", f"<p>{text}</p>", table]


def _regions(found: Report) -> list[str]:
    """Where the quota has rules for some."""
    rules = found.scenario.quota.regions
    if not rules:
        return []
    rows = "".join(
        f"<tr{' class=ours' if name == 'ours' else ''}><td>{name}</td><td>{escape(region)}</td>"
        f"<td>{admitted:,}</td><td>{figures.denied_by_region[region]:,}</td>"
        f"<td>{admitted / found.work.bins:,.1f}</td></tr>"
        for name, figures in found.figures.items()
        for region, admitted in figures.admitted_by_region.items()
    )
    said = "; ".join(f"{name}: {_rules(one)}" for name, one in rules.items())
    text = f"The quota has rules for single regions ({said}). They bind ours and periodic; the others know none."
    head = "<th>policy</th><th>region</th><th>admitted</th><th>denied</th><th>admitted per period</th>"
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return ["<h2>By region</h2>", f"<p>{escape(text)}</p>", table]


def _rules(part: RulesPart) -> str:
    said = {"weight": part.weight, "floor": part.floor or None, "cap": part.cap}
    return ", ".join(f"{name} {value:,}" for name, value in said.items() if value is not None) or "none"


def _row(name: str, figures: Figures) -> str:
    writes = figures.etcd_writes_per_1000
    bad = ' class="bad"' if figures.overshoot else ""
    return (
        f"<tr{' class=ours' if name == 'ours' else ''}><td>{name}</td><td>{figures.admitted:,}</td>"
        f"<td>{100 * figures.admitted_of_oracle:.2f}</td><td>{figures.false_denials:,}</td>"
        f"<td{bad}>{figures.overshoot:,}</td><td>{figures.moves_per_1000:,.1f}</td>"
        f"<td>{'-' if writes is None else f'{writes:,.1f}'}</td><td>{figures.jain:.3f}</td>"
        f'<td class="about">{escape(ABOUT[name])}{_waits(figures)}</td></tr>'
    )


def _waits(figures: Figures) -> str:
    if not figures.waits or not figures.waits["count"]:
        return ""
    waits = figures.waits
    return (
        f". {waits['count']:,} callers had to wait and were served: half within {waits['p50_ms']:g} ms, 99 % within "
        f"{waits['p99_ms']:g} ms, all within {waits['max_ms']:g} ms"
    )


def _policies(found: Report) -> list[str]:
    if len(found.outcomes) < 2:
        return []
    drawn = policies_chart(found.work, found.outcomes, found.oracle)
    text = (
        "Units of false denials since the beginning, over the time of the scenario. The lower a line ends, the fewer "
        "were turned away while there was room."
    )
    return [_figure("Who turns away whom it need not", drawn, text)]


def _plots(found: Report) -> list[str]:
    name = next((one for one in ("ours", "periodic") if one in found.outcomes), None)
    if name is None:
        return []
    work, outcome = found.work, found.outcomes[name]
    parts = []
    happened = spans(work, outcome)
    more = f" Of {len(happened)} the first {MOST_LANES} are listed." if len(happened) > MOST_LANES else ""
    if happened or any(one.what == "weight" for one in work.happenings):
        parts.append(
            _figure(
                "What happened",
                events_chart(work, outcome),
                "Cut off: the region reaches nobody, and goes on with the slice it holds. Lost: its servers and its "
                "database are gone for so long. Frozen: the coordinator has heard no sign of life from it, so that no "
                f"move names it. The same times are shaded in the plots below.{more}",
            )
        )
    parts += [
        _figure(
            f"Who holds how much ({name})",
            slices_chart(work, outcome),
            "Units. Each colour is the slice of one region: what it may admit without asking anybody. All slices "
            "together never pass the dashed limit. What is free below it belongs to the pool, or is on its way "
            "from one region to another.",
        ),
        _figure(
            f"What was asked for and admitted ({name})",
            demand_chart(work, outcome),
            "Units in each period: the line is what all regions were asked for, the area what they admitted. Where the "
            "line is below the dashed limit, it should run along the top of the area.",
        ),
        _figure(
            f"Who was denied ({name})",
            denials_chart(work, outcome, found.oracle),
            "Units in each period. Grey: one counter for the whole world had denied it, too. Red: there was room, but "
            "elsewhere.",
        ),
        _figure(
            f"What moved ({name})",
            transfers_chart(work, outcome),
            "Up: units that a region was given, from the pool or another region. Down: what it gave. The taller, the "
            "more, by the square root.",
        ),
    ]
    return parts


def _figure(title: str, drawn: str, caption: str) -> str:
    return (
        f'<h2>{escape(title)}</h2><figure><div class="wide">{drawn}</div>'
        f"<figcaption><b>What you see.</b> {escape(caption)}</figcaption></figure>"
    )


def _assumptions(found: Report) -> str:
    mind = "".join(f"<li><b>Mind: {escape(warning)}</b></li>" for warning in found.work.warnings)
    notes = mind + "".join(f"<li>{escape(note)}</li>" for note in found.work.notes)
    if found.scenario.wait_s:
        notes += f"<li>{WAITING}</li>"
    return (
        f'<h2>What it assumes</h2><ul class="muted">{notes}'
        "<li>The regions' servers, the coordinator and its planner are those of the product; their databases and etcd "
        "are kept in memory, time is virtual, and servers take no time to compute.</li>"
        "<li>Where callers commit, they do so at once. Oracle, leases and pull are our own, after their published "
        "descriptions.</li>"
        f"<li>Seed {found.scenario.seed}: the same scenario with the same seed gives this page again.</li></ul>"
    )


def _span(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return name if count == 1 else f"{count} {name}s"
    return f"{seconds:g} seconds"
