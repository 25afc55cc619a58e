"""Which groups of buckets this process leads. Coordinators share them out by what etcd says, without talking."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from regionquota.core.groups import ALL_BUCKETS, Leadership, buckets_of, group_of, shares, spans
from regionquota.core.quota import QuotaKey
from regionquota.ports import Directory, Fence, Session

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Led:
    """What one coordinator leads: a fence for each of its groups, of so many."""

    groups: int = 1
    fences: Mapping[int, Fence] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fences)

    def __contains__(self, key: QuotaKey) -> bool:
        return group_of(key, self.groups) in self.fences

    def fence_of(self, key: QuotaKey) -> Fence:
        """Of a key that it leads."""
        return self.fences[group_of(key, self.groups)]

    @property
    def of_regions(self) -> Fence | None:
        """Who leads group 0 alone watches over the regions' records."""
        return self.fences.get(0)

    @property
    def buckets(self) -> Collection[int]:
        if len(self.fences) == self.groups:
            return ALL_BUCKETS
        return frozenset(bucket for _, buckets in self.parts() for bucket in buckets)

    def parts(self) -> Iterator[tuple[int, range]]:
        """Its groups, and the buckets of each."""
        return ((group, buckets_of(group, self.groups)) for group in sorted(self.fences))


class Election:
    """One lease for all that this process leads. With one group it leads all or nothing, and others stand by."""

    def __init__(self, name: str, directory: Directory, ttl_s: int, groups: int) -> None:
        self._name = name
        self._directory = directory
        self._ttl_s = ttl_s
        self._groups = groups
        self._session: Session | None = None
        self._fences: dict[int, Fence] = {}
        self._leaving: dict[int, Fence] = {}
        self._kept_at = 0.0

    @property
    def led(self) -> Led:
        """By this process's own monotonic clock, so that a hung etcd cannot make it last longer than its lease."""
        if time.monotonic() - self._kept_at >= self._ttl_s:
            return Led(self._groups)
        return Led(self._groups, dict(self._fences))

    @property
    def heard_s_ago(self) -> float | None:
        """Seconds since etcd last answered; None before it ever did."""
        return time.monotonic() - self._kept_at if self._kept_at else None

    async def hold(self) -> None:
        """Prolong the lease, and lead what nobody else does and is this process's to lead."""
        began, before = time.monotonic(), set(self._fences)
        if self._session is not None and not await self._session.keep():
            self._session = None
            self._fences, self._leaving = {}, {}
        if self._session is None:
            self._session = await self._directory.open_session(self._ttl_s)
        if self._groups == 1:
            await self._lead(self._session, [0])
        else:
            await self._share(self._session)
        self._kept_at = began
        if before != set(self._fences):
            _log.info("leading", coordinator=self._name, groups=spans(self._fences) or "none", of=self._groups)

    async def give_up(self) -> None:
        """What has become somebody else's to lead. To be called when nothing is being planned."""
        for group, fence in list(self._leaving.items()):
            await self._directory.resign(fence)
            self._leaving.pop(group, None)

    async def close(self) -> None:
        """Resign, so that others take over at once."""
        self._fences, self._leaving = {}, {}
        if self._session is not None:
            await self._session.close()

    async def _share(self, session: Session) -> None:
        seen = await self._directory.leadership()
        if self._name not in seen.present:
            await self._directory.stand(session, self._name)
        mine = self._share_of(seen)
        held = {group: fence for group, fence in (self._fences | self._leaving).items() if _holds(seen, group, fence)}
        self._fences = {group: fence for group, fence in held.items() if group in mine}
        self._leaving = {group: fence for group, fence in held.items() if group not in mine}
        vacant = [group for group in sorted(mine) if group not in seen.leaders]
        # An answer that was lost may have made it the leader.
        unknown = [at for at, leader in seen.leaders.items() if leader.name == self._name and at not in held]
        await self._lead(session, [*vacant, *unknown])

    def _share_of(self, seen: Leadership) -> Collection[int]:
        if seen.undivided is not None:
            return ()
        assigned = shares({*seen.present, self._name}, self._groups)
        return {group for group, name in assigned.items() if name == self._name}

    async def _lead(self, session: Session, groups: Collection[int]) -> None:
        for group in groups:
            fence = await self._directory.lead(session, self._name, group)
            if fence is None:
                self._fences.pop(group, None)
            else:
                self._fences[group] = fence


def _holds(seen: Leadership, group: int, fence: Fence) -> bool:
    leader = seen.leaders.get(group)
    return leader is not None and leader.since == fence.create_revision
