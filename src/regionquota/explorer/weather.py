"""What befalls everybody: partitions, clocks that jump, leases that end, late messages, databases that lose commits."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.history import History, Phase
from regionquota.core.quota import Region
from regionquota.explorer.drive import finish
from regionquota.explorer.faults import Fault
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.ports import Message
from regionquota.explorer.processes import SKEWS, Agent, Planner
from regionquota.explorer.replicas import LOST, Replicas

if TYPE_CHECKING:
    from regionquota.explorer.world import World

_LONG_S: Final = 25.0
"""Longer than any lease."""
_MOST_MAIL: Final = 4
_ONLOOKER: Final = 2
"""Number of the server that looks after the history when others have no time for it."""
_MOST_SNAPSHOTS: Final = 6
_BUMP: Final = 1000
"""Revisions that a restored etcd may be told to leave out (etcdutl snapshot restore --bump-revision)."""


class _Mail(NamedTuple):
    name: str
    message: Message
    store_of: Region | None


class Weather:
    """`fails_over`: databases do, in this run; `snapshot`: what etcd may be restored as. Copies cost time.

    `calm`: nothing else befalls it.
    """

    def __init__(self, world: "World", *, calm: bool, fails_over: bool, snapshot: MemoryCoordination | None) -> None:
        self._world = world
        self._calm = calm
        self.threatens = fails_over or snapshot is not None or not calm
        self._snapshots: deque[MemoryCoordination] = deque(maxlen=_MOST_SNAPSHOTS)
        if snapshot is not None:
            self._snapshots += (snapshot, snapshot, snapshot, world.etcd.copy(world))
        self.fenced: set[Region] = set()
        """Regions that are switched off."""
        self._fails_over = fails_over
        self._cut: set[Region] = set()
        self._mail: list[_Mail] = []
        self._replicas: dict[Region, Replicas] = {}
        self.distrusted: tuple[Region, str] | None = None

    # -- what the world asks --

    def is_cut_off(self, region: Region) -> bool:
        cut = region in self._cut
        if cut:
            self._world.count(Fault.PARTITION)
        return cut

    def post(self, name: str, message: Message, store_of: Region | None) -> None:
        if len(self._mail) < _MOST_MAIL:
            self._mail.append(_Mail(name, message, store_of))

    def replicate(self, store: MemoryRegionStore, lagging: Sequence[MemoryRegionStore]) -> None:
        if self._fails_over:
            self._replicas[store.region] = Replicas(store, lagging)

    def note_write(self, region: Region) -> None:
        """To be called before it is made."""
        if self._fails_over:
            self._replicas[region].follow()

    def note_documents(self) -> None:
        """They have changed."""
        if self._world.loses_etcd:
            self._snapshots.append(self._world.etcd.copy(self._world))

    @property
    def presses(self) -> bool:
        """Whether it matters who acts next."""
        return self.distrusted is not None or bool(self._snapshots)

    def next_to_act(self) -> str | None:
        """Most steps after a failover are ones by one of the region's agents, until the database is trusted; and many
        are a rescuer's, while there is something to rescue.
        """
        if self._snapshots and self._world.choices.pick(8) < self._need_of_rescue():
            return "rescuer"
        if self.distrusted is None or self._world.choices.pick(4) == 0:
            return None
        region, agent = self.distrusted
        if self._world.checks.regions[region].trusted:
            self.distrusted = None
            return None
        return agent

    def _need_of_rescue(self) -> int:
        """In how many of eight steps."""
        history, records = self._world.etcd.history[1], self._world.checks.records.values()
        if history is None or history.phase is not Phase.RUNNING:
            return 4
        return int(any(one.record.is_evicted for one in records))

    # -- what befalls it --

    def strike(self) -> None:
        world, choices = self._world, self._world.choices
        if self._replicas and (self._calm or choices.pick(3) == 0):
            region = choices.one_of(list(self._replicas))
            self.fail_over(region, choices.one_of(LOST))
            return
        if self._snapshots and choices.pick(8) == 0:
            self._restore_etcd()
            return
        kind = choices.pick(8)
        if kind < 4 and self._mail:
            self._deliver(choices.pick(len(self._mail)))
        elif kind < 5:
            self.cut_off(choices.one_of(world.names))
        elif kind < 6:
            process = world.process(choices.one_of(world.cast))
            process.clock.skew = choices.one_of(SKEWS)
            world.count(Fault.CLOCK_SKEW)
            world.tell(process, f"has a clock that is off by {process.clock.skew:g} s")
        elif kind < 7:
            process = world.process(choices.one_of(world.cast))
            if isinstance(process, Planner):
                self._depose(process)
            else:
                world.crash(process)
        else:
            world.time += _LONG_S
            world.tell("time", f"{_LONG_S:g} s pass")

    def cut_off(self, region: Region) -> None:
        """Or let it be back."""
        self._cut ^= {region}
        self._world.tell(region, f"is {'cut off from' if region in self._cut else 'back with'} etcd")

    def _depose(self, planner: Planner) -> None:
        """Most often another coordinator is quick to lead, long before the deposed one hears of it."""
        world = self._world
        world.tell("etcd", f"ends the lease of {planner.name}")
        planner.resign()
        others = [name for name in world.cast if name.startswith("planner") and name != planner.name]
        if others and world.choices.pick(8):
            other = world.process(others[0])
            assert isinstance(other, Planner)
            finish(other.coordinator.hold())
            world.tell(other.name, "leads")

    def fail_over(self, region: Region, lost: int) -> None:
        """The database that lacks so many commits takes over."""
        world = self._world
        world.count(Fault.FAILOVER)
        lost = self._replicas[region].fail_over(lost)
        known = world.checks.regions[region]
        known.failed_over()
        world.books[region].forgive(known.store.reservations, known.store.entries[known.entries :])
        self.distrusted = region, f"{region}{world.choices.pick(2)}"
        world.tell(region, f"Postgres fails over, and lacks the last {lost} commits" if lost else "Postgres restarts")

    def _restore_etcd(self) -> None:
        world = self._world
        world.count(Fault.ETCD_RESTORE)
        snapshot = world.choices.one_of(self._snapshots)
        while self._snapshots[-1] is not snapshot:
            self._snapshots.pop()
        before = world.etcd.revision
        world.etcd.restore(snapshot, bump=_BUMP * (world.choices.pick(2) == 0))
        world.tell("etcd", f"is restored as it was at revision {snapshot.revision}, it was at {before}")
        if not all(self._has_seen_more(store, snapshot.revision) for _, store in world.stores()):
            # Those cannot notice: who restores etcd has to say so (docs/operations.md).
            world.etcd.begin_history(History(f"after {before}", Phase.RECOVERING, world.time, "rescuer", "restored"))
            world.tell("rescuer", "begins a recovery")
        world.etcd_went_back()

    def _has_seen_more(self, store: MemoryRegionStore, revision: int) -> bool:
        _, sight = finish(store.recall())
        return sight.revision > revision

    def fence(self, region: Region) -> None:
        """Switch it off: its processes are gone, its database is asked nothing any more, its leases run out."""
        world = self._world
        if region in self.fenced:
            return
        self.fenced.add(region)
        for process in world.processes():
            if process.region == region:
                process.drop()
        self._mail = [mail for mail in self._mail if mail.store_of != region]
        world.time += _LONG_S
        world.tell(region, "is switched off")

    def lift_fence(self, region: Region) -> None:
        """Its servers start anew, and look after the history before they serve."""
        if region not in self.fenced:
            return
        self.fenced.discard(region)
        world = self._world
        world.tell(region, "is switched on")
        for process in world.processes():
            if process.region == region:
                process.crash()
        self._let_look(region, compare=True)

    def let_all_look(self) -> None:
        """Some time passes, in which every server looks after the history."""
        for region in self._world.names:
            if region not in self.fenced and region not in self._cut:
                self._let_look(region, compare=self._world.choices.pick(2) == 0)

    def _let_look(self, region: Region, *, compare: bool) -> None:
        """A server that does nothing else."""
        world = self._world
        agent = world.process(f"{region}{_ONLOOKER}")
        assert isinstance(agent, Agent)
        for deed in (agent.look, agent.compare_at_once, agent.look)[: 3 if compare else 1]:
            deed()
            world.check()

    def _deliver(self, at: int) -> None:
        mail = self._mail.pop(at)
        self._world.tell("late", mail.name)
        try:
            finish(mail.message())
        except Violation:
            raise
        except Exception as error:
            raise Violation(Invariant.BALANCES, f"late {mail.name}: {error!r}") from error

    # -- the end --

    def clear_up(self) -> None:
        """What is on its way arrives."""
        self._cut.clear()
        while self._mail:
            self._deliver(0)
            self._world.check()
