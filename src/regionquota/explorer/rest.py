"""The end of a run: the books are compared, and once faults have stopped everything that can be used can be used."""

from collections import Counter as Tally
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

from regionquota.core.allocation import Allocation
from regionquota.core.entries import EntryKind
from regionquota.core.history import History, Phase
from regionquota.core.quota import Kind, QuotaKey, Region
from regionquota.core.reservation import DUE, State
from regionquota.errors import Unavailable
from regionquota.explorer.book import Book
from regionquota.explorer.callers import ask
from regionquota.explorer.choices import Choices
from regionquota.explorer.drive import finish
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.ports import Work
from regionquota.explorer.processes import Agent, Planner
from regionquota.explorer.quotas import QUOTAS
from regionquota.explorer.rescuers import Rescuer
from regionquota.explorer.store_port import StorePort
from regionquota.explorer.world import World
from regionquota.ports import FrozenBy
from regionquota.region.steps import claim

_QUIET_S: Final = 100.0
"""Beyond every lease, every time to live and every clock's error."""
_ROUNDS: Final = 4
_RESCUES: Final = 8
"""Deeds that are enough: two recoveries, three regions to be readmitted, and time for each to look."""


def end(world: World) -> None:
    """Deliver and answer what is open; then what callers were told is what the ledgers say, to the unit."""
    world.calm()
    world.choices = Choices(())
    world.skews.clear()
    for region, book in world.books.items():
        for command in list(book.unsure):
            work = ask(world, book, StorePort(world, world.store(region)), command, world.time)
            drive(world, work)
        _compare(world, region, book)


def _compare(world: World, region: Region, book: Book) -> None:
    known = world.checks.regions[region]
    if not known.changed and not book.told:
        return
    if len(known.store.entries) > known.entries or book.told:
        book.compare(known.store.entries[known.entries :])
    carried = Tally[QuotaKey]()
    for entry in known.store.entries[known.entries :]:
        if entry.kind is EntryKind.CARRY:
            carried[entry.key] += entry.delta
    for key, units in carried.items():
        if units:
            raise Violation(Invariant.ONCE, f"{region}: {units} of {key} were lost, or made, between two periods")
    for check in finish(known.store.check_balances()):
        for name, says, replayed in check.differences():
            said = f"{region}: {check.key} in {check.epoch}: {name} is {says}, its ledgers say {replayed}"
            raise Violation(Invariant.BALANCES, said)


def come_to_rest(world: World) -> None:
    """Everybody starts anew, with good clocks, and works until there is nothing to do. Call `end` first."""
    world.time += _QUIET_S
    if world.loses_etcd:
        _rescue(world)
    agents = _everybody(world)
    planner = Planner(world, "planner-rest", None)
    if planner.watch is not None:
        planner.look()
    before = 0
    for _ in range(_ROUNDS):
        reached = world.state()
        if reached == before:
            break  # nor will anything more change
        before = reached
        for agent in agents:
            drive(world, agent.compare(), agent.name)
            drive(world, agent.attendance.attend(), agent.name)
            drive(world, agent.store.expire(world.time, 100), agent.name)
            drive(world, agent.follower.relist(), agent.name)
            drive(world, agent.follower.settle(), agent.name)
            drive(world, agent.attendance.report(), agent.name)
        drive(world, planner.coordinator.hold(), planner.name)
        drive(world, planner.coordinator.plan(), planner.name)
        world.time += 1.0
    else:
        for agent in (*agents, *agents):  # who gives may come after who gets
            drive(world, agent.follower.relist(), agent.name)
            drive(world, agent.follower.settle(), agent.name)
    _look_at_rest(world)
    _claim_the_pools(world, agents)


def _everybody(world: World) -> list[Agent]:
    """A server in each region, which has looked after the history if there is need to."""
    agents = [Agent(world, f"{region}-rest", region) for region in world.names]
    for agent in agents:
        if agent.watch is not None:
            agent.look()
            world.check()
    return agents


