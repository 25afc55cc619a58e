"""Histories of long runs, for who checks histories."""

from collections.abc import Sequence
from dataclasses import dataclass

from regionquota.core.allocation import Allocation
from regionquota.core.invariants import SliceChange
from regionquota.core.quota import Region
from regionquota.explorer.choices import Choices, numbers
from regionquota.explorer.drive import finish
from regionquota.explorer.logs import quiet
from regionquota.explorer.quotas import WHOLE
from regionquota.explorer.starts import starts
from regionquota.explorer.world import CASTS, World

NOBODY_HOLDS_ANYTHING = 0
STEPS = 800


@dataclass(frozen=True)
class Histories:
    """Of one quota: all revisions of its document, and what each region's slice ledger says."""

    history: Sequence[tuple[int, Allocation]]
    rows: dict[Region, list[SliceChange]]
    largest_limit: int

    def changes(self) -> dict[Region, list[SliceChange]]:
        return {region: list(rows) for region, rows in self.rows.items()}


def explored(seed: int) -> Histories:
    """Everybody takes part; one call in eight goes wrong."""
    with quiet():
        start = starts()[NOBODY_HOLDS_ANYTHING]
        world = World(start, Choices([len(CASTS) - 1, *numbers(seed, STEPS)]))
        while world.step():
            pass
        world.abandon()
    rows = {
        region: [
            SliceChange(row.key, region, row.revision, row.before, row.after)
            for row in finish(store.slice_history(0, 10**6, WHOLE))
        ]
        for region, store in world.stores()
    }
    return Histories(world.history(WHOLE), rows, world.checks.largest[WHOLE])
