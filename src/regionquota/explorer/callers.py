"""Who spends: callers that repeat themselves, and sweepers. Every answer goes into the region's book."""

from typing import TYPE_CHECKING, Final, assert_never

from regionquota.core.commands import (
    Adjust,
    Charge,
    Command,
    Commit,
    Denied,
    Expire,
    Extend,
    Forbidden,
    Invalid,
    Meter,
    NotFound,
    Pledge,
    Release,
    RequestConflict,
    Reserve,
    Start,
    UnknownQuota,
)
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import DUE
from regionquota.errors import StoreUnavailable
from regionquota.explorer.book import Book
from regionquota.explorer.faults import Fault
from regionquota.explorer.processes import Job, Process
from regionquota.explorer.quotas import PART, WHOLE
from regionquota.explorer.store_port import StorePort

if TYPE_CHECKING:
    from regionquota.explorer.world import World

REFUSALS: Final = (Denied, UnknownQuota, RequestConflict, Forbidden, NotFound, Invalid)
ATTEMPTS: Final = 2
"""Times a command is put to the store in one piece of work, as group commit does."""


async def ask(world: "World", book: Book, store: StorePort, command: Command, now: float) -> None:
    """Until it is answered, or given up; then it is unsure, and asked again some time."""
    unsure = command in book.unsure
    if not unsure:
        book.unsure.append(command)
    region = world.checks.regions[store.region]
    for attempt in range(ATTEMPTS):
        if attempt:
            world.count(Fault.REPEAT)
        try:
            (outcome,) = await store.transact([command], now)
        except StoreUnavailable:
            unsure = True
            continue
        # What is refused now may have been on its way before, and take effect later: refusals are not remembered.
        if command in book.unsure and not (unsure and isinstance(outcome, REFUSALS)):
            book.unsure.remove(command)
        book.hear(command, outcome)
        if isinstance(command, Reserve):
            region.look_for_debt(command, outcome)
        return


class Caller(Process):
    def start(self) -> None:
        assert self.region is not None
        self.store = StorePort(self.world, self.world.store(self.region))
        self.book = self.world.books[self.region]

    job: Command

    def begin(self) -> Job:
        command = self._command()
        if len(self.book.sent) < 24:
            self.book.sent.append(command)
        return command, ask(self.world, self.book, self.store, command, self.clock.now())

    @property
    def said(self) -> str:
        return say(self.job)

    def _command(self) -> Command:
        choices, book = self.world.choices, self.book
        kind = choices.pick(16)
        if kind < 5:
            return self._reserve()
        if kind == 5:
            return self._adjust()
        if kind == 6:
            return self._meter()
        if kind < 9 and book.sent:
            self.world.count(Fault.REPEAT)
            return choices.one_of(book.sent)
        if kind == 9 and book.sent:
            return self._conflict(choices.one_of(book.sent))
        if not book.holds:
            return self._reserve()
        held = choices.one_of(list(book.holds.values()))
        match kind:
            case 10:
                return Release(held)
            case 11:
                return Start(held, choices.one_of(("one", "two")))
            case 12:
                return Extend(held, choices.one_of((5, 40)))
            case _:
                return Commit(held, choices.one_of((None, None, 1, 2, 6)))

    def _reserve(self) -> Reserve:
        choices, name = self.world.choices, self.world.name()
        key = choices.one_of((WHOLE, PART))
        held = self.world.store(self.store.region).held.get(key)
        everything = max(1, held.counter.slice - held.counter.in_use) if held is not None else 1
        amount, ttl_s = choices.one_of((1, 2, 3, 5, everything, everything)), choices.one_of((40, 40, 5))
        return _reservation(f"r{name}", key, amount, f"q{name}", ttl_s)

    def _adjust(self) -> Adjust:
        choices, name = self.world.choices, self.world.name()
        key, delta = choices.one_of((WHOLE, PART)), choices.one_of((-1, -2, 1, 2))
        return _adjustment(key, delta, f"a{name}")

    def _meter(self) -> Meter:
        """A source that counts on: its totals never fall, its words may overtake each other."""
        choices, words = self.world.choices, self.book.words
        if not words or choices.pick(2):
            words.append((words[-1] if words else 0) + choices.pick(3))
        sequence = choices.pick(len(words))
        return Meter(
            PART, "gateway", f"{self.region}.{self.world.incarnation}", sequence + 1, words[sequence], (WHOLE,)
        )

    def _conflict(self, command: Command) -> Command:
        match command:
            case Reserve():
                self.world.count(Fault.CONFLICT)
                return _reservation(f"r{self.world.name()}", command.key, command.amount + 1, command.request_id, 40)
            case Adjust():
                self.world.count(Fault.CONFLICT)
                return _adjustment(command.key, -command.delta, command.request_id)
            case _:
                return command


def _reservation(name: str, key: QuotaKey, amount: int, request: str, ttl_s: int) -> Reserve:
    also = (Charge(WHOLE, amount, (0,)),) if key == PART else ()
    return Reserve(name, key, amount, request, f"{key} {amount} {ttl_s}".encode(), ttl_s, also)


def _adjustment(key: QuotaKey, delta: int, request: str) -> Adjust:
    also = (WHOLE,) if key == PART else ()
    return Adjust(key, delta, request, f"{key} {delta}".encode(), "because", also)


class Sweeper(Process):
    def start(self) -> None:
        assert self.region is not None
        self.store = StorePort(self.world, self.world.store(self.region))

    def begin(self) -> Job:
        if self.world.choices.pick(2):
            return "sweep", self.store.expire(self.clock.now(), 3)
        return "sweep by list", self._sweep_by_list()

    async def _sweep_by_list(self) -> None:
        """A sweeper that looked some time before it acts."""
        now = self.clock.now()
        assert self.region is not None
        known = self.world.store(self.region).reservations.values()
        for name in [held.id for held in known if held.state in DUE and held.expires_at <= now][:3]:
            held = await self.store.reservation(name)
            assert held is not None
            await self.store.transact([Expire(name)], self.clock.now())


def say(command: Command) -> str:
    match command:
        case Reserve():
            return (
                f"reserve {command.amount} of {command.key.scope} for {command.request_id} as {command.reservation_id}"
            )
        case Commit():
            return f"commit {command.reservation_id} at {'what was held' if command.actual is None else command.actual}"
        case Adjust():
            return f"adjust {command.key.scope} by {command.delta} for {command.request_id}"
        case Meter():
            return f"meter {command.key.scope} at {command.total}, word {command.sequence}"
        case Start():
            return f"start {command.reservation_id} as operation {command.operation_id}"
        case Extend():
            return f"extend {command.reservation_id} by {command.ttl_s} s"
        case Release() | Expire():
            return f"{type(command).__name__.lower()} {command.reservation_id}"
        case Pledge():
            return f"pledge {command.key.scope}"
        case _:
            assert_never(command)
