"""Lines, areas and bars over time, as SVG. Values are in units, times in seconds of the scenario."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]

WIDTH: Final = 960
LEFT: Final = 76
RIGHT: Final = 16
TOP: Final = 44
BOTTOM: Final = 34
COLUMNS: Final = 640
"""No more points than a screen can show."""
_PALETTE: Final = 8
_LONGEST_NAME: Final = 40
_KEY_STEP: Final = 20
_KEY_ROWS: Final = ((0.9, 2), (0.65, 3), (0.5, 4), (0.4, 5))
"""How large a key of so many rows can be above a plot."""
_TIME_STEPS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Axes:
    """From 0 to `seconds` and from `bottom` to `top`."""

    seconds: float
    top: float
    height: int = 300
    bottom: float = 0.0
    columns: int = COLUMNS

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at, 0.0), self.seconds) / self.seconds

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * share


def drawing(title: str, height: int, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )


def colour(number: int) -> str:
    """The classes of the region of that number."""
    return f"c{number % _PALETTE}" + (" again" if number >= _PALETTE else "")


def grid(axes: Axes) -> str:
    """Lines and what they stand for, along both axes."""
    parts = []
    for value in _values(axes.bottom, axes.top):
        y = axes.y(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="muted" x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{value:,.10g}</text>')
    return "".join(parts) + time_axis(axes)


def time_axis(axes: Axes) -> str:
    parts = []
    step = next((one for one in _TIME_STEPS if axes.seconds / one <= 9), axes.seconds / 8)
    for number in range(int(axes.seconds / step) + 1):
        at = number * step
        place = "start" if number == 0 else "end" if axes.seconds - at < step / 4 else "middle"
        parts.append(
            f'<text class="muted" x="{axes.x(at):.1f}" y="{axes.height - 10}" text-anchor="{place}">{clock(at)}</text>'
        )
    return "".join(parts)


def clock(at: float) -> str:
    """1:30 h, 4 min or 4:05 min."""
    if at >= 3600:
        return f"{int(at // 3600)}:{int(at % 3600 // 60):02} h"
    if at % 60 == 0:
        return f"{int(at // 60)} min" if at else "0"
    return f"{int(at // 60)}:{int(at % 60):02} min"


def line(axes: Axes, classes: str, points: Points) -> str:
    return f'<path class="{classes}" d="M{_path(axes, points)}"/>'


def level(axes: Axes, classes: str, value: float) -> str:
    y = axes.y(value)
    return f'<path class="{classes}" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'


def area(axes: Axes, classes: str, upper: Points, lower: Points | None = None) -> str:
    """Between two lines of the same times, or down to 0."""
    below = [(at, 0.0) for at, _ in upper] if lower is None else lower
    return f'<path class="{classes}" d="M{_path(axes, upper)}L{_path(axes, below[::-1])}Z"/>'


def bars(axes: Axes, classes: str, values: Points, width_s: float, base: float = 0.0) -> str:
    """Each begins at its time, stands on `base` and lasts for `width_s`; one path for all."""
    wide = max(0.8, axes.x(width_s) - axes.x(0) - 0.3)
    zero = axes.y(base)
    drawn = "".join(
        f"M{axes.x(at):.1f} {zero:.1f}h{wide:.1f}V{axes.y(base + value):.1f}h-{wide:.1f}Z"
        for at, value in values
        if value
    )
    return f'<path class="{classes}" d="{drawn}"/>' if drawn else ""


def shade(axes: Axes, begin: float, end: float) -> str:
    x, high = axes.x(begin), axes.height - TOP - BOTTOM
    return f'<rect class="shade" x="{x:.1f}" y="{TOP}" width="{axes.x(end) - x:.1f}" height="{high}"/>'


def lane(axes: Axes, y: float, begin: float, end: float, text: str) -> str:
    """A bar with what it stands for beside it."""
    left, right = axes.x(begin), axes.x(end)
    x, anchor = (right + 8, "start") if right < WIDTH * 0.6 else (left - 8, "end")
    if anchor == "end" and left < WIDTH * 0.3:
        x, anchor = left + 8, "start"  # the bar is nearly as long as the plot: upon it
    wide = max(3.0, right - left)
    return (
        f'<rect class="span" x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="16" rx="3"/>'
        f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def key(entries: Sequence[tuple[str, str]]) -> str:
    """Classes and names, in a row at the top; of many, in several and smaller."""
    named = [
        (classes, name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…") for classes, name in entries
    ]
    if sum(_wide(name) for _, name in named) <= WIDTH - LEFT:
        return _key_row(named, LEFT, 12)
    for scale, most in _KEY_ROWS:
        rows = _in_rows(named, (WIDTH - LEFT) / scale)
        if len(rows) <= most:
            break
    drawn = "".join(_key_row(row, 0, _KEY_STEP * number) for number, row in enumerate(rows))
    return f'<g transform="translate({LEFT} 2) scale({scale})">{drawn}</g>'


def _in_rows(named: Sequence[tuple[str, str]], width: float) -> list[list[tuple[str, str]]]:
    rows: list[list[tuple[str, str]]] = [[]]
    for entry in named:
        if rows[-1] and sum(_wide(name) for _, name in [*rows[-1], entry]) > width:
            rows.append([])
        rows[-1].append(entry)
    return rows


def _wide(name: str) -> int:
    return 44 + 8 * len(name)


def _key_row(named: Iterable[tuple[str, str]], x: float, y: float) -> str:
    parts = []
    for classes, name in named:
        if "line" in classes or classes in {"limit", "asked"}:
            parts.append(f'<path class="{classes}" d="M{x:.0f} {y + 8:.0f}h18"/>')
        else:
            parts.append(f'<rect class="{classes}" x="{x:.0f}" y="{y:.0f}" width="16" height="16" rx="3"/>')
        parts.append(f'<text x="{x + 24:.0f}" y="{y + 13:.0f}">{escape(name)}</text>')
        x += _wide(name)
    return "".join(parts)


def thinned(points: Points) -> Points:
    """As many as can be seen; each stands for itself."""
    step = -(-len(points) // COLUMNS)
    return points[::step]


def grouped(values: Sequence[float], width_s: float, columns: int = COLUMNS) -> tuple[Points, float]:
    """The mean of as many neighbours as make no more columns than can be seen, and how long a column is."""
    step = max(1, -(-len(values) // columns))
    groups = [values[first : first + step] for first in range(0, len(values), step)]
    return [(number * step * width_s, sum(group) / len(group)) for number, group in enumerate(groups)], step * width_s


def steps(values: Points, width_s: float) -> Points:
    """Each value lasts from its time until the next."""
    return [point for at, value in values for point in ((at, value), (at + width_s, value))]


def _path(axes: Axes, points: Points) -> str:
    return "L".join(f"{axes.x(at):.1f} {axes.y(value):.1f}" for at, value in points)


def _values(bottom: float, top: float) -> Sequence[float]:
    """About five round ones."""
    span = top - bottom
    power = 10 ** (len(str(int(span))) - 1)
    step = next((power * factor for factor in (0.2, 0.5, 1, 2) if span / (power * factor) <= 6), power * 5)
    first = int(-(-bottom // step))
    return [number * step for number in range(first, int(top // step) + 1)]
