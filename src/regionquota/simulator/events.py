"""What happens to a deployment while its demand goes on, in numbers of regions and seconds of the scenario."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regionquota.simulator.plots import clock
from regionquota.simulator.scenario import Scenario

ALL: int = -1
"""In place of a region: it concerns all."""
WORDS: Final = {
    "partition": "cut off",
    "region_down": "lost",
    "frozen": "frozen",
    "coordinator_down": "no coordinator",
    "weight": "weight",
}


@dataclass(frozen=True, slots=True)
class Happening:
    what: str
    region: int
    begin: float
    end: float
    weight: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def happenings(scenario: Scenario, regions: Sequence[str], seconds: float) -> Sequence[Happening]:
    """What is not ended lasts until the scenario is over, after `seconds`; what begins later never happens."""
    return tuple(
        Happening(
            event.what,
            ALL if event.region is None else regions.index(event.region),
            event.at_s,
            seconds if event.until_s is None else min(event.until_s, seconds),
            event.weight or 0,
        )
        for event in scenario.events
        if event.at_s < seconds
    )


def cuts(happened: Sequence[Happening]) -> Mapping[int, list[tuple[float, float]]]:
    """When which region reaches nobody."""
    found: dict[int, list[tuple[float, float]]] = {}
    for one in happened:
        if one.what in {"partition", "region_down"}:
            found.setdefault(one.region, []).append((one.begin, one.end))
    return found


def is_down(happened: Sequence[Happening], region: int, at: float) -> bool:
    return any(one.what == "region_down" and one.region == region and one.begin <= at < one.end for one in happened)


def in_words(one: Happening, regions: Sequence[str]) -> str:
    """`eu cut off from 20 min to 30 min`."""
    if one.what == "weight":
        return f"{regions[one.region]} has weight {one.weight:,} from {clock(one.begin)} on"
    where = "" if one.region == ALL else f"{regions[one.region]} "
    return f"{where}{WORDS[one.what]} from {clock(one.begin)} to {clock(one.end)}"
