"""Where a story takes place: etcd and the regions' databases in memory, in a time that only the story moves.

After every call of every process it is looked at what has changed (which the page tells) and that the promise holds.
"""

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Final

from tests.core.builders import NOON, QUOTA
from tests.core.builders import finish as finish_now
from tests.transcripts.operators import Operator
from tests.transcripts.page import Page
from tests.transcripts.seen import Picture, differences, picture
from tests.transcripts.servers import Agent, Clock, Planner
from tests.transcripts.tables import table

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.histories import MemoryHistoryStore
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import Adjust, Commit, Denied, Granted, Reserve
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.errors import Unavailable

TTL_S: Final = 86_400


class Stage:
    """`asleep` names processes that do nothing while time passes.

    `is_credible` False: etcd was restored, and says what is not so any more; then only the sum is held to the limit.
    """

    def __init__(self, page: Page, key: QuotaKey = QUOTA, kind: Kind = Kind.ALLOCATED, time: float = NOON) -> None:
        self.page, self.key, self.kind, self.time = page, key, kind, time
        self.clock = Clock(self)
        self.etcd = MemoryCoordination(self.clock)
        self.histories = MemoryHistoryStore(self.etcd)
        self.stores: dict[Region, MemoryRegionStore] = {}
        self.clocks: dict[Region, Clock] = {}
        self.agents: dict[Region, Agent] = {}
        self.coordinators: list[Planner] = []
        self.cut_off: set[Region] = set()
        self.asleep: set[str] = set()
        self.lost: set[Region] = set()
        self.is_credible = True
        self._before = 0
        self.operator = Operator(self)
        self._requests = 0
        self._is_silent = False

    # What the script does.

    def pass_time(self, seconds: int) -> None:
        """While it does, regions show signs of life and report, and coordinators prolong their leases."""
        for _ in range(0, seconds, 5):
            self.time += 5
            self.attend()
            for planner in self.coordinators:
                if planner.name not in self.asleep:
                    planner.hold()

    def tell(self, who: str, what: str) -> None:
        if not self._is_silent:
            self.page.tell(self.time, who, what)

    def show(self) -> None:
        """The state, as a table."""
        self.page.table(table(self.picture(), sorted(self.cut_off)))

    def open(self, limit: int, **slices: int) -> None:
        """Where stories begin: regions that own and hold `slices`. Nothing is told of how they came by them."""
        self._is_silent = True
        for region in slices:
            self.add_region(region)
        self.operator.set_limit(limit)
        for region, size in slices.items():
            self.agents[region].claim(size).finish()
        self.attend()
        self._is_silent = False

    def add_region(self, region: Region) -> Agent:
        self.stores.setdefault(region, MemoryRegionStore(region))
        self.clocks.setdefault(region, Clock(self))
        return self.start(region)

    def start(self, region: Region) -> Agent:
        """A new process of the region's server."""
        agent = self.agents[region] = self.another_process(region, f"agent {region}")
        self.lost.discard(region)
        return agent

    def another_process(self, region: Region, name: str) -> Agent:
        agent = Agent(self, region, name, self.clocks[region])
        agent.look_at_history()
        return agent

    def clock_of(self, skew: float) -> Clock:
        """A clock that is so many seconds ahead."""
        return Clock(self, skew)

    def claim(self, region: Region, wanted: int) -> tuple[int, bool]:
        """How much it got, and whether its slice is raised."""
        agent = self.agents[region]
        got, step = agent.claim(wanted).finish().result
        if not got:
            self.tell(agent.name, "would claim, but there is nothing in the pool")
        return got, step.settled

    def attend(self, *regions: Region) -> None:
        """Signs of life and reports of those, or of all; only what it changes is told."""
        for region in regions or self.agents:
            if region not in self.cut_off and self.agents[region].name not in self.asleep:
                self.agents[region].attend()

    def coordinator(self, name: str = "coordinator") -> Planner:
        planner = Planner(self, name)
        planner.hold()
        self.coordinators.append(planner)
        return planner

    def use(self, region: Region, amount: int) -> bool:
        """A caller reserves and commits. Whether it was admitted."""
        return self._call(region, amount, "uses", commit=True) is not None

    def hold(self, region: Region, amount: int) -> str | None:
        """A caller reserves. The reservation's id, if it was admitted."""
        return self._call(region, amount, "reserves", commit=False)

    def give_back(self, region: Region, amount: int) -> None:
        """Of what is used."""
        self._requests += 1
        name = f"r{self._requests}"
        back = Adjust(self.key, -amount, name, b"", "deleted")
        finish_now(self.stores[region].transact([back], self.clocks[region].now()))
        self.agents[region].meter.freed(self.key, amount)
        self.tell(f"caller in {region}", f"gives {amount} back")
        self.check()

    def slice(self, region: Region) -> int:
        """What its Postgres holds."""
        return self.picture().databases[region].slice

    def debt(self, region: Region) -> int:
        held = self.picture().databases[region].held
        assert held is not None
        return held.counter.debt

    def admissible(self) -> int:
        """What all regions together can admit."""
        return sum(one.usable for one in self.picture().databases.values())

    def retired(self) -> int:
        """What counts as spent by evicted regions."""
        document = self.picture().document
        assert document is not None
        return document.retired_units

    def owned(self, region: Region) -> int:
        """As etcd says."""
        document = self.picture().document
        assert document is not None
        return document.slice_of(region)

    def picture(self) -> Picture:
        return picture(self.key, self.etcd, self.stores, self.lost)

    # What looks on.

    async def carry(self, who: str, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        before = self.picture()
        answer = await call()
        after = self.picture()
        for line in differences(before, after):
            self.tell(who, line)
        if name in {"swap", "swap_all"} and answer is None:
            self.tell(who, f"etcd refuses the swap: {self._refusal(who)}")
        if name == "apply" and answer is None:
            self.tell(who, "Postgres refuses it: this database has heard of a newer revision")
        self.check()
        return answer

    def _refusal(self, who: str) -> str:
        leader = self.picture().leader
        if who.startswith("coordinator") and leader != who:
            return f"{leader} leads by now, the fence does not hold"
        return "the document has changed since it was read"

    def check(self) -> None:
        """A is in the documents; here are B, and that what can be admitted never grows beyond the limit."""
        now = self.picture()
        limit = 0 if now.document is None else now.document.limit
        total = sum(one.usable for one in now.databases.values())
        assert total <= max(limit, self._before), f"{total} can be admitted of {limit}"
        self._before = total
        if self.is_credible and now.document is not None:
            for name, one in now.databases.items():
                assert one.usable <= now.document.slice_of(name), f"{name} holds more than it owns"

    def _call(self, region: Region, amount: int, verb: str, *, commit: bool) -> str | None:
        self._requests += 1
        name = f"r{self._requests}"
        batch = [Reserve(name, self.key, amount, f"request-{name}", b"", TTL_S), *([Commit(name)] if commit else [])]
        meter = self.agents[region].meter
        who = f"caller in {region}"
        try:
            outcome = finish_now(self.stores[region].transact(batch, self.clocks[region].now()))[0]
        except Unavailable as error:
            self.tell(who, f"asks for {amount}: 503, {error}")
            return None
        self.check()
        if isinstance(outcome, Granted):
            meter.granted(self.key, amount)
            self.tell(who, f"{verb} {amount}: admitted")
            return name
        assert isinstance(outcome, Denied), outcome
        meter.denied(self.key, amount)
        self.tell(who, f"asks for {amount}: denied, {outcome.reason} ({outcome.free} left here)")
        return None

    # Faults.

    def lose(self, region: Region) -> None:
        """All its servers; what its database holds stays there."""
        del self.agents[region]
        self.lost.add(region)
        self.tell("", f"all servers of {region} are gone")

    def cut(self, region: Region) -> None:
        self.cut_off.add(region)
        self.tell("network", f"{region} is cut off from etcd")

    def heal(self, region: Region) -> None:
        self.cut_off.discard(region)
        self.tell("network", f"{region} reaches etcd again")

    def fail_over(self, region: Region, replica: MemoryRegionStore) -> None:
        """The replica is promoted: the same server to those who are connected, in another incarnation."""
        store = self.stores[region]
        life = store.life
        for field in fields(store):
            setattr(store, field.name, getattr(replica, field.name))
        store.life = life + 1
        self.tell("", f"the Postgres of {region} is lost, its replica is promoted")

    def restore_etcd(self, snapshot: MemoryCoordination) -> None:
        self.etcd.__dict__.update(snapshot.copy(self.clock).__dict__)
        self.is_credible = False
        self.tell("", "etcd is restored from the snapshot")
