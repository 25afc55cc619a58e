"""Claims: headroom out of the pool for a quota that runs short here, without waiting for a round.

Also the first use of a quota in this region, which is a claim by a region that owns nothing yet.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from regionquota.core.floors_and_caps import TakesPart, below_floor, room_below_cap, within_reach
from regionquota.core.quota import MAX_AMOUNT, QuotaKey, Region
from regionquota.core.slice import Holding
from regionquota.errors import EtcdUnavailable, Unavailable, WentBackwards
from regionquota.loops import each
from regionquota.ports import AllocationStore, Clock, RegionStore, Stored
from regionquota.region.denials import Pool
from regionquota.region.follower import Follower
from regionquota.region.steps import Step, claim

MAX_ATTEMPTS: Final = 32
"""Claims for one wish, each at most a share of the pool, or lost to a concurrent change: then the next denial has to
ask again. With 8, one of five first uses in twenty regions at once was denied beside a full pool."""
UNKNOWN_FOR_S: Final = 1.0
"""How long a quota that does not exist is not asked for again."""
MAX_UNKNOWN: Final = 10_000
"""Quotas remembered as unknown; beyond it all are forgotten."""
UNHEARD_S: Final = 1.0
"""So long after a cry the pool is claimed after all, if nothing has changed."""
MAX_CRIED: Final = 10_000
"""Quotas remembered as cried for; beyond it all are forgotten."""
PARALLEL: Final = 16


class _Wish(NamedTuple):
    """`lacking` of the `units` were denied to somebody; the rest is headroom. `available` is what is left here."""

    units: int = 0
    lacking: int = 0
    available: int = 0


class Claims:
    """`allowed` says whether this region may claim now: not while it is frozen or draining; `takes_part` whether the
    floor of another one holds anything back. `on_lack` hears of what is wanted and not in the pool, and of the units
    that are available here all the same.
    """

    def __init__(
        self,
        me: Region,
        allocations: AllocationStore,
        store: RegionStore,
        follower: Follower,
        clock: Clock,
        *,
        share: float,
        join_timeout_s: float,
        allowed: Callable[[], bool],
        takes_part: TakesPart = lambda _: True,
        on_claim: Callable[[int], None] = lambda _: None,
        on_lack: Callable[[QuotaKey, int], None] = lambda _key, _available: None,
    ) -> None:
        self._me = me
        self._allocations = allocations
        self._store = store
        self._follower = follower
        self._clock = clock
        self._share = share
        self._join_timeout_s = join_timeout_s
        self._allowed = allowed
        self._takes_part = takes_part
        self._on_claim = on_claim
        self._on_lack = on_lack
        self._short: dict[QuotaKey, _Wish] = {}
        self._cried: dict[QuotaKey, tuple[int, float]] = {}
        """At which revision, and when."""
        self._wake = asyncio.Event()
        self._joining: dict[QuotaKey, asyncio.Task[Holding | None]] = {}
        self._unknown_until: dict[QuotaKey, float] = {}

    def run_short(self, key: QuotaKey, units: int, available: int = 0, *, lacking: int = 0) -> None:
        """Ask for `units` more of `key` in the background; `lacking` of them were denied to somebody."""
        if not self._allowed():
            return
        if self._within_reach(key) <= 0:
            self._cry(key, available)
            return
        known = self._short.get(key, _Wish())
        self._short[key] = _Wish(
            min(MAX_AMOUNT, known.units + units), min(MAX_AMOUNT, known.lacking + lacking), available
        )
        self._wake.set()

    async def serve(self) -> None:
        """One pass over what runs short; waits until something does."""
        await self._wake.wait()
        self._wake.clear()
        wanted, self._short = self._short, {}
        failures: list[Unavailable] = []

        async def one(key: QuotaKey) -> None:
            wish = wanted[key]
            enough = wish.units if wish.units <= self._within_reach(key) else 1
            try:
                got, _ = await self._claim(key, wish.units, enough=enough, lacking=wish.lacking)
            except Unavailable as error:
                failures.append(error)
                return
            if got < wish.units and self._within_reach(key) < wish.units - got and not self._is_full(key):
                self._on_lack(key, wish.available + got)

        await each([key for key, wish in wanted.items() if not self._cries_first(key, wish)], one, PARALLEL)
        if failures:
            raise failures[0]

    def _cries_first(self, key: QuotaKey, wish: _Wish) -> bool:
        """What the pool cannot serve is the coordinator's to serve, with the pool and what others can spare in one.

        A claim meanwhile would be in its way. It is made if nobody hears: perhaps there is no coordinator.
        """
        if wish.lacking <= self._within_reach(key):
            return False
        known, now = self._follower.known(key), self._clock.now()
        revision = 0 if known is None else known.revision
        before = self._cried.get(key)
        if before is not None and before[0] == revision:
            return now - before[1] < UNHEARD_S
        if len(self._cried) >= MAX_CRIED:
            self._cried.clear()
        self._cried[key] = revision, now
        self._cry(key, 0)
        return True

    def _cry(self, key: QuotaKey, available: int) -> None:
        if not self._is_help_under_way(key) and not self._is_full(key):
            self._on_lack(key, available)

    def _is_full(self, key: QuotaKey) -> bool:
        """Owns all that it may of a quota that has a cap here: nobody can help."""
        stored = self._follower.known(key)
        return stored is not None and stored.allocation is not None and not room_below_cap(stored.allocation, self._me)

    def _is_help_under_way(self, key: QuotaKey) -> bool:
        stored = self._follower.known(key)
        return (
            stored is not None
            and stored.allocation is not None
            and any(move.target == self._me for move in stored.allocation.moves)
        )

    async def join(self, key: QuotaKey, amount: int = 1) -> Holding | None:
        """First use of `key` here, by somebody who wants `amount`. None: no such quota anywhere.

        Callers that ask at the same time share one attempt. Raises `EtcdUnavailable` within the time allowed.
        """
        if self._follower.known(key) is None and self._unknown_until.get(key, 0.0) > self._clock.now():
            return None
        attempt = self._joining.get(key)
        if attempt is None:
            attempt = asyncio.create_task(self._join(key, amount))
            self._joining[key] = attempt
            attempt.add_done_callback(lambda done: self._joined(key, done))
        try:
            async with asyncio.timeout(self._join_timeout_s):
                # Shielded: a caller that gives up must not take the answer from the others.
                return await asyncio.shield(attempt)
        except TimeoutError as error:
            raise EtcdUnavailable(f"no answer from etcd about {key} in {self._join_timeout_s} s") from error

    def _joined(self, key: QuotaKey, attempt: "asyncio.Task[Holding | None]") -> None:
        del self._joining[key]
        if not attempt.cancelled():
            attempt.exception()  # asked for, as all callers may have given up: asyncio would log it with a traceback

    async def _join(self, key: QuotaKey, amount: int) -> Holding | None:
        _, step = await self._claim(key, MAX_AMOUNT, enough=amount)
        if step.held is not None:
            return step.held
        holding = await self._store.holding(key)  # another process of this region may be ahead
        if holding is None and step.allocation is None:
            self._remember_unknown(key)
        return holding

    async def _claim(self, key: QuotaKey, units: int, *, enough: int, lacking: int = 0) -> tuple[int, Step]:
        """Claim up to `units`, again while that brought less than `enough` and the pool has any left."""
        try:
            async with asyncio.timeout(self._join_timeout_s):
                await self._follower.in_step()
        except TimeoutError as error:
            raise EtcdUnavailable("etcd's allocations were not listed again since the last outage") from error
        allowed = self._allowed()
        total = 0
        for _ in range(MAX_ATTEMPTS):
            try:
                got, step = await claim(
                    key,
                    self._me,
                    self._allocations,
                    self._store,
                    wanted=units - total if allowed else 0,
                    share=self._share,
                    now=self._clock.now(),
                    lacking=lacking - total,
                    takes_part=self._takes_part,
                )
            except WentBackwards as error:
                self._follower.on_backwards(str(error))
                raise
            total += got
            if step.allocation is not None:
                self._follower.note(Stored(key, step.revision, step.allocation), step)
            left = within_reach(step.allocation, self._me, self._takes_part) if step.allocation is not None else 0
            if total >= enough or left <= 0 or not allowed:
                break
        if allowed:
            self._on_claim(total)
        return total, step

    def pool(self, key: QuotaKey) -> Pool | None:
        """What this region may have of it now; None: nothing was heard of the quota."""
        stored = self._follower.known(key)
        if stored is None or stored.allocation is None:
            return None
        known, takes_part = stored.allocation, self._allowed()
        reach = within_reach(known, self._me, self._takes_part) if takes_part else 0
        return Pool(known.pool, reach, takes_part, below_floor(known, self._takes_part) - {self._me})

    def _within_reach(self, key: QuotaKey) -> int:
        """Of the pool, as last heard of."""
        stored = self._follower.known(key)
        if stored is None or stored.allocation is None:
            return 0
        return within_reach(stored.allocation, self._me, self._takes_part)

    def _remember_unknown(self, key: QuotaKey) -> None:
        if len(self._unknown_until) >= MAX_UNKNOWN:
            self._unknown_until.clear()
        self._unknown_until[key] = self._clock.now() + UNKNOWN_FOR_S
