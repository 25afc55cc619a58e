"""Plays policies in processes of their own, as many at a time as there are cores."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Final

from regionquota.errors import RegionQuotaError
from regionquota.simulator.demand import Workload
from regionquota.simulator.outcome import Outcome
from regionquota.simulator.policies import play
from regionquota.simulator.scenario import Scenario

_LOOK_S: Final = 0.05
_SLOWEST_FIRST: Final = ("ours", "periodic")


@dataclass
class _Player:
    process: ForkProcess
    reader: Connection


@dataclass
class SideBySide:
    """`on_progress` hears how many bins each policy that takes a while has done."""

    scenario: Scenario
    work: Workload
    on_progress: Callable[[Mapping[str, int]], None] = lambda _: None
    _bins: dict[str, int] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)

    async def play(self, policies: Sequence[str], workers: int | None = None) -> Mapping[str, Outcome]:
        """The oracle's outcome is among them in any case. Raises `RegionQuotaError` if a process died."""
        waiting = sorted({"oracle", *policies}, key=lambda name: (name not in _SLOWEST_FIRST, name))
        playing: dict[str, _Player] = {}
        try:
            while waiting or playing:
                while waiting and len(playing) < (workers or os.cpu_count() or 1):
                    name = waiting.pop(0)
                    playing[name] = self._start(name)
                await asyncio.sleep(_LOOK_S)
                for name, player in list(playing.items()):
                    self._hear(name, player)
                    if name in self._outcomes:
                        playing.pop(name).process.join()
                self.on_progress(self._bins)
        finally:
            for player in playing.values():
                player.process.terminate()
                player.process.join()
        return self._outcomes

    def _start(self, name: str) -> _Player:
        context = multiprocessing.get_context("fork")  # the demand, a million requests, is there already
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_play, args=(name, self.scenario, self.work, writer), daemon=True)
        process.start()
        writer.close()
        return _Player(process, reader)

    def _hear(self, name: str, player: _Player) -> None:
        while name not in self._outcomes and player.reader.poll():
            try:
                heard = player.reader.recv()
            except EOFError:
                raise RegionQuotaError(f"the process that played {name} died: see what it said above") from None
            if isinstance(heard, Outcome):
                self._outcomes[name] = heard
            else:
                self._bins[name] = heard


def _play(name: str, scenario: Scenario, work: Workload, writer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    writer.send(play(name, scenario, work, writer.send))
    writer.close()
