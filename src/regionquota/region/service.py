"""What a region server does for its callers: one method per use case, whatever the transport."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import structlog

from regionquota.core.allocation import Allocation
from regionquota.core.commands import (
    Adjust,
    Adjusted,
    Charge,
    Command,
    Commit,
    Denied,
    DenyReason,
    Extend,
    Granted,
    Meter,
    Metered,
    NotFound,
    Outcome,
    Release,
    Reserve,
    Settled,
    Start,
    Suspended,
    UnknownQuota,
)
from regionquota.core.policy import Priority
from regionquota.core.quota import QuotaKey, bucket_of
from regionquota.core.reservation import Reservation, State
from regionquota.core.slice import Holding
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.limits import LimitWord, put_limits, refuse_unknown_regions, remove_quota
from regionquota.ports import AllocationStore, Backlog, Clock, Directory, RegionStore, Stored
from regionquota.region.budgets import Budgets
from regionquota.region.claims import Claims
from regionquota.region.demand import DemandMeter
from regionquota.region.denials import Denials
from regionquota.region.follower import Follower
from regionquota.region.ids import bucket_of_id, reservation_id
from regionquota.region.room import Room
from regionquota.region.sweeper import SweepOnDemand

Submit: TypeAlias = Callable[[Command, int], Awaitable[Outcome]]
DIGEST_BYTES: Final = 16
_PASSING: Final = frozenset(
    {
        DenyReason.OVER_LIMIT,
        DenyReason.KEPT_FOR_HIGHER_PRIORITY,
        DenyReason.IN_DEBT,
        DenyReason.OVERDRAFT_EXCEEDED,
    }
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """A reserve as it came: what is asked for first, then its further lines; no quota twice."""

    charges: Sequence[Charge]
    request_id: str
    ttl_s: int
    priority: Priority = Priority.NORMAL


class RegionService:
    """`submit` carries a command out durably (group commit); `freed` hears of units that were given back; `suspended`
    says why a tenant is, None if it is not; `low_water` is the free part of a slice, 0 .. 1, below which more is
    claimed before anybody is denied.
    """

    def __init__(
        self,
        submit: Submit,
        store: RegionStore,
        allocations: AllocationStore,
        directory: Directory,
        follower: Follower,
        claims: Claims,
        meter: DemandMeter,
        clock: Clock,
        *,
        budgets: Budgets,
        overdue: SweepOnDemand,
        room: Room,
        freed: Callable[[QuotaKey, int], None],
        suspended: Callable[[str], str | None],
        low_water: float,
    ) -> None:
        self._submit = submit
        self._store = store
        self._allocations = allocations
        self._directory = directory
        self._follower = follower
        self._claims = claims
        self._meter = meter
        self._clock = clock
        self._budgets = budgets
        self._overdue = overdue
        self._room = room
        self._freed = freed
        self._suspended = suspended
        self._low_water = low_water
        self.denials = Denials()

    async def reserve(self, asked: Asked, wait_s: float = 0.0) -> Outcome:
        """Hold all that is asked for, and what follows from it; or none. Where there is no room, wait `wait_s` for it.

        Granted, Denied, Suspended, UnknownQuota, Invalid or RequestConflict. Raises `Unavailable`; repeat it with the
        same id.
        """
        tenant = asked.charges[0].key.tenant
        why = self._suspended(tenant)
        if why is not None and await self._store.reservation_of_request(tenant, asked.request_id) is None:
            return Suspended(tenant, why)  # who was granted before it may still learn what became of that
        command = self._reserve_of(asked)
        outcome = await self._conclude(command, await self._submit(command, bucket_of(tenant)))
        if wait_s:
            outcome = await self._wait_for_room(command, outcome, wait_s)
        return self._noted(command, outcome)

    async def _wait_for_room(self, command: Reserve, outcome: Outcome, wait_s: float) -> Outcome:
        """Try again whenever there may be some. What a quota refuses is counted as its demand when it first does."""
        tenant, since = command.key.tenant, time.monotonic()
        counted = {outcome.holding.key} if isinstance(outcome, Denied) else set()
        while isinstance(outcome, Denied) and _may_pass(outcome):
            if outcome.holding.key not in counted:
                counted.add(outcome.holding.key)
                self._meter.denied(outcome.holding.key, outcome.amount, outcome.priority)
            self._ask_for(outcome)
            if not await self._room.wait(outcome.holding.key, since, wait_s, command.priority):
                break
            if why := self._suspended(tenant):
                return Suspended(tenant, why)
            outcome = await self._submit(command, bucket_of(tenant))
        return await self._conclude(command, outcome) if isinstance(outcome, Granted) else outcome

    async def reserve_all(self, asked: Sequence[Asked]) -> Sequence[Outcome | Unavailable]:
        """As many `reserve`, each for itself, but with no task for each."""
        commands = [self._reserve_of(one) for one in asked]
        outcomes = await asyncio.gather(
            *(
                self._submit(command, bucket_of(command.key.tenant))
                if self._suspended(command.key.tenant) is None
                else self.reserve(one)
                for one, command in zip(asked, commands, strict=True)
            ),
            return_exceptions=True,
        )
        return [await self._concluded(command, outcome) for command, outcome in zip(commands, outcomes, strict=True)]

    async def _concluded(self, command: Reserve, outcome: Outcome | BaseException) -> Outcome | Unavailable:
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            return self._noted(command, await self._conclude(command, outcome))
        except Unavailable as error:
            return error

    def _reserve_of(self, asked: Asked) -> Reserve:
        first, *others = asked.charges
        return Reserve(
            reservation_id=reservation_id(first.key.tenant, self._clock.now(), secrets.randbits(66)),
            key=first.key,
            amount=first.amount,
            request_id=asked.request_id,
            digest=_digest("reserve", first.key, first.amount, asked.ttl_s, *map(_plain, others)),
            ttl_s=asked.ttl_s,
            also=self._budgets.complete(asked.charges)[1:],
            priority=asked.priority,
        )

    async def _conclude(self, command: Reserve, outcome: Outcome) -> Outcome:
        """What a first answer leaves to be done: join a quota, end holds that are overdue, count, claim."""
        if isinstance(outcome, UnknownQuota):
            outcome = await self._join(command, outcome)
        if isinstance(outcome, Denied) and await self._overdue.sweep():
            outcome = await self._submit(command, bucket_of(command.key.tenant))
        match outcome:
            case Granted(holding=holding, replayed=False):
                self._meter.granted(command.key, command.amount)
                for line in command.also:
                    self._meter.granted(line.key, line.amount)
                if not self._is_shard(holding):
                    self.watch_headroom(holding)
            case Denied() if _may_pass(outcome):
                # What no headroom would let pass is no demand: it must not draw any here in vain.
                self._meter.denied(outcome.holding.key, outcome.amount, outcome.priority)
                self._ask_for(outcome)
        return outcome

    def _noted(self, command: Reserve, answer: Outcome) -> Outcome:
        """What a caller is told in the end. Planners reckon with more: who waits lacks something, too."""
        if isinstance(answer, Denied):
            self.denials.note(command.key, answer, self._clock.now(), self._claims.pool(answer.holding.key))
        return answer

    def _ask_for(self, denial: Denied) -> None:
        holding = denial.holding
        policy, priority = holding.policy, denial.priority
        lacking = policy.slice_for(max(1, denial.amount + denial.kept - denial.room), priority)
        wanted = policy.slice_for(denial.amount, priority) + self._headroom_of(holding)
        self._claims.run_short(holding.key, wanted, lacking=lacking)

    async def start(self, name: str, operation_id: str) -> Outcome:
        return await self._submit_named(Start(name, operation_id))

    async def commit(
        self, name: str, actual: int | None = None, lines: Mapping[QuotaKey, int] | None = None, reason: str = ""
    ) -> Outcome:
        outcome = await self._submit_named(Commit(name, actual, lines or {}, reason))
        if isinstance(outcome, Settled) and not outcome.replayed:
            for line in outcome.reservation.lines:
                assert line.actual is not None
                if line.actual < line.amount:
                    self._freed(line.key, line.amount - line.actual)
        return outcome

    async def release(self, name: str, reason: str = "") -> Outcome:
        outcome = await self._submit_named(Release(name, reason))
        if isinstance(outcome, Settled) and not outcome.replayed and outcome.reservation.state is State.RELEASED:
            for line in outcome.reservation.lines:
                self._freed(line.key, line.amount)
        return outcome

    async def extend(self, name: str, ttl_s: int) -> Outcome:
        return await self._submit_named(Extend(name, ttl_s))

    async def adjust(
        self, key: QuotaKey, *, delta: int, request_id: str, reason: str, reconciles: bool = False
    ) -> Outcome:
        digest = _digest("adjust", key, delta, reason)
        command = Adjust(key, delta, request_id, digest, reason, self._budgets.above(key), reconciles)
        outcome = await self._submit_here(command)
        if isinstance(outcome, Adjusted) and not outcome.replayed:
            (self._freed if delta < 0 else self._meter.granted)(key, abs(delta))
        return outcome

    async def meter(self, key: QuotaKey, *, source: str, incarnation: str, sequence: int, total: int) -> Outcome:
        """Metered, UnknownQuota or Invalid. `total` counts since the source's incarnation began."""
        outcome = await self._submit_here(Meter(key, source, incarnation, sequence, total, self._budgets.above(key)))
        if isinstance(outcome, Metered) and not outcome.replayed:
            self._meter.granted(key, outcome.reading.added)
        return outcome

    async def set_limits(self, words: Sequence[LimitWord]) -> Sequence[tuple[int, Allocation]]:
        """As `put_limits`; this server knows of it at once, the others when their watch tells them."""
        await refuse_unknown_regions(self._directory, words)
        done = await put_limits(self._allocations, words)
        for word, (revision, allocation) in zip(words, done, strict=True):
            await self._take(Stored(word.key, revision, allocation))
        return done

    async def remove_quota(self, key: QuotaKey) -> bool:
        """As `limits.remove_quota`."""
        return await remove_quota(self._allocations, key)

    async def _take(self, stored: Stored) -> None:
        try:
            await self._follower.take(stored)
        except Unavailable:
            # The limit is set; that this region cannot act on it now is no reason to say otherwise.
            _log.info("a limit was set, its application here is left to the watch", quota=str(stored.key))

    async def reservation(self, name: str) -> Reservation | None:
        return None if bucket_of_id(name) is None else await self._store.reservation(name)

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        return await self._store.reservation_of_request(tenant, request_id)

    async def unknown(self, most: int, *, tenant: str | None = None, after: str | None = None) -> Sequence[Reservation]:
        """Work of unknown outcome, oldest deadline first, behind the reservation called `after`.

        Raises `InvalidRequest` where there is none of that name.
        """
        last = None if after is None else await self.reservation(after)
        if after is not None and last is None:
            raise InvalidRequest("after", f"after must name a reservation of this region, got {after}")
        return await self._store.unknown(most, tenant=tenant, after=last)

    async def backlog(self) -> Backlog:
        return await self._store.unknown_backlog()

    async def usage(self, tenant: str) -> Sequence[Holding]:
        """What this region holds for the tenant; quotas that were never used here are not among it."""
        await self._overdue.sweep()
        return await self._store.holdings(tenant)

    async def _submit_here(self, command: Adjust | Meter) -> Outcome:
        outcome = await self._submit(command, bucket_of(command.key.tenant))
        return await self._join(command, outcome) if isinstance(outcome, UnknownQuota) else outcome

    async def _join(self, command: Reserve | Adjust | Meter, outcome: Outcome) -> Outcome:
        """Join each quota that this region has not used yet, and try again."""
        for _ in command.keys:
            if not isinstance(outcome, UnknownQuota):
                break
            if await self._claims.join(outcome.key, self._slice_for(command, outcome.key)) is None:
                break
            outcome = await self._submit(command, bucket_of(command.key.tenant))
        return outcome

    def _slice_for(self, command: Reserve | Adjust | Meter, key: QuotaKey) -> int:
        """What the region has to own, so that nothing but the limit itself denies the command."""
        if not isinstance(command, Reserve):
            return 1
        amount = next((line.amount for line in command.also if line.key == key), command.amount)
        policy = self._follower.policy_of(key)
        return amount if policy is None else policy.slice_for(amount, command.priority)

    async def _submit_named(self, command: Start | Commit | Release | Extend) -> Outcome:
        bucket = bucket_of_id(command.reservation_id)
        if bucket is None:
            return NotFound(command.reservation_id)
        return await self._submit(command, bucket)

    def _is_shard(self, holding: Holding) -> bool:
        """At most half of what the region owns: of all shards together `watch_headroom` hears by itself."""
        return 2 * holding.slice <= self._follower.owned(holding.key)

    def watch_headroom(self, holding: Holding) -> None:
        """Ask for more before anybody is denied. `holding` is all that the region has."""
        if holding.counter.available < holding.slice * self._low_water:
            self._claims.run_short(holding.key, self._headroom_of(holding), holding.counter.available)

    def _headroom_of(self, holding: Holding) -> int:
        return max(1, int(holding.slice * self._low_water))


def _may_pass(denial: Denied) -> bool:
    """Whether a moment later the same request may fit."""
    holding = denial.holding
    return denial.reason in _PASSING and denial.amount <= holding.policy.may_fill(holding.limit, denial.priority)


def _plain(charge: Charge) -> Sequence[object]:
    return [charge.key.tenant, charge.key.resource, charge.key.scope, charge.amount, *charge.via]


def _digest(operation: str, key: QuotaKey, *content: object) -> bytes:
    """Of the canonical request: defaults filled in, in one order."""
    canonical = msgspec.json.encode([operation, key.tenant, key.resource, key.scope, *content])
    return hashlib.blake2b(canonical, digest_size=DIGEST_BYTES).digest()
