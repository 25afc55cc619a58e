"""Where runs begin: states that long runs have reached, so that short ones have no need to build anything up."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Final

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import LimitSource, Move, VersionedLimit, new_allocation, request_moves
from regionquota.core.commands import Commit, Release, Reserve
from regionquota.core.commands import Start as StartWork
from regionquota.core.history import Sight, Standing
from regionquota.core.quota import Kind, Region
from regionquota.core.reservation import Reservation, State
from regionquota.explorer.bonds import FIRST
from regionquota.explorer.book import Book
from regionquota.explorer.checks import Checks
from regionquota.explorer.choices import Choices, number, numbers
from regionquota.explorer.drive import finish
from regionquota.explorer.logs import quiet
from regionquota.explorer.processes import Agent
from regionquota.explorer.quotas import LIMITS, MONTH_ENDS, PART, QUOTAS, REGIONS, policy_of
from regionquota.explorer.rest import drive, end
from regionquota.explorer.world import CASTS, Start, World
from regionquota.ports import RegionRecord
from regionquota.region.steps import claim, synchronise

COUNT: Final = 60
_LENGTHS: Final = (0, 40, 120, 240)
_ENDED_KEPT: Final = 2
_PAST: Final = 3
_EU_FIRST: Final = ("eu", "us", "ap")
_SPENT: Final = 1
"""Such starts are at the end of a period, and nobody has anything left: what moves then is of the next."""
_PLENTY: Final = frozenset({12, 24, 36})
"""In such starts one region owns everything, all of it free, and is believed to have even more."""
_WHOLE_CAST: Final = len(CASTS) - 1
_NEVER_FAULTY: Final = 2


@cache
def starts() -> Sequence[Start]:
    """All of them, the same in every process."""
    with quiet():
        return [_start(serial) for serial in range(COUNT)]


def _start(serial: int) -> Start:
    kind = list(Kind)[serial % 3]
    empty = _empty(serial, kind)
    steps = _LENGTHS[serial // 3 % len(_LENGTHS)]
    # The first number chooses the cast, and that nothing fails.
    world = World(empty, Choices([_WHOLE_CAST + len(CASTS) * _NEVER_FAULTY, *numbers(serial + 10**6, steps)]))
    while world.step():
        pass
    end(world)
    return _at_rest(world, empty)


def _at_rest(world: World, empty: Start) -> Start:
    world.resign()
    if empty.serial % 2:
        world.time = max(world.time, MONTH_ENDS - number(empty.serial, 0) % 12)
    snapshot = world.etcd.copy(world)
    snapshot.begin_history(FIRST)
    _settle_in(world, empty.serial)
    stores = {region: store.summed_up(_ENDED_KEPT) for region, store in world.stores()}
    if empty.serial % 3 != 1:
        for store in stores.values():
            _start_work(store, world.time)
    for store in stores.values():
        store.stands, store.sight = Standing(FIRST.name), Sight(None, world.etcd.revision)
    replicas = {region: _lag_behind(store, world.time) for region, store in stores.items()}
    revision = world.etcd.revision
    etcd = world.etcd.copy(world)
    if revision > 2:
        etcd.compact(revision)
    etcd.begin_history(FIRST)
    largest = {key: known[1].limit for key, known in world.checks.documents.items()}
    for at in {at for known in world.checks.regions.values() for at in known.spent}:
        spent = sum(known.spent.get(at, 0) for known in world.checks.regions.values())
        largest[at[0]] = max(largest[at[0]], spent)
    for key, (_, document) in world.checks.documents.items():
        # What is owned beyond a limit that was lowered was legal before.
        largest[key] = max(largest[key], sum(document.slices.values()))
    return Start(
        serial=empty.serial,
        kind=empty.kind,
        time=world.time,
        etcd=etcd,
        snapshot=snapshot,
        stores=stores,
        replicas=replicas,
        past={key: world.history(key)[-_PAST:] for key in QUOTAS},
        books={region: _book(store.reservations.values()) for region, store in stores.items()},
        checks=Checks(etcd, stores, largest),
        version=world.version,
        names=world.named,
    )


def _book(known: Collection[Reservation]) -> Book:
    return Book(
        holds={held.request_id: held.id for held in known},
        before=frozenset(held.id for held in known if held.state is State.COMMITTED),
    )


def _settle_in(world: World, serial: int) -> None:
    """The servers of most regions are alive, and have said what they want."""
    world.choices = Choices(())
    for region in list(world.checks.records)[: 3 - (world.time % 4 < 1)]:
        for number_ in range(2):
            agent = Agent(world, f"{region}{number_}", region)
            for key in QUOTAS:
                agent.meter.denied(key, number(int(world.time), number_) % 4)
            drive(world, agent.attendance.attend())
            drive(world, agent.attendance.report())
    if serial in _PLENTY:
        _give_all_to_one(world)
    if serial % 4:
        _spend(world, serial)
    if world.time > MONTH_ENDS - 60 or serial % 4 == 2 or serial in _PLENTY:
        _ask_for_moves(world, serial)
    world.check()
    if serial % 6 == _SPENT:
        _turn_early(world, hand_over=serial % 12 != _SPENT)


def _give_all_to_one(world: World) -> None:
    agent = Agent(world, "eu0", "eu")
    for key in QUOTAS:
        drive(world, claim(key, agent.region, agent.etcd, agent.store, wanted=99, share=1.0, now=world.time))


def _spend(world: World, serial: int) -> None:
    """Nothing is left in the pools; some regions have used up all they have, others nothing."""
    for at, region in enumerate(world.names):
        agent = Agent(world, f"{region}0", region)
        for key in QUOTAS:
            share = 1 / (len(world.names) - at)
            drive(world, claim(key, region, agent.etcd, agent.store, wanted=99, share=share, now=world.time))
            halves = 2 if serial % 6 == _SPENT else number(serial, at) % 3
            units = world.checks.documents[key][1].slice_of(region) * halves // 2
            if units:
                name = f"{serial}-{region}-{key.scope}"
                drive(world, agent.store.transact([Reserve(name, key, units, name, b"", 60), Commit(name)], world.time))


def _start_work(store: MemoryRegionStore, now: float) -> None:
    """One executor may still be in time, of another nobody knows."""
    for key, held in store.held.items():
        for name, began in ((f"{store.region}-{key.scope}-lost", now - 20), (f"{store.region}-{key.scope}-runs", now)):
            if held.counter.available > held.guaranteed + 2:
                reserve = Reserve(name, key, 1, name, b"", ttl_s=10)
                finish(store.transact([reserve, StartWork(name, "one")], began))
    finish(store.expire(now, 2))


def _lag_behind(store: MemoryRegionStore, now: float) -> Sequence[MemoryRegionStore]:
    """Everything was in use just before it was free again; and long before that nothing was known."""
    replicas = [MemoryRegionStore(store.region)]
    for key, held in store.held.items():
        if held.counter.available > held.guaranteed:
            name = f"{store.region}-{key.scope}-gone"
            reserve = Reserve(name, key, held.counter.available - held.guaranteed, name, b"", 60)
            finish(store.transact([reserve], now))
            replicas.append(store.copy())
            finish(store.transact([Release(name)], now))
    return replicas


def _ask_for_moves(world: World, serial: int) -> None:
    """Much of the largest slice is asked for, elsewhere, just when the period ends."""
    world.check()
    for at, (key, (revision, document)) in enumerate(world.checks.documents.items()):
        # Of equals eu, and so to us: most casts have somebody in both.
        donor = max(sorted(document.slices, key=_EU_FIRST.index), key=document.slice_of, default=None)
        if donor is not None and document.slice_of(donor):
            target = world.names[(world.names.index(donor) + 1) % len(world.names)]
            held = world.checks.regions[donor].held.get(key)
            available = 0 if held is None else held.counter.available
            beliefs = (0, available // 2, available, 2 * available)
            believed = beliefs[-1] if serial in _PLENTY else beliefs[number(serial, at) % len(beliefs)]
            # All of the slice where nothing is believed: what is in use of it may come free.
            amount = -(-believed // 2) or document.slice_of(donor)
            moves = [Move("asked", donor, target, amount, believed=believed)]
            finish(world.etcd.swap(key, revision, request_moves(document, moves)))


def _turn_early(world: World, *, hand_over: bool) -> None:
    """Whoever is asked for something is in the next period already, where all of it is free, and lets go of it."""
    for key, (revision, document) in list(world.checks.documents.items()):
        for move in document.moves:
            agent = Agent(world, f"{move.source}0", move.source)
            work = (
                synchronise(key, move.source, agent.etcd, agent.store, MONTH_ENDS + 1)
                if hand_over
                else agent.store.apply(key, document, revision, MONTH_ENDS + 1)
            )
            drive(world, work)


def _empty(serial: int, kind: Kind) -> Start:
    """Two regions have joined; the third does when it first wants something."""
    clock = _Stopped(MONTH_ENDS - 600.0 - 7 * serial)
    etcd = MemoryCoordination(clock)
    for region in REGIONS[: 2 + serial % 2]:
        finish(etcd.swap_region(RegionRecord(region), 0))
    guarantee = 2 if serial % 5 == 4 else 0
    for key in QUOTAS:
        policy = policy_of(kind, guarantee if key == PART else 0)
        limit = VersionedLimit(LIMITS[key], 1)
        finish(etcd.swap(key, 0, new_allocation(kind, LimitSource.PLAN, limit, policy)))
    stores: dict[Region, MemoryRegionStore] = {region: MemoryRegionStore(region) for region in REGIONS}
    replicas: Mapping[Region, Sequence[MemoryRegionStore]] = dict.fromkeys(REGIONS, ())
    checks = Checks(etcd, stores, LIMITS)
    past = {key: [known] for key, known in checks.documents.items()}
    books = {region: Book() for region in REGIONS}
    return Start(serial, kind, clock.now(), etcd, etcd, stores, replicas, past, books, checks, version=1, names=0)


class _Stopped:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds
