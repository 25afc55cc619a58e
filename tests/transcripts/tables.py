"""The state of a story, as a table: etcd's word on the quota, and beside it what each region's Postgres holds."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.transcripts.seen import Database, Picture, requests

from regionquota.core.allocation import Allocation
from regionquota.core.periods import start_of
from regionquota.core.quota import Kind, Region
from regionquota.core.slice import Holding
from regionquota.ports import RegionRecord, RegionStatus

_COLUMNS: Final = ("owns", "slice", "used", "reserved", "headroom", "debt")
_WIDTH: Final = 10


def table(now: Picture, cut_off: Sequence[Region]) -> list[str]:
    document = now.document
    assert document is not None
    lines = [f"etcd      {_sum(document)}    (revision {now.revision}{_history(now)})"]
    lines += [f"          {asked}" for asked in requests(document.moves)]
    lines.append(f"{'region':<8}" + "".join(f"{name:>{_WIDTH}}" for name in _COLUMNS))
    for name, database in sorted(now.databases.items()):
        remarks = ", ".join(_remarks(now.records.get(name), database, is_cut_off=name in cut_off))
        lines.append(f"{name:<8}{_row(document.slice_of(name), database.held)}{'    ' if remarks else ''}{remarks}")
    total = sum(one.usable for one in now.databases.values())
    verdict = "within" if total <= document.limit else "still above"
    owned = sum(document.slices.values())
    lines.append(
        f"{'all':<8}{owned:>{_WIDTH}}{total:>{_WIDTH}}    can be admitted, {verdict} the limit of {document.limit}"
    )
    return lines


def _sum(document: Allocation) -> str:
    parts = [f"pool {document.pool}"]
    if document.retired_units:
        parts.append(f"retired {document.retired_units}")
    parts += [f"{name} {size}" for name, size in sorted(document.slices.items())]
    return f"limit {document.limit} = {' + '.join(parts)}"


def _history(now: Picture) -> str:
    return "" if now.history is None else f', history "{now.history.name}" {now.history.phase}'


def _row(owned: int, held: Holding | None) -> str:
    if held is None:
        return f"{owned:>{_WIDTH}}" + f"{'-':>{_WIDTH}}" * (len(_COLUMNS) - 1)
    counter = held.counter
    cells = (owned, held.slice, counter.used, counter.reserved, counter.available, counter.debt)
    return "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def _remarks(record: RegionRecord | None, database: Database, *, is_cut_off: bool) -> Iterator[str]:
    held = database.held
    if held is not None and held.kind is Kind.CONSUMABLE:
        yield f"in {start_of(held.epoch, held.policy.calendar):%B}"
    if database.lost:
        yield "lost"
    if is_cut_off:
        yield "cut off"
    if record is not None and record.frozen is not None:
        yield "frozen"
    if record is not None and record.status is RegionStatus.EVICTED:
        yield "evicted"
    if not database.trusted:
        yield "admits nothing yet"