def _rescue(world: World) -> None:
    """Operators switch everything on, recover what is to be recovered, and readmit whoever is evicted."""
    for region in list(world.weather.fenced):
        world.weather.lift_fence(region)
    rescuer = Rescuer(world, "rescuer-rest", None)
    for _ in range(_RESCUES):
        for agent in _everybody(world):
            _notice(world, agent)
        history = world.etcd.history[1]
        gone = [name for name, stored in world.etcd.records.items() if stored.record.is_evicted]
        if history is None or history.phase is not Phase.RUNNING or not _are_all_in(world, history):
            drive(world, rescuer.recovering(anyway=True), rescuer.name)
        elif gone:
            # A database that was lost since, and began anew, is no evidence: then what is retired stays so.
            stands = world.store(gone[0]).stands
            is_new = stands is not None and stands.evictions_before >= world.etcd.records[gone[0]].record.evictions
            drive(world, rescuer.readmitting(gone[0], database_lost=is_new), rescuer.name)
        else:
            return
    raise Violation(Invariant.REST, f"it cannot be recovered: {world.etcd.history[1]}, {dict(world.etcd.records)}")


def _notice(world: World, agent: Agent) -> None:
    """What a server does by itself before long: it compares its database, lists everything, and says what it found."""
    agent.compare_at_once()
    world.check()
    with suppress(Unavailable):
        _drive(world, agent.follower.relist(), agent.name)
    agent.look()
    world.check()


def _are_all_in(world: World, history: History) -> bool:
    return all(store.stands is not None and store.stands.history == history.name for _, store in world.stores())


def drive(world: World, work: Work, who: str = "at rest") -> None:
    """A check after every call, as everywhere. Nobody fails any more."""
    try:
        _drive(world, work, who)
    except Violation:
        raise
    except Exception as error:
        raise Violation(Invariant.BALANCES, f"{who}: {error!r}") from error


def _drive(world: World, work: Work, who: str) -> None:
    try:
        while True:
            call = work.send(None)
            world.check()
            if call is not None:
                world.tell(who, call.name)
    except StopIteration:
        world.check()


def _look_at_rest(world: World) -> None:
    checks = world.checks
    for name, stored in checks.records.items():
        if stored.record.frozen is not None and stored.record.frozen.by is FrozenBy.LIVENESS:
            raise Violation(Invariant.REST, f"{name} is alive and still frozen: {stored.record.frozen.why}")
    frozen = {name for name, stored in checks.records.items() if stored.record.frozen is not None}
    for key, (_, document) in checks.documents.items():
        _look_at_document(world, key, document, frozen)
    for region, known in checks.regions.items():
        if not known.trusted:
            raise Violation(Invariant.REST, f"{region} still is not compared with etcd")
        for hold in known.store.reservations.values():
            if hold.state in DUE or (hold.state is State.UNKNOWN and not hold.operation_id):
                raise Violation(Invariant.REST, f"{region}: {hold.id} still is {hold.state}")


def _look_at_document(world: World, key: QuotaKey, document: Allocation, frozen: AbstractSet[Region]) -> None:
    stuck = [move for move in document.moves if not frozen & {move.source, move.target}]
    if stuck:
        raise Violation(Invariant.REST, f"{key}: {stuck[0]} is neither done nor withdrawn")
    for region, known in world.checks.regions.items():
        held = known.held.get(key)
        if (0 if held is None else held.slice) != document.slice_of(region):
            said = f"{region} owns {document.slice_of(region)} of {key} and uses {held}"
            raise Violation(Invariant.REST, said)
        idle = held is not None and held.kind is not Kind.RATE and held.counter.available > 0
        if document.pool < 0 and idle and region not in frozen:
            raise Violation(Invariant.REST, f"{key}: {region} keeps what the lowered limit asks for: {held}")


def _claim_the_pools(world: World, agents: list[Agent]) -> None:
    """What no region owns is there for whoever asks."""
    agent = agents[0]
    for key in QUOTAS:
        pool = max(0, world.checks.documents[key][1].pool)
        work = claim(key, agent.region, agent.etcd, agent.store, wanted=pool, share=1.0, now=world.time)
        drive(world, work)
        left = world.checks.documents[key][1].pool
        if pool and left:
            raise Violation(Invariant.REST, f"{left} of {key} cannot be claimed")
