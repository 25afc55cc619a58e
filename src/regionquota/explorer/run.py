"""One run: a start, and a number per step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from regionquota.explorer.choices import Choices, number, numbers
from regionquota.explorer.faults import Fault
from regionquota.explorer.invariants import Violation
from regionquota.explorer.rest import come_to_rest, end
from regionquota.explorer.starts import starts
from regionquota.explorer.world import World

STEPS: Final = 12
"""Of a run, the choice of the cast not counted. Starts are varied enough that most of what is found is found soon."""
LONG: Final = 40
"""Of one run in eight: some things need time."""
REST_EVERY: Final = 32
"""One run in so many goes on until everything is at rest; that takes longer than the run."""


@dataclass(frozen=True, slots=True)
class Script:
    """Enough to do a run again. The first number chooses who takes part."""

    start: int
    numbers: tuple[int, ...]
    rest: bool


@dataclass(slots=True)
class Done:
    """`path` and `states` are digests, of all choices and of each durable state that was reached."""

    path: int
    states: list[int] = field(default_factory=list)
    faults: dict[Fault, int] = field(default_factory=dict)
    violation: Violation | None = None


def script(seed: int) -> Script:
    """What a seed stands for."""
    length = LONG if number(seed, -3) % 8 == 0 else STEPS
    rest = number(seed, -2) % REST_EVERY == 0
    return Script(number(seed, -1) % len(starts()), tuple(numbers(seed, length + 1)), rest)


def run(wanted: Script, trace: Callable[[str], None] | None = None) -> Done:
    choices = Choices(wanted.numbers, path=wanted.start)
    world = World(starts()[wanted.start], choices, trace)
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
        return Done(choices.path, states, world.faults, found)
    return Done(path, states, world.faults)


def fails_like(wanted: Script, violation: Violation) -> Callable[[Sequence[int]], bool]:
    """Whether other numbers break the same invariant."""

    def fails(given: Sequence[int]) -> bool:
        found = run(Script(wanted.start, tuple(given), wanted.rest)).violation
        return found is not None and found.invariant is violation.invariant

    return fails
