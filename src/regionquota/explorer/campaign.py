"""Many runs, on several processes, and what came of them."""

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Final

from regionquota.explorer.choices import shrink
from regionquota.explorer.drive import by_hand
from regionquota.explorer.faults import Deed, Fault
from regionquota.explorer.invariants import Violation
from regionquota.explorer.logs import be_quiet, quiet
from regionquota.explorer.run import Script, fails_like, run, script
from regionquota.explorer.seen import Seen
from regionquota.explorer.starts import starts

_REPORT_S: Final = 1.0
_COLLECT_EVERY: Final = 500
"""Runs. Python's own rhythm costs a quarter of the time."""
_SHARED: Final = 500
"""One run in so many counts once for two workers: both did it, or its digest shares a bit with one of the other's."""
_MOST_VIOLATIONS: Final = 20
"""Enough to look at; the first is shrunk."""


@dataclass(frozen=True, slots=True)
class Options:
    """Ends after so many different `runs`, or `seconds`, whichever comes first."""

    runs: int
    seconds: float
    workers: int
    first_seed: int = 0


@dataclass(slots=True)
class Tally:
    """`runs` that differ from each other in what they chose. Those that repeat one are in `repeated`."""

    runs: int = 0
    repeated: int = 0
    distinct_states: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=lambda: {fault.value: 0 for fault in Fault})
    deeds: dict[str, int] = field(default_factory=lambda: {deed.value: 0 for deed in Deed})
    steps: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)

    @property
    def steps_per_run(self) -> float:
        return self.steps / max(1, self.runs + self.repeated)

    def plain(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "distinct_states": self.distinct_states,
            "violations": len(self.violations),
            "seconds": round(self.seconds, 1),
            "faults": self.faults,
            "events": self.deeds,
            "steps_per_run": round(self.steps_per_run, 1),
            "repeated": self.repeated,
            "seeds": [seed for seed, _ in self.violations],
        }


@dataclass(frozen=True, slots=True)
class Story:
    """A violation as a person wants to read it."""

    steps: int
    script: Script
    lines: Sequence[str]
    said: str


def explore(options: Options, on_progress: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Seeds from `first_seed` on. One worker works in this process."""
    starts()
    began = time.monotonic()
    if options.workers == 1:
        with quiet():
            tally, paths, states = _Worker(options, 0, on_progress).work()
        return _close(tally, paths, states, began)
    context = multiprocessing.get_context("fork")  # digests agree only between children of one parent
    pipes = [context.Pipe(duplex=False) for _ in range(options.workers)]
    children = [
        context.Process(target=_child, args=(options, number, writer), daemon=True)
        for number, (_, writer) in enumerate(pipes)
    ]
    try:
        for child, (_, writer) in zip(children, pipes, strict=True):
            child.start()
            writer.close()
        tally, paths, states = _gather([reader for reader, _ in pipes], on_progress)
    except BaseException:
        _end(children)
        raise
    for child in children:
        child.join()
    return _close(tally, paths, states, began)


def _end(children: Sequence[ForkProcess]) -> None:
    for child in children:
        if child.is_alive():
            child.terminate()
            child.join()


def _close(tally: Tally, paths: Seen, states: Seen, began: float) -> Tally:
    done = tally.runs + tally.repeated
    tally.runs = paths.count()
    tally.repeated = done - tally.runs
    tally.distinct_states = states.count()
    tally.seconds = time.monotonic() - began
    tally.violations.sort()
    return tally


def _gather(readers: list[Connection], on_progress: Callable[[Tally], None]) -> tuple[Tally, Seen, Seen]:
    paths, states = Seen(), Seen()
    latest: dict[int, Tally] = {}
    open_ = {id(reader): reader for reader in readers}
    while open_:
        for reader in wait(list(open_.values())):
            assert isinstance(reader, Connection)
            try:
                heard, seen = reader.recv()
            except EOFError:
                del open_[id(reader)]
                continue
            latest[id(reader)] = heard
            if seen is not None:
                paths.merge(seen[0])
                states.merge(seen[1])
        on_progress(_sum(list(latest.values())))
    if len(latest) < len(readers):
        raise RuntimeError("a worker of the explorer died before it said anything")
    return _sum(list(latest.values())), paths, states


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = Tally()
    for one in tallies:
        total.runs += one.runs
        total.repeated += one.repeated
        total.distinct_states += one.distinct_states
        total.seconds = max(total.seconds, one.seconds)
        total.violations += one.violations
        total.steps += one.steps
        for name, count in one.faults.items():
            total.faults[name] += count
        for name, count in one.deeds.items():
            total.deeds[name] += count
    return total


def _child(options: Options, number: int, writer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    be_quiet()
    worker = _Worker(options, number, lambda tally: writer.send((tally, None)))
    tally, paths, states = worker.work()
    writer.send((tally, (paths, states)))
    writer.close()


class _Worker:
    """Takes every so many-th seed."""

    def __init__(self, options: Options, number: int, on_progress: Callable[[Tally], None]) -> None:
        self._options = options
        self._seed = options.first_seed + number
        self._wanted = options.runs // options.workers + (number < options.runs % options.workers)
        if options.workers > 1:
            self._wanted += self._wanted // _SHARED
        self._on_progress = on_progress
        self._tally = Tally()
        self._paths = Seen()
        self._states = Seen()

    def work(self) -> tuple[Tally, Seen, Seen]:
        gc.collect()
        gc.freeze()  # what is here stays: no collection has to look at it again
        gc.disable()
        began = said = time.monotonic()
        with by_hand():
            while self._tally.runs < self._wanted and len(self._tally.violations) < _MOST_VIOLATIONS:
                self._one()
                if self._seed // self._options.workers % _COLLECT_EVERY == 0:
                    gc.collect()
                now = time.monotonic()
                if now - said >= _REPORT_S:
                    said = now
                    self._tally.seconds = now - began
                    self._on_progress(self._tally)
                if now - began >= self._options.seconds:
                    break
        gc.enable()
        gc.unfreeze()
        return self._tally, self._paths, self._states

    def _one(self) -> None:
        tally, seed = self._tally, self._seed
        self._seed += self._options.workers
        done = run(script(seed))
        if self._paths.add(done.path):
            tally.runs += 1
        else:
            tally.repeated += 1
        for state in done.states:
            tally.distinct_states += self._states.add(state)
        tally.steps += done.steps
        for fault, count in done.faults.items():
            tally.faults[fault] += count
        for deed, count in done.deeds.items():
            tally.deeds[deed] += count
        if done.violation is not None:
            tally.violations.append((seed, str(done.violation)))


def tell(wanted: Script) -> tuple[list[str], Violation | None]:
    """A run again, in words."""
    lines: list[str] = []
    with quiet():
        found = run(wanted, lines.append).violation
    return lines, found


def story(wanted: Script) -> Story | None:
    """The shortest run that was found to break what `wanted` breaks. None: it breaks nothing."""
    starts()
    with quiet():
        found = run(wanted).violation
        if found is None:
            return None
        shrunk = replace(wanted, numbers=tuple(shrink(wanted.numbers, fails_like(wanted, found))))
    lines, violation = tell(shrunk)
    assert violation is not None
    return Story(len(shrunk.numbers) - 1, shrunk, lines, str(violation))
