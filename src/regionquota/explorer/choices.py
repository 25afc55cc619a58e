"""What a run chooses: a whole number per step, whose digits answer every question of that step.

So a run is a short list of numbers. A list with some left out is a run, too, which is what shrinking needs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_MASK: Final = 2**64 - 1
_PER_SEED: Final = 0xD1342543DE82EF95
_PER_STEP: Final = 0x9E3779B97F4A7C15


def number(seed: int, step: int) -> int:
    """64 bits, as SplitMix64 makes them: a seed costs nothing to begin, and any step can be asked for."""
    word = (seed * _PER_SEED + (step + 1) * _PER_STEP) & _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


def numbers(seed: int, steps: int) -> list[int]:
    """The first so many."""
    made: list[int] = []
    base = seed * _PER_SEED
    for _ in range(steps):
        base += _PER_STEP
        word = base & _MASK
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
        made.append(word ^ word >> 31)
    return made


class Choices:
    """`path` is a digest of all that was chosen, and out of how many: two runs with one path are the same run."""

    __slots__ = ("_numbers", "_rest", "_scale", "_whole", "path")

    def __init__(self, given: Iterable[int], path: int = 0) -> None:
        self._numbers: Iterator[int] = iter(given)
        self._whole = self._rest = 0
        self._scale = 1
        self.path = path

    def step(self) -> bool:
        """Go on to the next number. False: there is none."""
        self.path = hash((self.path, self._whole % self._scale, self._scale))
        self._scale = 1
        following = next(self._numbers, None)
        self._whole = self._rest = following or 0
        return following is not None

    def pick(self, count: int) -> int:
        """0 .. count - 1. What a number has no digits left for is 0."""
        self._rest, chosen = divmod(self._rest, count)
        self._scale *= count
        return chosen

    def one_of(self, options: Sequence[T]) -> T:
        count = len(options)
        self._rest, chosen = divmod(self._rest, count)
        self._scale *= count
        return options[chosen]


def shrink(given: Sequence[int], fails: Callable[[Sequence[int]], bool], attempts: int = 4000) -> list[int]:
    """Delta debugging: leave out steps, in ever smaller parts, while the run still `fails`; then use small numbers.

    Ends after so many `attempts` with the smallest that was found.
    """
    best, left, part = list(given), attempts, max(1, len(given) // 2)
    while left > 0:
        smaller = False
        for begin in range(len(best) - part, -1, -part):
            candidate = best[:begin] + best[begin + part :]
            left -= 1
            if candidate and fails(candidate):
                best, smaller = candidate, True
        if part == 1 and not smaller:
            break
        part = part if smaller and part > 1 else max(1, part // 2)
    return _simplify(best, fails, left)


def _simplify(best: list[int], fails: Callable[[Sequence[int]], bool], left: int) -> list[int]:
    """A number with fewer digits chooses the first of everything that the digits left out would have decided."""
    for at in range(len(best)):
        for bits in (0, 4, 8, 12, 16, 24, 32, 48):
            simple = best[at] & (1 << bits) - 1
            if left <= 0 or simple == best[at]:
                break
            left -= 1
            if fails([*best[:at], simple, *best[at + 1 :]]):
                best[at] = simple
                break
    return best
