"""What the tests of the core, of the region and of its stores are arranged with."""

import uuid
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import UNLIMITED, Allocation, Move, Retired, VersionedLimit
from regionquota.core.commands import Adjust, Charge, Command, Commit, Expire, Extend, Outcome, Release, Reserve, Start
from regionquota.core.counter import Counter
from regionquota.core.periods import TIMELESS, Epoch
from regionquota.core.policy import DEFAULT_POLICY, Priority, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding
from regionquota.ports import BalanceCheck

T = TypeVar("T")

QUOTA = QuotaKey("acme", "vcpu")
OTHER = QuotaKey("acme", "disk")


def at(year: int, month: int, day: int = 1, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


NOON = at(2026, 6, 15, 12)


def allocation(
    limit: int = 1000,
    *,
    kind: Kind = Kind.ALLOCATED,
    moves: Sequence[Move] = (),
    epoch: Epoch = TIMELESS,
    retired: int = 0,
    policy: QuotaPolicy = DEFAULT_POLICY,
    **slices: int,
) -> Allocation:
    """The pool holds what `slices` leave of `limit`."""
    return Allocation(
        kind=kind,
        plan=VersionedLimit(limit, 1),
        override=None,
        limit=limit,
        pool=limit - retired - sum(slices.values()),
        retired={"gone": Retired(retired)} if retired else {},
        slices=slices,
        moves=moves,
        epoch=epoch,
        policy=policy,
    )


def unlimited(document: Allocation) -> Allocation:
    return replace(document, plan=VersionedLimit(UNLIMITED, 1))


def fresh(slice_: int) -> Counter:
    """A counter of which nothing is spent."""
    return Counter(slice=slice_, available=slice_)


def move(source: str, target: str | None, amount: int, name: str = "m1") -> Move:
    return Move(name, source, target, amount)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


def reservation_name(number: int) -> str:
    return str(uuid.UUID(int=number))


def reserve(
    amount: int,
    *,
    name: str,
    key: QuotaKey = QUOTA,
    request: str | None = None,
    ttl: int = 60,
    also: Sequence[Charge] = (),
    priority: Priority = Priority.NORMAL,
) -> Reserve:
    """The request id is that of `name` unless given; the digest covers what a caller can choose to hold."""
    digest = " ".join([f"{key} {amount} {ttl}", *(f"{line.key} {line.amount}" for line in also)]).encode()
    return Reserve(name, key, amount, request or f"request-{name}", digest, ttl, tuple(also), priority)


def adjust(
    delta: int, *, request: str, key: QuotaKey = QUOTA, reason: str = "because", also: Sequence[QuotaKey] = ()
) -> Adjust:
    return Adjust(key, delta, request, f"{key} {delta} {reason}".encode(), reason, tuple(also))


def differences(checks: Sequence[BalanceCheck]) -> list[str]:
    """What the counters say that their ledgers do not."""
    return [
        f"{check.key} in {check.epoch}: {name} is {says}, replayed {replayed}"
        for check in checks
        for name, says, replayed in check.differences()
    ]


class Book:
    """A region's balances in memory. After every command the ledgers are replayed and must agree."""

    def __init__(
        self,
        slice_: int = 100,
        kind: Kind = Kind.ALLOCATED,
        now: float = NOON,
        policy: QuotaPolicy = DEFAULT_POLICY,
    ) -> None:
        self.store = MemoryRegionStore("eu")
        self.now = now
        self._kind = kind
        self._revisions = count(1)
        self._names = count(1)
        self.resize(slice_, policy=policy)

    def do(self, *batch: Command) -> list[Outcome]:
        outcomes = finish(self.store.transact(batch, self.now))
        assert [] == differences(finish(self.store.check_balances()))
        return list(outcomes)

    def resize(
        self, slice_: int, key: QuotaKey = QUOTA, policy: QuotaPolicy = DEFAULT_POLICY, limit: int = MAX_AMOUNT
    ) -> None:
        self.hear(allocation(limit, kind=self._kind, policy=policy, eu=slice_), key)

    def hear(self, document: Allocation, key: QuotaKey = QUOTA) -> None:
        finish(self.store.apply(key, document, next(self._revisions), self.now))
        assert [] == differences(finish(self.store.check_balances()))

    def counter(self, key: QuotaKey = QUOTA) -> Counter:
        """That of the newest period."""
        return self.holding(key).counter

    def holding(self, key: QuotaKey = QUOTA) -> Holding:
        held = finish(self.store.holding(key))
        assert held is not None
        return held

    def closed(self, epoch: Epoch, key: QuotaKey = QUOTA) -> Counter:
        (found,) = [check for check in finish(self.store.check_balances()) if (check.key, check.epoch) == (key, epoch)]
        return found.counter

    def reservation(self, name: str) -> Reservation:
        found = finish(self.store.reservation(name))
        assert found is not None
        return found

    def reserve(self, amount: int, **more: Any) -> Outcome:
        return self.do(reserve(amount, **({"name": f"r{next(self._names)}"} | more)))[0]

    def hold(self, amount: int, ttl: int = 60) -> str:
        """The name of a new hold."""
        name = f"h{next(self._names)}"
        self.do(reserve(amount, name=name, ttl=ttl))
        assert finish(self.store.reservation(name)) is not None
        return name

    def commit(self, name: str, actual: int | None = None) -> Outcome:
        return self.do(Commit(name, actual))[0]

    def start(self, name: str, operation: str = "operation-1") -> Outcome:
        return self.do(Start(name, operation))[0]

    def release(self, name: str) -> Outcome:
        return self.do(Release(name))[0]

    def extend(self, name: str, ttl: int = 60) -> Outcome:
        return self.do(Extend(name, ttl))[0]

    def expire(self, name: str) -> Outcome:
        return self.do(Expire(name))[0]

    def adjust(self, delta: int, request: str | None = None) -> Outcome:
        return self.do(adjust(delta, request=request or f"a{next(self._names)}"))[0]

    def entries(self) -> list[tuple[str, int]]:
        """The usage ledger: kind and delta of each line."""
        return [(line.kind.value, line.delta) for line in self.store._usage]
