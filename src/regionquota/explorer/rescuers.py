"""Operators who deal with a lost region or a lost etcd: evict, readmit, recover. For runs that lose etcd."""

from regionquota.core.history import Phase
from regionquota.core.quota import Region
from regionquota.evictions import evict_region, readmit_region
from regionquota.explorer.bonds import CommandAllocations, HistoryPort, in_recovery
from regionquota.explorer.faults import Deed
from regionquota.explorer.ports import EtcdPort, Work
from regionquota.explorer.processes import Job, Process
from regionquota.recovery import begin_recovery, end_recovery, heard, rebuild_documents


class Rescuer(Process):
    """Each piece of work is one command. What an operator attests is so: the world sees to it."""

    deed: Deed

    def ended(self) -> None:
        if self.deed is not Deed.RECOVER:  # that counts itself: most often it still waits for somebody
            self.world.did(self.deed)

    def take_up(self, job: Job) -> None:
        """Half of the commands are through before anybody else does anything."""
        super().take_up(job)
        if self.world.choices.pick(2):
            while self.waits is not None:
                self.world.check()
                self.world.tell(self, self.waits.name)
                self.go_on(None)

    def begin(self) -> Job:
        choices, world = self.world.choices, self.world
        history = world.etcd.history[1]
        if history is None or history.phase is not Phase.RUNNING:
            return self._evict() if choices.pick(6) == 0 else self._recover(anyway=False)
        gone = [name for name, one in world.checks.records.items() if one.record.is_evicted]
        if gone and choices.pick(4):
            return self._readmit(choices.one_of(gone))
        return self._evict() if choices.pick(8) else self._recover(anyway=True)

    def _port(self) -> EtcdPort:
        return EtcdPort(self.world, self.world.etcd, documents=CommandAllocations(self.world.etcd), lagging=False)

    def _histories(self) -> HistoryPort:
        return HistoryPort(EtcdPort(self.world, self.world.etcd), self.world.etcd)

    def _evict(self) -> Job:
        self.deed = Deed.EVICT
        region, etcd = self.world.choices.one_of(self.world.names), self._port()
        self.world.weather.fence(region)
        work = evict_region(etcd, etcd, self._histories(), region, "switched off", self.clock)
        return f"evict {region}", work

    def _readmit(self, region: Region) -> Job:
        self.deed = Deed.READMIT
        self.world.weather.lift_fence(region)
        return f"readmit {region}", self.readmitting(region)

    def readmitting(self, region: Region, *, database_lost: bool = False) -> Work:
        etcd, histories = self._port(), self._histories()
        return readmit_region(
            etcd, etcd, histories, region, self.clock, database_lost=database_lost, nothing_used=False
        )

    def _recover(self, *, anyway: bool) -> Job:
        self.deed = Deed.RECOVER
        if self.world.choices.pick(3):
            self.world.weather.let_all_look()
        return f"recover{' anyway' if anyway else ''}", self.recovering(anyway=anyway)

    async def recovering(self, *, anyway: bool) -> None:
        """As the command does, but that it does not wait for who has stated nothing yet."""
        histories, world = self._histories(), self.world
        directory = EtcdPort(world, world.etcd)
        history = await begin_recovery(histories, self.name, self.clock.now(), anyway=anyway)
        stated, missing = await heard(histories, directory, history, world.names)
        if missing:
            return
        allocations = EtcdPort(world, world.etcd, documents=in_recovery(world.etcd, history), lagging=False)
        _, _, wanted = await rebuild_documents(allocations, directory, stated, self.clock)
        await end_recovery(histories, directory, history, wanted, stated)
        world.did(Deed.RECOVER)
