"""What regions cry for, as a coordinator of the explorer hears it: of whatever region and quota is chosen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regionquota.coordinator.urgent import Cries as Board
from regionquota.coordinator.urgent import Heard
from regionquota.core.demand import Demand
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.explorer.quotas import QUOTAS

if TYPE_CHECKING:
    from regionquota.explorer.world import World


class Cries(Board):
    """Nobody waits for one: what was chosen last has just been heard."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._chosen: Sequence[tuple[Region, Demand]] = ()

    def choose(self) -> str:
        """One or two regions, and how much they have denied. Nothing says that what they said is still so."""
        choices, world = self._world.choices, self._world
        key = choices.one_of(QUOTAS)
        regions = {choices.one_of(world.names) for _ in range(1 + choices.pick(2))}
        self._chosen = [
            (region, _word(key, world.checks.regions[region].held.get(key), choices.pick(5)))
            for region in sorted(regions)
        ]
        return f"{', '.join(sorted(regions))} with {key.scope}"

    async def take(self) -> Heard:
        return Heard(self._chosen, self._chosen)


def _word(key: QuotaKey, held: Holding | None, denied: int) -> Demand:
    if held is None:
        return Demand(key, 0, 0, 0, denied=denied, seconds=1.0)
    counter = held.counter
    return Demand(key, counter.slice, counter.used, counter.reserved, denied=denied, seconds=1.0, epoch=held.epoch)
