"""What a region that is cut off, and the others meanwhile, admit less than one counter would, by what it holds.

`.venv/bin/python benchmarks/cut_off.py ../shared/traces/follow_the_sun.csv`: on paper, of each region, cut off at many
times of 40 days, for 1, 2 and 4 hours. The limit is 1.2 times the mean demand; a tenth of it is in the pool.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeAlias

from regionquota.core.forecast import Counted, Past, hours_to_recall, outlook
from regionquota.core.quota import QuotaKey
from regionquota.replay.trace import read_columns, read_trace

BIN_S: Final = 300.0
BINS_AN_HOUR: Final = 12
DAYS: Final = 40
FIRST_DAY: Final = 15
EVERY: Final = 43
"""Bins between two times at which regions are cut off."""
LIMIT_FACTOR: Final = 1.2
HOUR_S: Final = 3600.0
KEY: Final = QuotaKey("acme", "calls")

Rows: TypeAlias = Sequence[Sequence[int]]


def foreseen(rows: Rows, at: int, region: int) -> float:
    """Units a bin, as the product expects them."""
    now = at * BIN_S
    wanted = [hour for hour in hours_to_recall(now, HOUR_S) if hour >= 0]
    hours = {}
    for hour in wanted:
        first = int(hour / BIN_S)
        hours[hour] = Counted(sum(row[region] for row in rows[first : min(at, first + BINS_AN_HOUR)]))
    found = outlook(Past(KEY, 0.0, hours), now, HOUR_S)
    return 0.0 if found is None else found.at(now, HOUR_S).expected * BIN_S


RULES: Final[Mapping[str, Callable[[Rows, int, int], float]]] = {
    "the same for all": lambda _rows, _at, _region: 0.0,
    "as in the last bin": lambda rows, at, region: float(rows[at - 1][region]),
    "as in the last hour": lambda rows, at, region: sum(row[region] for row in rows[at - 12 : at]) / 12,
    "what is foreseen": foreseen,
}


def shared(wants: Sequence[float], capacity: float) -> Sequence[float]:
    rest = capacity - sum(wants)
    return [want + rest / len(wants) if rest > 0 else want * capacity / sum(wants) for want in wants]


def main(path: Path) -> None:
    names = read_columns(path)
    rows = read_trace(path, names, scale=0.4, skip=0, most=DAYS * 24 * BINS_AN_HOUR).demand
    sums = [0, *accumulate(sum(row) for row in rows)]
    limit = LIMIT_FACTOR * sums[-1] / len(rows)
    for hours in (1, 2, 4):
        best, lost = 0.0, dict.fromkeys(RULES, 0.0)
        for at in range(FIRST_DAY * 24 * BINS_AN_HOUR, len(rows) - hours * BINS_AN_HOUR, EVERY):
            slices = {
                name: shared([rule(rows, at, region) for region in range(len(names))], 0.9 * limit)
                for name, rule in RULES.items()
            }
            for row in rows[at : at + hours * BINS_AN_HOUR]:
                together = min(limit, sum(row))
                for region, own in enumerate(row):
                    best += together
                    for name, held in slices.items():
                        lost[name] += together - min(held[region], own) - min(limit - held[region], sum(row) - own)
        told = ", ".join(f"{name} {100 * units / best:.2f} %" for name, units in lost.items())
        print(f"cut off for {hours} h: {told}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
