"""One run: a start, and a number per step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from regionquota.explorer.choices import Choices, number, numbers
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Violation
from regionquota.explorer.rest import come_to_rest, end
from regionquota.explorer.starts import starts
from regionquota.explorer.world import World

STEPS: Final = 12
"""Of a run, the choice of the cast not counted. Starts are varied enough that most of what is found is found soon."""
FAILS_OVER_EVERY: Final = 8
"""In one run in so many, databases fail over."""
LONG: Final = 20
"""Of those: the comparison alone takes seven."""
LOSES_ETCD_EVERY: Final = 20
"""In one run in so many etcd is restored from snapshots: such runs take as many steps as longer ones."""
LONGER: Final = 40
LONGER_EVERY: Final = 40
"""Some things need time."""
LONGEST: Final = (100, 200)
LONGEST_EVERY: Final = 50
"""What nobody thought of needs more."""
REST_EVERY: Final = 40
"""One run in so many goes on until everything is at rest; that takes longer than the run."""
LOST_REST_EVERY: Final = 4
"""Of those that lose etcd, which are few."""


URGENT_EVERY: Final = 10
_URGENT: Final = 1
"""Between two rounds, in one run in so many, coordinators also plan what regions cry for."""


@dataclass(frozen=True, slots=True)
class Script:
    """Enough to do a run again. The first number chooses who takes part.

    `rest`: it goes on until everything is at rest. `fails_over`: databases do. `loses_etcd`: it is restored from
    snapshots, and regions are evicted. `urgent`: regions that run short cry.
    """

    start: int
    numbers: tuple[int, ...]
    rest: bool
    fails_over: bool = False
    loses_etcd: bool = False
    urgent: bool = False


@dataclass(slots=True)
class Done:
    """`path` and `states` are digests, of all choices and of each durable state that was reached."""

    path: int
    steps: int
    states: list[int] = field(default_factory=list)
    faults: dict[Fault, int] = field(default_factory=dict)
    deeds: dict[Deed, int] = field(default_factory=dict)
    violation: Violation | None = None


def script(seed: int) -> Script:
    """What a seed stands for."""
    lot = Choices((number(seed, -1),))
    lot.step()
    start = lot.pick(len(starts()))
    rest = lot.pick(REST_EVERY) == 0
    fails_over = lot.pick(FAILS_OVER_EVERY) == 0
    loses_etcd = lot.pick(LOSES_ETCD_EVERY) == 0
    length = LONG if fails_over else STEPS
    if lot.pick(LONGEST_EVERY) == 0:
        length = LONGEST[0] + lot.pick(LONGEST[1] - LONGEST[0] + 1)
    elif lot.pick(LONGER_EVERY) == 0:
        length = LONGER
    if loses_etcd:
        rest = lot.pick(LOST_REST_EVERY) == 0
        return Script(start, tuple(numbers(seed, max(length, LONGER) + 1)), rest, fails_over, True)
    urgent = lot.pick(URGENT_EVERY) == _URGENT
    return Script(start, tuple(numbers(seed, length + 1)), rest, fails_over, urgent=urgent)


def run(wanted: Script, trace: Callable[[str], None] | None = None) -> Done:
    choices = Choices(wanted.numbers, path=wanted.start)
    world = World(
        starts()[wanted.start],
        choices,
        trace,
        fails_over=wanted.fails_over,
        loses_etcd=wanted.loses_etcd,
        urgent=wanted.urgent,
    )
    states: list[int] = []
    try:
        while world.step():
            if world.changed:
                states.append(world.state())
        path = choices.path
        end(world)
        if wanted.rest:
            come_to_rest(world)
    except Violation as found:
        world.abandon()
        return Done(choices.path, world.steps, states, world.faults, world.deeds, found)
    return Done(path, world.steps, states, world.faults, world.deeds)


def fails_like(wanted: Script, violation: Violation) -> Callable[[Sequence[int]], bool]:
    """Whether other numbers break the same invariant."""

    def fails(given: Sequence[int]) -> bool:
        found = run(replace(wanted, numbers=tuple(given))).violation
        return found is not None and found.invariant is violation.invariant

    return fails
