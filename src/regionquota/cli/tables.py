"""Rows on a terminal of any width: what somebody may want to copy is never broken."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

PROSE_WIDTH: Final = 20
"""Cells of prose are folded at words, but not to less than this."""
GAP: Final = 2
"""Between columns without lines."""


@dataclass(frozen=True, slots=True)
class _Column:
    """`least` is as wide as what may not be broken, `most` as wide as all of it in one line."""

    name: str
    numeric: bool
    least: int
    most: int


def laid_out(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str | None,
    prose: Collection[str],
    room: int | None,
) -> RenderableType:
    """As a table; in less `room` without its lines; in still less one cell below the other, as wide as they are.

    `prose` names columns whose cells may be folded at words, headings always are. `room` None: there is any.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    described = [_column(name, at, rows, cells, foldable=name in prose) for at, name in enumerate(columns)]
    for lines, around, between in ((box.HEAVY_HEAD, 4, 3), (None, 0, GAP)):
        beside = around + between * (len(columns) - 1)
        widths = _widths(described, None if room is None else room - beside)
        if widths is not None:
            table = Table(title=title, title_justify="left", box=lines, width=beside + sum(widths))
            return _filled(table, described, widths, cells)
    return Text("\n".join(_below_each_other(columns, cells, title)))


def _column(
    name: str, at: int, rows: Sequence[Sequence[object]], cells: Sequence[Sequence[str]], *, foldable: bool
) -> _Column:
    numeric = bool(rows) and all(isinstance(row[at], int | float) or row[at] is None for row in rows)
    texts = [row[at] for row in cells]
    heading = _widest(name.split())
    whole = _widest(texts)
    least = (
        max(_widest(word for text in texts for word in text.split()), min(whole, PROSE_WIDTH)) if foldable else whole
    )
    return _Column(name, numeric, max(1, heading, least), max(1, _widest(name.split("\n")), whole))


def _widths(columns: Sequence[_Column], room: int | None) -> Sequence[int] | None:
    """None: there is not even room for what may not be broken. Columns that lack little are served first."""
    if room is None:
        return [one.most for one in columns]
    widths = [one.least for one in columns]
    left = room - sum(widths)
    if left < 0:
        return None
    for at in sorted(range(len(columns)), key=lambda at: columns[at].most - columns[at].least):
        more = min(left, columns[at].most - columns[at].least)
        widths[at] += more
        left -= more
    return widths


def _filled(
    table: Table, columns: Sequence[_Column], widths: Sequence[int], cells: Sequence[Sequence[str]]
) -> RenderableType:
    if table.box is None:
        table.pad_edge, table.padding = False, (0, GAP, 0, 0)
    for one, width in zip(columns, widths, strict=True):
        table.add_column(one.name, justify="right" if one.numeric else "left", width=width, overflow="fold")
    for row in cells:
        table.add_row(*row)
    return table


def _below_each_other(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str | None) -> Iterator[str]:
    """A line per row of a table of two columns, of others a block."""
    names = [name.replace("\n", " ") for name in columns]
    if title is not None:
        yield title
    if not cells:
        yield f"{', '.join(names)}: none"
    elif len(names) == 2:
        yield from _aligned([names, *cells])
    else:
        for number, row in enumerate(cells):
            if number:
                yield ""
            yield from _aligned(list(zip(names, row, strict=True)))


def _aligned(pairs: Sequence[Sequence[str]]) -> Iterator[str]:
    width = _widest(name for name, _ in pairs)
    for name, text in pairs:
        yield f"{name}{' ' * (width - cell_len(name) + GAP)}{text}"


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
