"""What befalls everybody: partitions, clocks that jump, leases that end, late messages, databases that lose commits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.quota import Region
from regionquota.explorer.drive import finish
from regionquota.explorer.faults import Fault
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.ports import Message
from regionquota.explorer.processes import SKEWS, Planner
from regionquota.explorer.replicas import Replicas

if TYPE_CHECKING:
    from regionquota.explorer.world import World

_LONG_S: Final = 25.0
"""Longer than any lease."""
_MOST_MAIL: Final = 4


class _Mail(NamedTuple):
    name: str
    message: Message


class Weather:
    """`fails_over`: databases do, in this run. The copies that takes cost time. `calm`: nothing else befalls it."""

    def __init__(self, world: "World", *, calm: bool, fails_over: bool) -> None:
        self._world = world
        self._calm = calm
        self.threatens = fails_over or not calm
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

    def post(self, name: str, message: Message) -> None:
        if len(self._mail) < _MOST_MAIL:
            self._mail.append(_Mail(name, message))

    def replicate(self, store: MemoryRegionStore, lagging: Sequence[MemoryRegionStore]) -> None:
        if self._fails_over:
            self._replicas[store.region] = Replicas(store, lagging)

    def note_write(self, region: Region) -> None:
        """To be called before it is made."""
        if self._fails_over:
            self._replicas[region].follow()

    def next_to_act(self) -> str | None:
        """Most steps after a failover are ones by one of the region's agents, until the database is trusted."""
        if self.distrusted is None or self._world.choices.pick(4) == 0:
            return None
        region, agent = self.distrusted
        if self._world.checks.regions[region].trusted:
            self.distrusted = None
            return None
        return agent

    # -- what befalls it --

    def strike(self) -> None:
        world, choices = self._world, self._world.choices
        if self._replicas and (self._calm or choices.pick(3) == 0):
            self._fail_over(choices.one_of(list(self._replicas)))
            return
        if self._calm:
            return
        kind = choices.pick(8)
        if kind < 4 and self._mail:
            self._deliver(choices.pick(len(self._mail)))
        elif kind < 5:
            self._cut_off(choices.one_of(world.names))
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

    def _cut_off(self, region: Region) -> None:
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

    def _fail_over(self, region: Region) -> None:
        world = self._world
        world.count(Fault.FAILOVER)
        lost = self._replicas[region].fail_over(world.choices)
        known = world.checks.regions[region]
        known.failed_over()
        world.books[region].forgive(known.store.reservations, known.store.entries[known.entries :])
        self.distrusted = region, f"{region}{world.choices.pick(2)}"
        world.tell(region, f"Postgres fails over, and lacks the last {lost} commits" if lost else "Postgres restarts")

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
