"""What a region server does for its callers: one method per use case, whatever the transport."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import structlog

from regionquota.core.allocation import Allocation, LimitSource, VersionedLimit
from regionquota.core.commands import (
    Adjust,
    Adjusted,
    Command,
    Commit,
    Denied,
    Extend,
    Granted,
    NotFound,
    Outcome,
    Release,
    Reserve,
    Settled,
    UnknownQuota,
)
from regionquota.core.quota import Kind, QuotaKey, bucket_of
from regionquota.core.reservation import Reservation, State
from regionquota.core.slice import Holding
from regionquota.errors import Unavailable
from regionquota.limits import put_limit
from regionquota.ports import AllocationStore, Clock, RegionStore, Stored
from regionquota.region.claims import Claims
from regionquota.region.demand import DemandMeter
from regionquota.region.follower import Follower
from regionquota.region.ids import bucket_of_id, reservation_id

Submit: TypeAlias = Callable[[Command, int], Awaitable[Outcome]]
DIGEST_BYTES: Final = 16
_log = structlog.get_logger(__name__)


class RegionService:
    """`submit` carries a command out durably (group commit); `low_water` is the free part of a slice, 0 .. 1, below
    which more is claimed before anybody is denied.
    """

    def __init__(
        self,
        submit: Submit,
        store: RegionStore,
        allocations: AllocationStore,
        follower: Follower,
        claims: Claims,
        meter: DemandMeter,
        clock: Clock,
        *,
        low_water: float,
    ) -> None:
        self._submit = submit
        self._store = store
        self._allocations = allocations
        self._follower = follower
        self._claims = claims
        self._meter = meter
        self._clock = clock
        self._low_water = low_water

    async def reserve(self, key: QuotaKey, *, amount: int, request_id: str, ttl_s: int) -> Outcome:
        """Granted, Denied, UnknownQuota or RequestConflict. Raises `Unavailable`; repeat it with the same id."""
        command = Reserve(
            reservation_id=reservation_id(key.tenant, self._clock.now(), secrets.randbits(66)),
            key=key,
            amount=amount,
            request_id=request_id,
            digest=_digest("reserve", key, amount, ttl_s),
            ttl_s=ttl_s,
        )
        outcome = await self._submit_here(command)
        match outcome:
            case Granted(holding=holding, replayed=False):
                self._meter.granted(key, amount)
                self._watch_headroom(holding)
            case Denied(holding=holding) if amount <= holding.limit:
                # What the whole limit could not serve is no demand: it must not draw headroom here in vain.
                self._meter.denied(key, amount)
                self._claims.run_short(key, amount + self._headroom_of(holding))
        return outcome

    async def commit(self, name: str, actual: int | None) -> Outcome:
        outcome = await self._submit_named(Commit(name, actual))
        if isinstance(outcome, Settled) and not outcome.replayed:
            done = outcome.reservation
            assert done.actual is not None
            self._meter.freed(done.key, max(0, done.amount - done.actual))
        return outcome

    async def release(self, name: str) -> Outcome:
        outcome = await self._submit_named(Release(name))
        if isinstance(outcome, Settled) and not outcome.replayed and outcome.reservation.state is State.RELEASED:
            self._meter.freed(outcome.reservation.key, outcome.reservation.amount)
        return outcome

    async def extend(self, name: str, ttl_s: int) -> Outcome:
        return await self._submit_named(Extend(name, ttl_s))

    async def adjust(self, key: QuotaKey, *, delta: int, request_id: str, reason: str) -> Outcome:
        digest = _digest("adjust", key, delta, reason)
        outcome = await self._submit_here(Adjust(key, delta, request_id, digest, reason))
        if isinstance(outcome, Adjusted) and not outcome.replayed:
            (self._meter.freed if delta < 0 else self._meter.granted)(key, abs(delta))
        return outcome

    async def set_limit(
        self, key: QuotaKey, kind: Kind | None, source: LimitSource, limit: VersionedLimit
    ) -> tuple[int, Allocation]:
        """As `put_limit`; this server knows of it at once, the others when their watch tells them."""
        revision, allocation = await put_limit(self._allocations, key, kind, source, limit)
        try:
            await self._follower.take(Stored(key, revision, allocation))
        except Unavailable:
            # The limit is set; that this region cannot act on it now is no reason to say otherwise.
            _log.info("a limit was set, its application here is left to the watch", quota=str(key))
        return revision, allocation

    async def reservation(self, name: str) -> Reservation | None:
        return None if bucket_of_id(name) is None else await self._store.reservation(name)

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        return await self._store.reservation_of_request(tenant, request_id)

    async def usage(self, tenant: str) -> Sequence[Holding]:
        """What this region holds for the tenant; quotas that were never used here are not among it."""
        return await self._store.holdings(tenant)

    async def _submit_here(self, command: Reserve | Adjust) -> Outcome:
        """Submit, joining the quota first if this region has not used it yet."""
        bucket = bucket_of(command.key.tenant)
        outcome = await self._submit(command, bucket)
        if isinstance(outcome, UnknownQuota):
            amount = command.amount if isinstance(command, Reserve) else 1
            if await self._claims.join(command.key, amount) is not None:
                outcome = await self._submit(command, bucket)
        return outcome

    async def _submit_named(self, command: Commit | Release | Extend) -> Outcome:
        bucket = bucket_of_id(command.reservation_id)
        if bucket is None:
            return NotFound(command.reservation_id)
        return await self._submit(command, bucket)

    def _watch_headroom(self, holding: Holding) -> None:
        if holding.counter.available < holding.slice * self._low_water:
            self._claims.run_short(holding.key, self._headroom_of(holding))

    def _headroom_of(self, holding: Holding) -> int:
        return max(1, int(holding.slice * self._low_water))


def _digest(operation: str, key: QuotaKey, *content: object) -> bytes:
    """Of the canonical request: defaults filled in, in one order."""
    canonical = msgspec.json.encode([operation, key.tenant, key.resource, key.scope, *content])
    return hashlib.blake2b(canonical, digest_size=DIGEST_BYTES).digest()
