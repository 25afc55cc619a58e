"""Keeps a region's server in the history of etcd that its slices belong to, and notices when that has ended."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from regionquota.core.history import Bond, History, Phase, Sight, Standing
from regionquota.core.quota import Region
from regionquota.core.recovery import Stated, Statement
from regionquota.core.slice import Holding
from regionquota.histories import known_history
from regionquota.history_ports import HistoryStore, StandingStore
from regionquota.ports import Clock, RegionRecord, RegionStore
from regionquota.region.pages import pages

_log = structlog.get_logger(__name__)
STATE_INTERVAL_S: Final = 10.0
"""How often an evicted region, or one whose history is recovered, repeats what it holds."""


class HistoryWatch:
    """`on_ended`: this process is bound to a standing that its region's database is not in any more; it has to start
    anew. `trouble` is for people: why nothing moves, None while all is well.
    """

    def __init__(
        self,
        me: Region,
        instance: str,
        histories: HistoryStore,
        standings: StandingStore,
        store: RegionStore,
        bond: Bond,
        clock: Clock,
        on_ended: Callable[[], None],
    ) -> None:
        self._me = me
        self._instance = instance
        self._histories = histories
        self._standings = standings
        self._store = store
        self._bond = bond
        self._clock = clock
        self._on_ended = on_ended
        self._remembered = Sight()
        self._stated: tuple[Standing, float] | None = None
        self.trouble: str | None = None

    def is_evicted(self) -> bool:
        """As was known when this process was bound."""
        return self._bond.is_evicted

    async def step(self) -> None:
        """Idempotent; any number of servers of a region may do it at once. Raises `Unavailable`."""
        standing = await self._recall()
        former = None if standing is None else standing.history
        by = f"{self._me} ({self._instance})"
        now = self._clock.now()
        history = await known_history(self._histories, self._bond, former, by, now, self._is_evicted_anew)
        record = await self._histories.record(self._me)
        wanted = _standing_in(history, record, standing)
        # What an evicted region that no recovery has heard of holds is nobody's word.
        distrust = _is_left_out(standing, history)
        if (
            wanted != standing
            and wanted is not None
            and await self._standings.adopt(standing, wanted, distrust=distrust)
        ):
            _log.warning("another standing", region=self._me, history=wanted.history, evictions=wanted.evictions)
            standing = await self._recall()
        self._bind_to(standing, wanted, is_evicted=_is_evicted(record))
        self._say(history, standing)
        if standing is not None and _is_left_out(standing, history):
            await self._stop_admission(standing)
        if standing is not None and _has_to_state(history, record, standing):
            await self._state(standing, history.phase)
        await self._remember(history)

    async def _recall(self) -> Standing | None:
        if self._bond.standing is not None:
            return await self._standings.standing()
        standing, sight = await self._standings.recall()
        self._bond.seen.recall(sight)
        return standing

    async def _is_evicted_anew(self) -> bool:
        """Who was evicted and has not obeyed yet holds more than it owns, no sign of an etcd gone backwards."""
        bound = self._bond.standing
        return bound is not None and _evictions(await self._histories.record(self._me)) > bound.evictions

    def _bind_to(self, standing: Standing | None, wanted: Standing | None, *, is_evicted: bool) -> None:
        """`is_evicted` was said of `wanted`: should there be another eviction since, the next step sees to it."""
        bond = self._bond
        if bond.standing is not None and bond.standing != standing:
            self._on_ended()
        elif standing is not None and wanted is not None and standing.agrees_with(wanted):
            bond.is_evicted = is_evicted
            bond.bind(standing)

    def _say(self, history: History, standing: Standing | None) -> None:
        trouble = history.trouble or None
        if _is_left_out(standing, history):
            trouble = (
                f"etcd is in history {history.name}, region {self._me} is no part of it. If it was recovered without "
                f"the region, this may hold what others own by now: evict it (regionquota region evict {self._me} "
                "--attest TEXT), and readmit it. If it was replaced, or restored once more: regionquota region recover "
                f"--anyway --region {self._me}"
            )
        if trouble is not None and trouble != self.trouble:
            _log.error("nothing moves", region=self._me, why=trouble)
        elif trouble is None and self.trouble is not None:
            _log.info("headroom moves again", region=self._me)
        self.trouble = trouble

    async def _stop_admission(self, standing: Standing) -> None:
        """The history that runs was rebuilt without us: what we hold, others may own by now."""
        if (await self._store.incarnation()).is_trusted:
            await self._standings.adopt(standing, standing, distrust=True)
            _log.error("nothing is admitted until this region is evicted, or recovered", region=self._me)
            self._on_ended()  # every connection has to learn of it

    async def _state(self, standing: Standing, phase: Phase) -> None:
        """Say what is held, once the slices cannot grow any more under a former standing.

        An evicted region says it while history runs, as evidence of what is in use: once it holds nothing to spend.
        """
        now = self._clock.now()
        if self._stated is not None and self._stated[0] == standing and now - self._stated[1] < STATE_INTERVAL_S:
            return
        if phase is Phase.RUNNING and not (await self._store.incarnation()).is_trusted:
            return  # what it has to give up it still has
        held = [_stated(holding) async for page in pages(self._store) for holding in page]
        if phase is Phase.RUNNING and any(one.slice for one in held):
            return
        is_trusted = phase is Phase.RUNNING or (await self._store.incarnation()).is_trusted
        if not is_trusted:
            held = [_without_slice(one) for one in held]
        await self._histories.state(Statement(self._me, standing, held, is_trusted))
        self._stated = standing, now

    async def _remember(self, history: History) -> None:
        seen = self._bond.seen
        if seen.broken is None and history.phase is Phase.RUNNING and seen.sight != self._remembered:
            await self._standings.remember(history.name, seen.sight)
            self._remembered = seen.sight


def _without_slice(word: Stated) -> Stated:
    """Where a comparison has begun, what it has taken is owed by now."""
    return replace(word, slice=0, in_use=min(word.slice, word.in_use) if word.slice else word.in_use)


def _is_left_out(standing: Standing | None, history: History) -> bool:
    """Whether a history runs that the region is no part of: it was rebuilt without us, or etcd was replaced."""
    return standing is not None and history.phase is Phase.RUNNING and history.name != standing.history


def _standing_in(history: History, record: RegionRecord | None, standing: Standing | None) -> Standing | None:
    """What the region's standing has to be."""
    evicted = _evictions(record)
    if standing is None:
        return None if history.phase is Phase.HALTED else Standing(history.name, evicted)
    if evicted > standing.evictions:
        # It gives up everything before it admits again: so it may come from whatever history.
        name = standing.history if history.phase is Phase.HALTED else history.name
        return replace(standing, history=name, evictions=evicted)
    if history.phase is Phase.RECOVERING or (history.phase is Phase.RUNNING and _is_evicted(record)):
        return replace(standing, history=history.name)
    return standing


def _has_to_state(history: History, record: RegionRecord | None, standing: Standing) -> bool:
    if standing.history != history.name:
        return False
    return history.phase is Phase.RECOVERING or _is_evicted(record)


def _is_evicted(record: RegionRecord | None) -> bool:
    return record is not None and record.is_evicted


def _evictions(record: RegionRecord | None) -> int:
    return 0 if record is None else record.evictions


def _stated(held: Holding) -> Stated:
    return Stated(
        key=held.key,
        kind=held.kind,
        limit=held.limit,
        unlimited=held.unlimited,
        policy=held.policy,
        revision=abs(held.revision),
        epoch=held.epoch,
        slice=held.slice,
        in_use=held.counter.in_use,
    )
